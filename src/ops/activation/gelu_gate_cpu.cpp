// SPDX-License-Identifier: Apache-2.0
// gelu_gate on the CPU: y = gelu(gate) * (up + 1).
#include "ops/activation/gate_cpu.h"

namespace ek::EK_CPU_NS {

static ek_status gelu_gate_cpu(const GeluGateArgs& a, const Launch&) {
  if (a.form == EK_GELU_FORM_ERF) return gate_forward(a, GatePlusOne<GeluErf<Math>>());
  return gate_forward(a, GatePlusOne<GeluTanh<Math>>());
}

const Kernel<GeluGateArgs> kGeluGateCpu[] = {{EK_CPU_ROW("gelu_gate_cpu"), kCpuTarget, nullptr, gelu_gate_cpu}, {}};

}  // namespace ek::EK_CPU_NS
