// SPDX-License-Identifier: Apache-2.0
// What the norms share on the CPU. A row is read twice or three times, a tile of f32 at a time: the second time it
// comes from the cache. Sums: f32 within a tile, f64 over tiles.
#pragma once

#include "cpu/reduce.h"
#include "cpu/rows.h"

namespace ek::EK_CPU_NS {

// 1 / sqrt(sum / count + eps)
EK_INLINE float rstd_of(double sum, int64_t count, float eps) {
  return static_cast<float>(1.0 / __builtin_sqrt(sum / static_cast<double>(count) + eps));
}

template <class T>
double sum_squares(const T* x, int64_t dim) {
  double total = 0;
  each_tile(dim, [&](int64_t at, int64_t n) {
    float v[kTile];
    load(x + at, n, v);
    total += dot(v, v, n);
  });
  return total;
}

// residual = T(residual + x); calls use(column, n, v) with the rounded values of each tile.
template <class T, class Use>
EK_INLINE void add_to_residual(const T* x, T* residual, int64_t dim, const Use& use) {
  each_tile(dim, [&](int64_t at, int64_t n) {
    float v[kTile], w[kTile];
    load(x + at, n, v);
    load(residual + at, n, w);
    for (int64_t i = 0; i < n; ++i) v[i] += w[i];
    store(v, n, residual + at);
    load(residual + at, n, v);
    use(at, n, v);
  });
}

template <class T>
double add_to_residual_sum_squares(const T* x, T* residual, int64_t dim) {
  double total = 0;
  add_to_residual(x, residual, dim, [&](int64_t, int64_t n, const float* v) { total += dot(v, v, n); });
  return total;
}

// v *= weight + offset, columns [column, column + n); an absent weight is a factor of 1, whatever the offset.
template <class T>
void multiply_weight(const T* weight, float offset, int64_t column, int64_t n, float* v) {
  if (!weight) return;
  float w[kTile];
  load(weight + column, n, w);
  for (int64_t i = 0; i < n; ++i) v[i] *= w[i] + offset;
}

// The values x * rstd * (weight + offset) of a row, tile by tile.
template <class T>
struct RmsRow {
  const T* x;
  const T* weight;
  float rstd, weight_offset;

  void operator()(int64_t column, int64_t n, float* v) const {
    load(x + column, n, v);
    for (int64_t i = 0; i < n; ++i) v[i] *= rstd;
    multiply_weight(weight, weight_offset, column, n, v);
  }
};

template <class T, class Value>
EK_INLINE void store_row(int64_t dim, const Value& value, T* y) {
  each_tile(dim, [&](int64_t at, int64_t n) {
    float v[kTile];
    value(at, n, v);
    store(v, n, y + at);
  });
}

}  // namespace ek::EK_CPU_NS
