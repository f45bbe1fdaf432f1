// SPDX-License-Identifier: Apache-2.0
// geglu on the CPU: y = gelu(gate) * up.
#include "ops/activation/gate_cpu.h"

namespace ek::EK_CPU_NS {

static ek_status geglu_cpu(const GegluArgs& a, const Launch&) {
  if (a.form == EK_GELU_FORM_ERF) return gate_forward(a, Gate<GeluErf<Math>>());
  return gate_forward(a, Gate<GeluTanh<Math>>());
}

const Kernel<GegluArgs> kGegluCpu[] = {{EK_CPU_ROW("geglu_cpu"), kCpuTarget, nullptr, geglu_cpu}, {}};

}  // namespace ek::EK_CPU_NS
