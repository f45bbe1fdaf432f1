// SPDX-License-Identifier: Apache-2.0
// layer_norm_backward on the CPU. With n = (x - mean) * rstd and g = dy * weight:
// dx = (g - mean(g) - n * mean(g * n)) * rstd; dweight = sum over rows of dy * n; dbias = sum over rows of dy.
#include "dispatch/ops_gen.h"
#include "ops/norm/layer_norm_cpu.h"
#include "ops/norm/norm_backward_cpu.h"

namespace ek::EK_CPU_NS {

// One row; dx may be dy or x. dweight and dbias, if not null, are added to.
template <class T>
static void layer_norm_backward_row(int64_t dim, const T* dy, const T* x, const T* weight, const Moments& m, T* dx,
                                    float* dweight, float* dbias) {
  float g[kTile], v[kTile];
  const auto read = [&](int64_t at, int64_t n) {
    load(x + at, n, v);
    load(dy + at, n, g);
    for (int64_t i = 0; i < n; ++i) v[i] = (v[i] - m.base - m.rest) * m.rstd;
  };
  double sum_g = 0, sum_gn = 0;
  each_tile(dim, [&](int64_t at, int64_t n) {
    read(at, n);
    multiply_weight(weight, 0.f, at, n, g);
    sum_g += sum(g, n);
    sum_gn += dot(g, v, n);
  });
  const float mean_g = static_cast<float>(sum_g / static_cast<double>(dim));
  const float mean_gn = static_cast<float>(sum_gn / static_cast<double>(dim));
  each_tile(dim, [&](int64_t at, int64_t n) {
    read(at, n);
    if (dweight)
      for (int64_t i = 0; i < n; ++i) dweight[at + i] += g[i] * v[i];
    if (dbias)
      for (int64_t i = 0; i < n; ++i) dbias[at + i] += g[i];
    multiply_weight(weight, 0.f, at, n, g);
    for (int64_t i = 0; i < n; ++i) g[i] = (g[i] - mean_g - v[i] * mean_gn) * m.rstd;
    store(g, n, dx + at);
  });
}

static ek_status layer_norm_backward_cpu(const LayerNormBackwardArgs& a, const Launch& launch) {
  with_float(a.T, [&](auto type) {
    using T = typename decltype(type)::type;
    const RowWalk<5> rows = rows_of<5>(a.lead, {&a.dy, &a.x, &a.mean, &a.rstd, &a.dx});
    float* partials = static_cast<float*>(launch.workspace);
    const int64_t dweight_width = a.dweight.data ? a.dim : 0, width = dweight_width + (a.dbias.data ? a.dim : 0);
    for_row_blocks(rows, a.dim, partials, width, [&](const int64_t* at, float* partial) {
      const T* x = data_of<const T>(a.x) + at[1];
      const Moments m = a.rstd.data
                            ? Moments{data_of<const float>(a.mean)[at[2]], 0.f, data_of<const float>(a.rstd)[at[3]]}
                            : row_moments(x, a.dim, sum_row(x, a.dim), a.eps);
      layer_norm_backward_row(a.dim, data_of<const T>(a.dy) + at[0], x, data_of<const T>(a.weight), m,
                              data_of<T>(a.dx) + at[4], a.dweight.data ? partial : nullptr,
                              a.dbias.data ? partial + dweight_width : nullptr);
    });
    const int64_t blocks = ceil_div(rows.count, kBlockRows);
    if (a.dweight.data) sum_partials(partials, blocks, width, a.dim, data_of<T>(a.dweight));
    if (a.dbias.data) sum_partials(partials + dweight_width, blocks, width, a.dim, data_of<T>(a.dbias));
  });
  return EK_STATUS_OK;
}

static size_t layer_norm_backward_workspace(const LayerNormBackwardArgs& a, const Device&) {
  return partial_bytes(a.rows, a.dim, (a.dweight.data != nullptr) + (a.dbias.data != nullptr));
}

const Kernel<LayerNormBackwardArgs> kLayerNormBackwardCpu[] = {
    {EK_CPU_ROW("layer_norm_backward_cpu"), kCpuTarget, nullptr, layer_norm_backward_cpu, layer_norm_backward_workspace,
     kDeterministic},
    {}};

}  // namespace ek::EK_CPU_NS
