// SPDX-License-Identifier: Apache-2.0
// silu_backward on the CPU: dx = dy * silu'(x).
#include "cpu/map.h"
#include "cpu/math.h"
#include "dispatch/ops_gen.h"
#include "ops/activation/formulas.h"

namespace ek::EK_CPU_NS {

static ek_status silu_backward_cpu(const SiluBackwardArgs& a, const Launch&) {
  return map_binary(a.T, a.lead, a.dim, a.dy, a.x, a.dx, UnaryBackward<Silu<Math>>());
}

const Kernel<SiluBackwardArgs> kSiluBackwardCpu[] = {
    {EK_CPU_ROW("silu_backward_cpu"), kCpuTarget, nullptr, silu_backward_cpu}, {}};

}  // namespace ek::EK_CPU_NS
