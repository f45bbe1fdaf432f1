// SPDX-License-Identifier: Apache-2.0
// layer_norm on the CPU: y = (x - mean) * rstd * weight + bias. Three passes: mean, variance, result.
#include "ops/norm/layer_norm_cpu.h"

#include "dispatch/ops_gen.h"

namespace ek::EK_CPU_NS {

static ek_status layer_norm_cpu(const LayerNormArgs& a, const Launch&) {
  with_float(a.T, [&](auto type) {
    using T = typename decltype(type)::type;
    for_rows(rows_of<4>(a.lead, {&a.x, &a.y, &a.mean, &a.rstd}), a.dim, [&](const int64_t* at, int64_t) {
      const T* x = data_of<const T>(a.x) + at[0];
      const Moments m = row_moments(x, a.dim, sum_row(x, a.dim), a.eps);
      store_row(a.dim, LayerRow<T>{x, data_of<const T>(a.weight), data_of<const T>(a.bias), m},
                data_of<T>(a.y) + at[1]);
      if (a.mean.data) data_of<float>(a.mean)[at[2]] = m.mean();
      if (a.rstd.data) data_of<float>(a.rstd)[at[3]] = m.rstd;
    });
  });
  return EK_STATUS_OK;
}

const Kernel<LayerNormArgs> kLayerNormCpu[] = {{EK_CPU_ROW("layer_norm_cpu"), kCpuTarget, nullptr, layer_norm_cpu}, {}};

}  // namespace ek::EK_CPU_NS
