// SPDX-License-Identifier: Apache-2.0
// add_layer_norm on the CPU: residual = T(residual + x); y = layer_norm(residual), of the rounded values.
#include "dispatch/ops_gen.h"
#include "ops/norm/layer_norm_cpu.h"

namespace ek::EK_CPU_NS {

static ek_status add_layer_norm_cpu(const AddLayerNormArgs& a, const Launch&) {
  with_float(a.T, [&](auto type) {
    using T = typename decltype(type)::type;
    for_rows(rows_of<3>(a.lead, {&a.x, &a.residual, &a.y}), a.dim, [&](const int64_t* at, int64_t) {
      T* residual = data_of<T>(a.residual) + at[1];
      double total = 0;
      add_to_residual(data_of<const T>(a.x) + at[0], residual, a.dim,
                      [&](int64_t, int64_t n, const float* v) { total += sum(v, n); });
      const Moments m = row_moments(residual, a.dim, total, a.eps);
      store_row(a.dim, LayerRow<T>{residual, data_of<const T>(a.weight), data_of<const T>(a.bias), m},
                data_of<T>(a.y) + at[2]);
    });
  });
  return EK_STATUS_OK;
}

const Kernel<AddLayerNormArgs> kAddLayerNormCpu[] = {
    {EK_CPU_ROW("add_layer_norm_cpu"), kCpuTarget, nullptr, add_layer_norm_cpu}, {}};

}  // namespace ek::EK_CPU_NS
