// SPDX-License-Identifier: Apache-2.0
// mul on the CPU: y = a * b.
#include "cpu/map.h"
#include "dispatch/ops_gen.h"

namespace ek::EK_CPU_NS {

static ek_status mul_cpu(const MulArgs& a, const Launch&) {
  return map_binary(a.T, a.lead, a.dim, a.a, a.b, a.y, [](float x, float y) { return x * y; });
}

const Kernel<MulArgs> kMulCpu[] = {{EK_CPU_ROW("mul_cpu"), kCpuTarget, nullptr, mul_cpu}, {}};

}  // namespace ek::EK_CPU_NS
