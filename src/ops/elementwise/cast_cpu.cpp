// SPDX-License-Identifier: Apache-2.0
// cast on the CPU: y = x in another dtype, by way of f32, which holds every value of the three.
#include "cpu/rows.h"
#include "dispatch/ops_gen.h"

namespace ek::EK_CPU_NS {

template <class S, class D>
static void cast_rows(const CastArgs& a) {
  for_elements<2>(a.lead, {&a.x, &a.y}, a.dim, [&](const int64_t* at, int64_t column, int64_t n) {
    float v[kTile];
    load(data_of<const S>(a.x) + at[0] + column, n, v);
    store(v, n, data_of<D>(a.y) + at[1] + column);
  });
}

static ek_status cast_cpu(const CastArgs& a, const Launch&) {
  with_float(a.S, [&](auto from) {
    with_float(a.D, [&](auto to) { cast_rows<typename decltype(from)::type, typename decltype(to)::type>(a); });
  });
  return EK_STATUS_OK;
}

const Kernel<CastArgs> kCastCpu[] = {{EK_CPU_ROW("cast_cpu"), kCpuTarget, nullptr, cast_cpu}, {}};

}  // namespace ek::EK_CPU_NS
