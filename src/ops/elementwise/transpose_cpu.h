// SPDX-License-Identifier: Apache-2.0
// Many [m, n] matrices transposed to [n, m], as bit patterns: transpose_2d and the two image layouts share this.
#pragma once

#include "cpu/rows.h"

namespace ek::EK_CPU_NS {

// 64 x 64 elements: reads and writes of at least two cache lines in a row; both sides fit the L1 cache.
constexpr int64_t kSquare = 64;

// dst[j, i] = src[i, j] for i < m, j < n, both at most kSquare.
template <class U>
void transpose_square(const U* src, int64_t src_stride, U* dst, int64_t dst_stride, int64_t m, int64_t n) {
  U t[kSquare][kSquare];
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) t[j][i] = src[i * src_stride + j];
  for (int64_t j = 0; j < n; ++j) __builtin_memcpy(dst + j * dst_stride, t[j], m * sizeof(U));
}

// `matrices` walks x (0) and y (1); strides are those between the rows of one matrix.
template <class U>
void transpose_all(const RowWalk<2>& matrices, int64_t m, int64_t n, const U* x, int64_t x_stride, U* y,
                   int64_t y_stride) {
  const int64_t down = ceil_div(m, kSquare), across = ceil_div(n, kSquare);
  parallel_for(matrices.count * down * across, grain_of(kSquare * kSquare), [&](int64_t begin, int64_t end) {
    for (int64_t unit = begin; unit < end; ++unit) {
      int64_t at[2];
      matrices.offsets(unit / (down * across), at);
      const int64_t i = unit / across % down * kSquare, j = unit % across * kSquare;
      transpose_square(x + at[0] + i * x_stride + j, x_stride, y + at[1] + j * y_stride + i, y_stride,
                       min_of(kSquare, m - i), min_of(kSquare, n - j));
    }
  });
}

inline ek_status transpose_all(const RowWalk<2>& matrices, int64_t m, int64_t n, const Tensor& x, int64_t x_stride,
                               const Tensor& y, int64_t y_stride) {
  if (x.dtype == EK_DTYPE_F32)
    transpose_all(matrices, m, n, data_of<const uint32_t>(x), x_stride, data_of<uint32_t>(y), y_stride);
  else
    transpose_all(matrices, m, n, data_of<const uint16_t>(x), x_stride, data_of<uint16_t>(y), y_stride);
  return EK_STATUS_OK;
}

}  // namespace ek::EK_CPU_NS
