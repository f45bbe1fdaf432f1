// SPDX-License-Identifier: Apache-2.0
// relu on the CPU: y = max(x, 0).
#include "cpu/map.h"
#include "cpu/math.h"
#include "dispatch/ops_gen.h"
#include "ops/activation/formulas.h"

namespace ek::EK_CPU_NS {

static ek_status relu_cpu(const ReluArgs& a, const Launch&) {
  return map_unary(a.T, a.lead, a.dim, a.x, a.y, Relu<Math>());
}

const Kernel<ReluArgs> kReluCpu[] = {{EK_CPU_ROW("relu_cpu"), kCpuTarget, nullptr, relu_cpu}, {}};

}  // namespace ek::EK_CPU_NS
