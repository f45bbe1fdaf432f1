// SPDX-License-Identifier: Apache-2.0
// silu on the CPU: y = x * sigmoid(x).
#include "cpu/map.h"
#include "cpu/math.h"
#include "dispatch/ops_gen.h"
#include "ops/activation/formulas.h"

namespace ek::EK_CPU_NS {

static ek_status silu_cpu(const SiluArgs& a, const Launch&) {
  return map_unary(a.T, a.lead, a.dim, a.x, a.y, Silu<Math>());
}

const Kernel<SiluArgs> kSiluCpu[] = {{EK_CPU_ROW("silu_cpu"), kCpuTarget, nullptr, silu_cpu}, {}};

}  // namespace ek::EK_CPU_NS
