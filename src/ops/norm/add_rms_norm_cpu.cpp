// SPDX-License-Identifier: Apache-2.0
// add_rms_norm on the CPU: residual = T(residual + x); y = rms_norm(residual), of the rounded values.
#include "dispatch/ops_gen.h"
#include "ops/norm/norm_cpu.h"

namespace ek::EK_CPU_NS {

static ek_status add_rms_norm_cpu(const AddRmsNormArgs& a, const Launch&) {
  with_float(a.T, [&](auto type) {
    using T = typename decltype(type)::type;
    for_rows(rows_of<4>(a.lead, {&a.x, &a.residual, &a.y, &a.rstd}), a.dim, [&](const int64_t* at, int64_t) {
      T* residual = data_of<T>(a.residual) + at[1];
      const double squares = add_to_residual_sum_squares(data_of<const T>(a.x) + at[0], residual, a.dim);
      const float rstd = rstd_of(squares, a.dim, a.eps);
      store_row(a.dim, RmsRow<T>{residual, data_of<const T>(a.weight), rstd, a.weight_offset}, data_of<T>(a.y) + at[2]);
      if (a.rstd.data) data_of<float>(a.rstd)[at[3]] = rstd;
    });
  });
  return EK_STATUS_OK;
}

const Kernel<AddRmsNormArgs> kAddRmsNormCpu[] = {
    {EK_CPU_ROW("add_rms_norm_cpu"), kCpuTarget, nullptr, add_rms_norm_cpu}, {}};

}  // namespace ek::EK_CPU_NS
