// SPDX-License-Identifier: Apache-2.0
// relu2 on the CPU: y = max(x, 0)^2.
#include "cpu/map.h"
#include "cpu/math.h"
#include "dispatch/ops_gen.h"
#include "ops/activation/formulas.h"

namespace ek::EK_CPU_NS {

static ek_status relu2_cpu(const Relu2Args& a, const Launch&) {
  return map_unary(a.T, a.lead, a.dim, a.x, a.y, Relu2<Math>());
}

const Kernel<Relu2Args> kRelu2Cpu[] = {{EK_CPU_ROW("relu2_cpu"), kCpuTarget, nullptr, relu2_cpu}, {}};

}  // namespace ek::EK_CPU_NS
