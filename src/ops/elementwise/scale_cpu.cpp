// SPDX-License-Identifier: Apache-2.0
// scale on the CPU: y = (alpha * by) * x.
#include "cpu/map.h"
#include "dispatch/ops_gen.h"

namespace ek::EK_CPU_NS {

static ek_status scale_cpu(const ScaleArgs& a, const Launch&) {
  const float factor = a.by.data ? a.alpha * *data_of<const float>(a.by) : a.alpha;
  return map_unary(a.T, a.lead, a.dim, a.x, a.y, [=](float x) { return factor * x; });
}

const Kernel<ScaleArgs> kScaleCpu[] = {{EK_CPU_ROW("scale_cpu"), kCpuTarget, nullptr, scale_cpu}, {}};

}  // namespace ek::EK_CPU_NS
