// SPDX-License-Identifier: Apache-2.0
// rms_norm on the CPU: y = x * rstd * (weight + weight_offset), rstd = 1 / sqrt(mean(x^2) + eps).
#include "dispatch/ops_gen.h"
#include "ops/norm/norm_cpu.h"

namespace ek::EK_CPU_NS {

static ek_status rms_norm_cpu(const RmsNormArgs& a, const Launch&) {
  with_float(a.T, [&](auto type) {
    using T = typename decltype(type)::type;
    for_rows(rows_of<3>(a.lead, {&a.x, &a.y, &a.rstd}), a.dim, [&](const int64_t* at, int64_t) {
      const T* x = data_of<const T>(a.x) + at[0];
      const float rstd = rstd_of(sum_squares(x, a.dim), a.dim, a.eps);
      store_row(a.dim, RmsRow<T>{x, data_of<const T>(a.weight), rstd, a.weight_offset}, data_of<T>(a.y) + at[1]);
      if (a.rstd.data) data_of<float>(a.rstd)[at[2]] = rstd;
    });
  });
  return EK_STATUS_OK;
}

const Kernel<RmsNormArgs> kRmsNormCpu[] = {{EK_CPU_ROW("rms_norm_cpu"), kCpuTarget, nullptr, rms_norm_cpu}, {}};

}  // namespace ek::EK_CPU_NS
