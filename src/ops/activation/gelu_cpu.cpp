// SPDX-License-Identifier: Apache-2.0
// gelu on the CPU: y = x * Phi(x), exact or by tanh.
#include "cpu/map.h"
#include "cpu/math.h"
#include "dispatch/ops_gen.h"
#include "ops/activation/formulas.h"

namespace ek::EK_CPU_NS {

static ek_status gelu_cpu(const GeluArgs& a, const Launch&) {
  if (a.form == EK_GELU_FORM_ERF) return map_unary(a.T, a.lead, a.dim, a.x, a.y, GeluErf<Math>());
  return map_unary(a.T, a.lead, a.dim, a.x, a.y, GeluTanh<Math>());
}

const Kernel<GeluArgs> kGeluCpu[] = {{EK_CPU_ROW("gelu_cpu"), kCpuTarget, nullptr, gelu_cpu}, {}};

}  // namespace ek::EK_CPU_NS
