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

// a / b for a >= 0, b > 0. 32-bit division is several times cheaper on a GPU, and nearly every row index fits.
EK_HOST_DEVICE int64_t row_quotient(int64_t a, int64_t b) {
  const uint64_t n = static_cast<uint64_t>(a), d = static_cast<uint64_t>(b);
  if ((n | d) >> 32 == 0) return static_cast<uint32_t>(n) / static_cast<uint32_t>(d);
#ifdef __CUDA_ARCH__
  // Bit by bit: the compiler's 64-bit division would cost every kernel eight registers for this rare case.
  uint64_t quotient = 0, rest = 0;
#pragma unroll 1
  for (int bit = 63; bit >= 0; --bit) {
    rest = rest << 1 | (n >> bit & 1);
    if (rest >= d) rest -= d, quotient |= uint64_t{1} << bit;
  }
  return static_cast<int64_t>(quotient);
#else
  return static_cast<int64_t>(n / d);
#endif
}

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

  // The same for all tensors at once: one set of divisions.
  EK_HOST_DEVICE void offsets(int64_t r, int64_t (&at)[N]) const {
    for (int t = 0; t < N; ++t) at[t] = 0;
    for (int i = 0; i < ndim; ++i) {
      const int64_t rest = row_quotient(r, size[i]), index = r - rest * size[i];
      for (int t = 0; t < N; ++t) at[t] += index * stride[t][i];
      r = rest;
    }
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
