// SPDX-License-Identifier: Apache-2.0
// A checked tensor as kernels see it, and the rows of several tensors walked together. Plain data: host and device.
#pragma once

#include <cstddef>
#include <cstdint>

#include "einkorn/einkorn.h"

#ifdef __CUDACC__
#define EK_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define EK_HOST_DEVICE inline
#endif

namespace ek {

constexpr int kMaxDims = EK_MAX_DIMS;

EK_HOST_DEVICE constexpr int dtype_bits(ek_dtype t) { return (t >> 8) & 0xff; }
EK_HOST_DEVICE constexpr int dtype_bytes(ek_dtype t) { return (dtype_bits(t) + 7) / 8; }

// byte_offset is already in `data`; strides are always filled in, in elements. data == nullptr: an absent optional.
struct Tensor {
  void* data = nullptr;
  ek_dtype dtype = 0;
  int32_t ndim = 0;
  int64_t shape[kMaxDims] = {};
  int64_t stride[kMaxDims] = {};

  explicit operator bool() const { return data != nullptr; }
  template <class T>
  T* ptr() const {
    return static_cast<T*>(data);
  }
  int64_t numel() const {
    int64_t n = 1;
    for (int i = 0; i < ndim; ++i) n *= shape[i];
    return n;
  }
};

struct TensorList {
  const Tensor* items = nullptr;
  int64_t count = 0;
};

// The leading dims ("...") of N tensors, merged where all of them step evenly: mostly one dim is left, so that row r of
// tensor t begins at r * stride[t][0]. `size` and `stride` run from the innermost merged dim outwards.
template <int N>
struct Rows {
  int64_t count = 0;
  int32_t ndim = 0;
  int64_t size[kMaxDims] = {};
  int64_t stride[N][kMaxDims] = {};

  // Offset in elements of row r of tensor t.
  EK_HOST_DEVICE int64_t offset(int t, int64_t r) const {
    if (ndim == 1) return r * stride[t][0];
    int64_t at = 0;
    for (int i = 0; i < ndim; ++i) {
      // 32-bit division is several times cheaper on a GPU, and nearly every row index fits.
      if ((static_cast<uint64_t>(r) | static_cast<uint64_t>(size[i])) >> 32) {
        at += r % size[i] * stride[t][i];
        r /= size[i];
      } else {
        const uint32_t r32 = static_cast<uint32_t>(r), n32 = static_cast<uint32_t>(size[i]);
        at += static_cast<int64_t>(r32 % n32) * stride[t][i];
        r = r32 / n32;
      }
    }
    return at;
  }
};

// Rows of the first `lead` dims of each tensor. An absent tensor (no data) gets stride 0 and is ignored in merging.
template <int N>
Rows<N> make_rows(int lead, const Tensor* const (&tensors)[N]) {
  Rows<N> rows;
  rows.count = 1;
  for (int d = lead - 1; d >= 0; --d) {
    int64_t size = 1;
    for (const Tensor* t : tensors)
      if (*t) size = t->shape[d];
    rows.count *= size;
    if (size == 1) continue;
    const int last = rows.ndim - 1;
    bool even = last >= 0;
    for (int t = 0; t < N && even; ++t)
      if (*tensors[t]) even = tensors[t]->stride[d] == rows.stride[t][last] * rows.size[last];
    if (even) {
      rows.size[last] *= size;
      continue;
    }
    rows.size[rows.ndim] = size;
    for (int t = 0; t < N; ++t) rows.stride[t][rows.ndim] = *tensors[t] ? tensors[t]->stride[d] : 0;
    ++rows.ndim;
  }
  if (rows.ndim == 0) {
    rows.size[0] = 1;
    rows.ndim = 1;
  }
  return rows;
}

// True where every row of `t` starts on a multiple of `bytes`, given its first `lead` dims.
inline bool rows_aligned(const Tensor& t, int lead, int bytes) {
  if (!t) return true;
  if (reinterpret_cast<uintptr_t>(t.data) % bytes) return false;
  for (int d = 0; d < lead; ++d)
    if (t.shape[d] > 1 && t.stride[d] * dtype_bytes(t.dtype) % bytes) return false;
  return true;
}

}  // namespace ek
