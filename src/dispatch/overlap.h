// SPDX-License-Identifier: Apache-2.0
// Do two tensors share memory? Exact enough for slices of one packed tensor (q and k of a QKV block), and never wrong in
// the dangerous direction: a pair it can't tell apart counts as overlapping.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "core/tensor.h"

namespace ek {

struct ByteRange {
  uintptr_t begin, end;
};

inline ByteRange byte_range(const Tensor& t) {
  const auto begin = reinterpret_cast<uintptr_t>(t.data);
  int64_t last = 0;
  for (int d = 0; d < t.ndim; ++d) {
    if (t.shape[d] == 0) return {begin, begin};
    last += (t.shape[d] - 1) * t.stride[d];
  }
  return {begin, begin + static_cast<uintptr_t>((last + 1) * dtype_bytes(t.dtype))};
}

inline bool ranges_touch(const Tensor& a, const Tensor& b) {
  const ByteRange x = byte_range(a), y = byte_range(b);
  return x.begin < y.end && y.begin < x.end;
}

inline bool same_elements(const Tensor& a, const Tensor& b) {
  if (a.data != b.data || a.ndim != b.ndim || dtype_bytes(a.dtype) != dtype_bytes(b.dtype)) return false;
  for (int d = 0; d < a.ndim; ++d)
    if (a.shape[d] != b.shape[d] || (a.shape[d] > 1 && a.stride[d] != b.stride[d])) return false;
  return true;
}

// Some element of `t` has two indices. Dims sorted by stride must each step past all that the smaller ones reach.
inline bool overlaps_itself(const Tensor& t) {
  int order[kMaxDims], n = 0;
  for (int d = 0; d < t.ndim; ++d) {
    if (t.shape[d] == 0) return false;
    if (t.shape[d] == 1) continue;
    int at = n++;
    for (; at > 0 && t.stride[order[at - 1]] > t.stride[d]; --at) order[at] = order[at - 1];
    order[at] = d;
  }
  int64_t reach = 1;
  for (int i = 0; i < n; ++i) {
    if (t.stride[order[i]] < reach) return true;
    reach += (t.shape[order[i]] - 1) * t.stride[order[i]];
  }
  return false;
}

// For a pitch P that divides every stride >= P of both tensors, each tensor fills, modulo P, one interval: from its first
// byte, as long as its dims with smaller strides reach. If for some P the two intervals do not meet, the tensors do not.
inline bool may_overlap(const Tensor& a, const Tensor& b) {
  for (const Tensor* source : {&a, &b})
    for (int d = 0; d < source->ndim; ++d) {
      if (source->shape[d] <= 1) continue;
      const int64_t pitch = source->stride[d] * dtype_bytes(source->dtype);
      if (pitch <= 0) continue;
      int64_t extent[2];
      bool fits = true;
      const Tensor* both[2] = {&a, &b};
      for (int i = 0; i < 2; ++i) {
        const int64_t bytes = dtype_bytes(both[i]->dtype);
        extent[i] = bytes;
        for (int k = 0; k < both[i]->ndim; ++k) {
          const int64_t step = both[i]->stride[k] * bytes;
          if (both[i]->shape[k] <= 1) continue;
          if (step < pitch) {
            extent[i] += (both[i]->shape[k] - 1) * step;
          } else {
            fits = fits && step % pitch == 0;
          }
        }
      }
      if (!fits) continue;
      // Distance from a's interval to b's, going up modulo the pitch.
      const auto distance =
          static_cast<int64_t>(reinterpret_cast<uintptr_t>(b.data) - reinterpret_cast<uintptr_t>(a.data));
      const int64_t gap = ((distance % pitch) + pitch) % pitch;
      if (gap >= extent[0] && gap + extent[1] <= pitch) return false;
    }
  return true;
}

}  // namespace ek
