// SPDX-License-Identifier: Apache-2.0
// rms_norm_backward on the CPU. With n = x * rstd and g = dy * (weight + weight_offset):
// dx = (g - n * mean(g * n)) * rstd; dweight = sum over rows of dy * n.
#include "dispatch/ops_gen.h"
#include "ops/norm/norm_backward_cpu.h"

namespace ek::EK_CPU_NS {

// One row; dx may be dy or x. dweight, if not null, is added to.
template <class T>
static void rms_norm_backward_row(const RmsNormBackwardArgs& a, const T* dy, const T* x, const float* saved_rstd, T* dx,
                                  float* dweight) {
  const T* weight = data_of<const T>(a.weight);
  const float rstd = saved_rstd ? *saved_rstd : rstd_of(sum_squares(x, a.dim), a.dim, a.eps);
  float g[kTile], v[kTile];
  double total = 0;
  each_tile(a.dim, [&](int64_t at, int64_t n) {
    load(x + at, n, v);
    load(dy + at, n, g);
    multiply_weight(weight, a.weight_offset, at, n, g);
    total += dot(g, v, n);
  });
  const float mean = static_cast<float>(total * rstd / static_cast<double>(a.dim));
  each_tile(a.dim, [&](int64_t at, int64_t n) {
    load(x + at, n, v);
    load(dy + at, n, g);
    for (int64_t i = 0; i < n; ++i) v[i] *= rstd;
    if (dweight)
      for (int64_t i = 0; i < n; ++i) dweight[at + i] += g[i] * v[i];
    multiply_weight(weight, a.weight_offset, at, n, g);
    for (int64_t i = 0; i < n; ++i) g[i] = (g[i] - v[i] * mean) * rstd;
    store(g, n, dx + at);
  });
}

static ek_status rms_norm_backward_cpu(const RmsNormBackwardArgs& a, const Launch& launch) {
  with_float(a.T, [&](auto type) {
    using T = typename decltype(type)::type;
    const RowWalk<4> rows = rows_of<4>(a.lead, {&a.dy, &a.x, &a.rstd, &a.dx});
    float* partials = static_cast<float*>(launch.workspace);
    const int64_t width = a.dweight.data ? a.dim : 0;
    for_row_blocks(rows, a.dim, partials, width, [&](const int64_t* at, float* partial) {
      rms_norm_backward_row(a, data_of<const T>(a.dy) + at[0], data_of<const T>(a.x) + at[1],
                            a.rstd.data ? data_of<const float>(a.rstd) + at[2] : nullptr, data_of<T>(a.dx) + at[3],
                            width ? partial : nullptr);
    });
    if (width) sum_partials(partials, ceil_div(rows.count, kBlockRows), width, a.dim, data_of<T>(a.dweight));
  });
  return EK_STATUS_OK;
}

static size_t rms_norm_backward_workspace(const RmsNormBackwardArgs& a, const Device&) {
  return partial_bytes(a.rows, a.dim, a.dweight.data != nullptr);
}

const Kernel<RmsNormBackwardArgs> kRmsNormBackwardCpu[] = {
    {EK_CPU_ROW("rms_norm_backward_cpu"), kCpuTarget, nullptr, rms_norm_backward_cpu, rms_norm_backward_workspace,
     kDeterministic},
    {}};

}  // namespace ek::EK_CPU_NS
