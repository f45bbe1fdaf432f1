// SPDX-License-Identifier: Apache-2.0
// geglu_backward on the CPU: gradients of gelu(gate) * up.
#include "ops/activation/gate_cpu.h"

namespace ek::EK_CPU_NS {

static ek_status geglu_backward_cpu(const GegluBackwardArgs& a, const Launch&) {
  if (a.form == EK_GELU_FORM_ERF) return gate_backward(a, Gate<GeluErf<Math>>());
  return gate_backward(a, Gate<GeluTanh<Math>>());
}

const Kernel<GegluBackwardArgs> kGegluBackwardCpu[] = {
    {EK_CPU_ROW("geglu_backward_cpu"), kCpuTarget, nullptr, geglu_backward_cpu}, {}};

}  // namespace ek::EK_CPU_NS
