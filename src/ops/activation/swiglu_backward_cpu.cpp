// SPDX-License-Identifier: Apache-2.0
// swiglu_backward on the CPU: gradients of silu(gate) * up.
#include "ops/activation/gate_cpu.h"

namespace ek::EK_CPU_NS {

static ek_status swiglu_backward_cpu(const SwigluBackwardArgs& a, const Launch&) {
  return gate_backward(a, Gate<Silu<Math>>());
}

const Kernel<SwigluBackwardArgs> kSwigluBackwardCpu[] = {
    {EK_CPU_ROW("swiglu_backward_cpu"), kCpuTarget, nullptr, swiglu_backward_cpu}, {}};

}  // namespace ek::EK_CPU_NS
