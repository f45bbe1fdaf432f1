// SPDX-License-Identifier: Apache-2.0
// gelu_backward on the CPU: dx = dy * gelu'(x).
#include "cpu/map.h"
#include "cpu/math.h"
#include "dispatch/ops_gen.h"
#include "ops/activation/formulas.h"

namespace ek::EK_CPU_NS {

static ek_status gelu_backward_cpu(const GeluBackwardArgs& a, const Launch&) {
  if (a.form == EK_GELU_FORM_ERF)
    return map_binary(a.T, a.lead, a.dim, a.dy, a.x, a.dx, UnaryBackward<GeluErf<Math>>());
  return map_binary(a.T, a.lead, a.dim, a.dy, a.x, a.dx, UnaryBackward<GeluTanh<Math>>());
}

const Kernel<GeluBackwardArgs> kGeluBackwardCpu[] = {
    {EK_CPU_ROW("gelu_backward_cpu"), kCpuTarget, nullptr, gelu_backward_cpu}, {}};

}  // namespace ek::EK_CPU_NS
