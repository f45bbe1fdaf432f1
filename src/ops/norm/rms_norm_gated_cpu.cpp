// SPDX-License-Identifier: Apache-2.0
// rms_norm_gated on the CPU. norm_before_gate: y = rms_norm(x) * silu(z), else y = rms_norm(x * silu(z)), over each
// group of a row. silu is computed again in the second pass: that is cheaper than keeping the row.
#include "cpu/math.h"
#include "dispatch/ops_gen.h"
#include "ops/activation/formulas.h"
#include "ops/norm/norm_cpu.h"

namespace ek::EK_CPU_NS {

template <class T>
static void rms_norm_gated_group(const RmsNormGatedArgs& a, const T* x, const T* z, const T* weight, T* y,
                                 int64_t group) {
  const auto gated = [&](int64_t at, int64_t n, float* v) {
    float gate[kTile];
    load(x + at, n, v);
    load(z + at, n, gate);
    for (int64_t i = 0; i < padded(n); ++i) v[i] *= Silu<Math>()(gate[i]);
  };
  double squares = 0;
  if (a.norm_before_gate) {
    squares = sum_squares(x, group);
  } else {
    each_tile(group, [&](int64_t at, int64_t n) {
      float v[kTile];
      gated(at, n, v);
      squares += dot(v, v, n);
    });
  }
  const float rstd = rstd_of(squares, group, a.eps);
  const auto value = [&](int64_t at, int64_t n, float* v) {
    gated(at, n, v);
    for (int64_t i = 0; i < n; ++i) v[i] *= rstd;
    multiply_weight(weight, 0.f, at, n, v);
  };
  store_row(group, value, y);
}

static ek_status rms_norm_gated_cpu(const RmsNormGatedArgs& a, const Launch&) {
  const int64_t group = a.group > 0 ? a.group : a.dim;
  with_float(a.T, [&](auto type) {
    using T = typename decltype(type)::type;
    const T* weight = data_of<const T>(a.weight);
    for_rows(rows_of<3>(a.lead, {&a.x, &a.z, &a.y}), a.dim, [&](const int64_t* at, int64_t) {
      for (int64_t g = 0; g < a.dim; g += group)
        rms_norm_gated_group(a, data_of<const T>(a.x) + at[0] + g, data_of<const T>(a.z) + at[1] + g,
                             weight ? weight + g : nullptr, data_of<T>(a.y) + at[2] + g, group);
    });
  });
  return EK_STATUS_OK;
}

const Kernel<RmsNormGatedArgs> kRmsNormGatedCpu[] = {
    {EK_CPU_ROW("rms_norm_gated_cpu"), kCpuTarget, nullptr, rms_norm_gated_cpu}, {}};

}  // namespace ek::EK_CPU_NS
