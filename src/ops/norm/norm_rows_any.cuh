// SPDX-License-Identifier: Apache-2.0
// The catch-all behind the forward norms: any length, any alignment, element by element. A row is read once for each
// pass; the caches serve it from the second on. A thread meets the same elements in every pass, so that in-place calls
// and the new residual need no synchronisation, except where quantization groups are dealt out to warps.
#pragma once

#include "cuda/pdl.cuh"
#include "ops/norm/norm_call.cuh"

namespace ek {

template <class Op, class Team>
__global__ void __launch_bounds__(512) norm_rows_any(const NormParams<Op> p) {
  using T = typename Op::T;
  using Out = typename Op::Out;
  constexpr bool kAdd = Op::kInput == NormInput::kAdd;
  __shared__ typename Team::Scratch scratch;
  Team team(scratch);
  pdl_wait();
  pdl_launch();

  const uint32_t row = team.row();
  const bool active = row < p.count;
  const int64_t dim = active ? p.dim : 0;  // rows beyond the end take part in the shuffles with nothing
  const T* x = p.x + p.template offset<kNormX>(row);
  T* other = p.other + p.template offset<kNormOther>(row);
  const T* weight = p.weight + p.template offset<kNormWeight>(row);
  Out* y = p.y + p.template offset<kNormY>(row);

  // What is normalised; after the first pass the residual holds it.
  const auto value = [&](int64_t i) {
    float v = to_float(kAdd ? other[i] : x[i]);
    if constexpr (Op::kInput == NormInput::kGateFirst) v *= Silu<CudaMathFor<T>>()(to_float(other[i]));
    return v;
  };

  float base = 0.f, rest = 0.f, squares = 0.f, sum[2] = {0.f, 0.f};
  for (int64_t i = team.thread; i < dim; i += team.threads) {
    if constexpr (kAdd) other[i] = from_float<T>(to_float(x[i]) + to_float(other[i]));
    const float v = value(i);
    sum[0] += Op::kCentre ? v : v * v;
  }
  team.reduce(sum, Sum{});
  if constexpr (Op::kCentre) {
    base = sum[0] * p.factor;
    sum[0] = sum[1] = 0.f;
    for (int64_t i = team.thread; i < dim; i += team.threads) {
      const float d = value(i) - base;
      sum[0] += d;
      sum[1] += d * d;
    }
    team.reduce(sum, Sum{});
    rest = sum[0] * p.factor;
    squares = sum[1] - sum[0] * rest;
    if (squares < 0.f) squares = 0.f;  // by rounding; NaN stays
  } else {
    squares = sum[0];
  }
  const float rstd = rsqrtf(squares * p.factor + p.eps);
  if (active && team.thread == 0) {
    if (p.rstd) p.rstd[p.template offset<kNormRstd>(row)] = rstd;
    if (Op::kCentre && p.mean) p.mean[p.template offset<kNormMean>(row)] = base + rest;
  }

  const auto normalised = [&](int64_t i) {
    const float w = p.weight ? to_float(weight[i]) + p.weight_offset : 1.f;
    float v = (value(i) - base - rest) * rstd * w;
    if (Op::kCentre && p.bias) v += to_float(p.bias[i]);
    if constexpr (Op::kInput == NormInput::kGateLast) v *= Silu<CudaMathFor<T>>()(to_float(other[i]));
    return v;
  };

  if constexpr (!Op::kQuant) {
    for (int64_t i = team.thread; i < dim; i += team.threads) y[i] = from_float<Out>(normalised(i));
  } else if (!p.group) {
    float amax[1] = {0.f};
    for (int64_t i = team.thread; i < dim; i += team.threads) amax[0] = MaxNan{}(amax[0], fabsf(normalised(i)));
    team.reduce(amax, MaxNan{});
    const Quantizer<Out> quantize(amax[0]);
    if (active && team.thread == 0) p.scale[p.template offset<kNormScale>(row)] = quantize.scale;
    for (int64_t i = team.thread; i < dim; i += team.threads) y[i] = quantize({normalised(i)}).v[0];
  } else {
    // Each warp, or the team where it is less than one, takes every so many-th group.
    team.sync();
    const int lanes = min(team.threads, 32), lane = team.thread % lanes;
    for (int64_t g = team.thread / lanes; g * p.group < p.dim; g += team.threads / lanes) {
      const int64_t end = min(dim, (g + 1) * p.group);
      float amax = 0.f;
      for (int64_t i = g * p.group + lane; i < end; i += lanes) amax = MaxNan{}(amax, fabsf(normalised(i)));
      const Quantizer<Out> quantize(warp_reduce(amax, MaxNan{}, lanes));
      if (active && lane == 0) p.scale[p.template offset<kNormScale>(row) + g * p.scale_step] = quantize.scale;
      for (int64_t i = g * p.group + lane; i < end; i += lanes) y[i] = quantize({normalised(i)}).v[0];
    }
  }
}

}  // namespace ek
