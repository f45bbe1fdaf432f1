// SPDX-License-Identifier: Apache-2.0
// swiglu_clamped on the CPU: y = g * sigmoid(alpha * g) * (u + 1), g and u limited.
#include "ops/activation/gate_cpu.h"

namespace ek::EK_CPU_NS {

static ek_status swiglu_clamped_cpu(const SwigluClampedArgs& a, const Launch&) {
  return gate_forward(a, SwigluClamped<Math>{a.alpha, a.limit});
}

const Kernel<SwigluClampedArgs> kSwigluClampedCpu[] = {
    {EK_CPU_ROW("swiglu_clamped_cpu"), kCpuTarget, nullptr, swiglu_clamped_cpu}, {}};

}  // namespace ek::EK_CPU_NS
