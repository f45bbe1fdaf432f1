// SPDX-License-Identifier: Apache-2.0
// softcap on the CPU: y = cap * tanh(x / cap).
#include "cpu/map.h"
#include "cpu/math.h"
#include "dispatch/ops_gen.h"

namespace ek::EK_CPU_NS {

static ek_status softcap_cpu(const SoftcapArgs& a, const Launch&) {
  const float cap = a.cap;
  return map_unary(a.T, a.lead, a.dim, a.x, a.y, [=](float x) { return cap * Math::tanh(x / cap); });
}

const Kernel<SoftcapArgs> kSoftcapCpu[] = {{EK_CPU_ROW("softcap_cpu"), kCpuTarget, nullptr, softcap_cpu}, {}};

}  // namespace ek::EK_CPU_NS
