// SPDX-License-Identifier: Apache-2.0
// Mean and variance of a row in two passes, and the normalised row. For layer_norm, add_layer_norm and group_norm.
#pragma once

#include "ops/norm/norm_cpu.h"

namespace ek::EK_CPU_NS {

// The mean is base + rest: base alone is rounded to f32, which shows where |mean| is much larger than the deviation.
struct Moments {
  float base, rest, rstd;
  EK_INLINE float mean() const { return base + rest; }
};

// base + rest and rstd from sums of (x - base) and (x - base)^2.
EK_INLINE Moments moments_of(float base, double sum, double squares, int64_t count, float eps) {
  const double rest = sum / static_cast<double>(count);
  const double spread = squares - sum * rest;
  return {base, static_cast<float>(rest), rstd_of(spread < 0 ? 0 : spread, count, eps)};  // NaN is not < 0
}

template <class T>
double sum_row(const T* x, int64_t dim) {
  double total = 0;
  each_tile(dim, [&](int64_t at, int64_t n) {
    float v[kTile];
    load(x + at, n, v);
    total += sum(v, n);
  });
  return total;
}

// first += sum of (x - base), second += sum of (x - base)^2
template <class T>
void add_deviations(const T* x, int64_t dim, float base, double& first, double& second) {
  each_tile(dim, [&](int64_t at, int64_t n) {
    float v[kTile];
    load(x + at, n, v);
    for (int64_t i = 0; i < n; ++i) v[i] -= base;
    first += sum(v, n);
    second += dot(v, v, n);
  });
}

// The second pass over a row, given the sum of the first.
template <class T>
Moments row_moments(const T* x, int64_t dim, double row_sum, float eps) {
  const float base = static_cast<float>(row_sum / static_cast<double>(dim));
  double first = 0, second = 0;
  add_deviations(x, dim, base, first, second);
  return moments_of(base, first, second, dim, eps);
}

// (x - mean) * rstd * weight + bias, tile by tile.
template <class T>
struct LayerRow {
  const T* x;
  const T* weight;
  const T* bias;
  Moments m;

  void operator()(int64_t column, int64_t n, float* v) const {
    load(x + column, n, v);
    for (int64_t i = 0; i < n; ++i) v[i] = (v[i] - m.base - m.rest) * m.rstd;
    multiply_weight(weight, 0.f, column, n, v);
    if (!bias) return;
    float b[kTile];
    load(bias + column, n, b);
    for (int64_t i = 0; i < n; ++i) v[i] += b[i];
  }
};

}  // namespace ek::EK_CPU_NS
