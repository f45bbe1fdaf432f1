// SPDX-License-Identifier: Apache-2.0
// axpby on the CPU: y = alpha * x + beta * y; beta = 0 does not read y.
#include "cpu/map.h"
#include "dispatch/ops_gen.h"

namespace ek::EK_CPU_NS {

static ek_status axpby_cpu(const AxpbyArgs& a, const Launch&) {
  const float alpha = a.alpha, beta = a.beta;
  if (beta == 0.f) return map_unary(a.T, a.lead, a.dim, a.x, a.y, [=](float x) { return alpha * x; });
  return map_binary(a.T, a.lead, a.dim, a.x, a.y, a.y, [=](float x, float y) { return alpha * x + beta * y; });
}

const Kernel<AxpbyArgs> kAxpbyCpu[] = {{EK_CPU_ROW("axpby_cpu"), kCpuTarget, nullptr, axpby_cpu}, {}};

}  // namespace ek::EK_CPU_NS
