// SPDX-License-Identifier: Apache-2.0
// swiglu on the CPU: y = silu(gate) * up.
#include "ops/activation/gate_cpu.h"

namespace ek::EK_CPU_NS {

static ek_status swiglu_cpu(const SwigluArgs& a, const Launch&) { return gate_forward(a, Gate<Silu<Math>>()); }

const Kernel<SwigluArgs> kSwigluCpu[] = {{EK_CPU_ROW("swiglu_cpu"), kCpuTarget, nullptr, swiglu_cpu}, {}};

}  // namespace ek::EK_CPU_NS
