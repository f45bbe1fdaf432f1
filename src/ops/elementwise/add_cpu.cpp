// SPDX-License-Identifier: Apache-2.0
// add on the CPU: y = a + b.
#include "cpu/map.h"
#include "dispatch/ops_gen.h"

namespace ek::EK_CPU_NS {

static ek_status add_cpu(const AddArgs& a, const Launch&) {
  return map_binary(a.T, a.lead, a.dim, a.a, a.b, a.y, [](float x, float y) { return x + y; });
}

const Kernel<AddArgs> kAddCpu[] = {{EK_CPU_ROW("add_cpu"), kCpuTarget, nullptr, add_cpu}, {}};

}  // namespace ek::EK_CPU_NS
