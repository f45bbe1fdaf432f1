// SPDX-License-Identifier: Apache-2.0
// mlp on the CPU: two products one after the other, the hidden layer between them rounded to T in the workspace.
#include "ops/gemm/gemm_cpu.h"

namespace ek::EK_CPU_NS {

__attribute__((flatten)) static size_t mlp_workspace(const MlpArgs& a, const Device&) { return mlp_hidden_bytes(a); }
__attribute__((flatten)) static GemmCall first(const MlpArgs& a, void* hidden) { return mlp_first_call(a, hidden); }
__attribute__((flatten)) static GemmCall second(const MlpArgs& a, void* hidden) { return mlp_second_call(a, hidden); }

static ek_status mlp_cpu(const MlpArgs& a, const Launch& l) {
  if (const ek_status status = gemm_run_cpu(first(a, l.workspace))) return status;
  return gemm_run_cpu(second(a, l.workspace));
}

const Kernel<MlpArgs> kMlpCpu[] = {{EK_CPU_ROW("mlp_cpu"), kCpuTarget, nullptr, mlp_cpu, mlp_workspace}, {}};

}  // namespace ek::EK_CPU_NS
