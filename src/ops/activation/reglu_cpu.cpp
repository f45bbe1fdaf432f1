// SPDX-License-Identifier: Apache-2.0
// reglu on the CPU: y = relu(gate) * up.
#include "ops/activation/gate_cpu.h"

namespace ek::EK_CPU_NS {

static ek_status reglu_cpu(const RegluArgs& a, const Launch&) { return gate_forward(a, Gate<Relu<Math>>()); }

const Kernel<RegluArgs> kRegluCpu[] = {{EK_CPU_ROW("reglu_cpu"), kCpuTarget, nullptr, reglu_cpu}, {}};

}  // namespace ek::EK_CPU_NS
