// SPDX-License-Identifier: Apache-2.0
// l2_norm on the CPU: y = x / sqrt(sum(x^2) + eps).
#include "dispatch/ops_gen.h"
#include "ops/norm/norm_cpu.h"

namespace ek::EK_CPU_NS {

static ek_status l2_norm_cpu(const L2NormArgs& a, const Launch&) {
  with_float(a.T, [&](auto type) {
    using T = typename decltype(type)::type;
    for_rows(rows_of<2>(a.lead, {&a.x, &a.y}), a.dim, [&](const int64_t* at, int64_t) {
      const T* x = data_of<const T>(a.x) + at[0];
      const float rnorm = rstd_of(sum_squares(x, a.dim), 1, a.eps);
      store_row(a.dim, RmsRow<T>{x, nullptr, rnorm, 0.f}, data_of<T>(a.y) + at[1]);
    });
  });
  return EK_STATUS_OK;
}

const Kernel<L2NormArgs> kL2NormCpu[] = {{EK_CPU_ROW("l2_norm_cpu"), kCpuTarget, nullptr, l2_norm_cpu}, {}};

}  // namespace ek::EK_CPU_NS
