// SPDX-License-Identifier: Apache-2.0
// Weight gradients of the norms: sums over all rows, the same bits for any number of threads. Each block of
// kBlockRows rows adds up its own partial in f32, in the workspace; the partials are then added in order, in f64.
#pragma once

#include "ops/norm/norm_cpu.h"

namespace ek::EK_CPU_NS {

// Fixed, so that the partials are: 64 rows make enough blocks for all threads, and 3 % of a bf16 tensor as workspace.
constexpr int64_t kBlockRows = 64;

EK_INLINE size_t partial_bytes(int64_t rows, int64_t dim, int gradients) {
  return static_cast<size_t>(ceil_div(rows, kBlockRows) * dim * gradients) * sizeof(float);
}

// body(at, row, block) for every row of each block in order, after the block's partials, `width` floats, were zeroed.
template <int N, class Body>
void for_row_blocks(const RowWalk<N>& rows, int64_t dim, float* partials, int64_t width, const Body& body) {
  const int64_t blocks = ceil_div(rows.count, kBlockRows);
  parallel_for(blocks, grain_of(kBlockRows * dim), [&](int64_t begin, int64_t end) {
    int64_t at[N];
    for (int64_t block = begin; block < end; ++block) {
      float* partial = partials + block * width;
      for (int64_t i = 0; i < width; ++i) partial[i] = 0.f;
      const int64_t last = min_of(rows.count, (block + 1) * kBlockRows);
      for (int64_t r = block * kBlockRows; r < last; ++r) {
        rows.offsets(r, at);
        body(at, partial);
      }
    }
  });
}

// y[i] = sum over blocks of partials[block * width + i]
template <class T>
void sum_partials(const float* partials, int64_t blocks, int64_t width, int64_t dim, T* y) {
  parallel_for(ceil_div(dim, kTile), grain_of(blocks * kTile), [&](int64_t begin, int64_t end) {
    for (int64_t column = begin * kTile; column < min_of(dim, end * kTile); column += kTile) {
      const int64_t n = min_of(kTile, dim - column);
      double total[kTile] = {};
      float v[kTile];
      for (int64_t block = 0; block < blocks; ++block)
        for (int64_t i = 0; i < n; ++i) total[i] += partials[block * width + column + i];
      for (int64_t i = 0; i < n; ++i) v[i] = static_cast<float>(total[i]);
      store(v, n, y + column);
    }
  });
}

}  // namespace ek::EK_CPU_NS
