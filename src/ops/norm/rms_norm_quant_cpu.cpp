// SPDX-License-Identifier: Apache-2.0
// rms_norm_quant on the CPU: the values of rms_norm, never rounded to T, to e4m3 or i8 with a scale per row or group.
#include "cpu/quantize.h"
#include "dispatch/ops_gen.h"
#include "ops/norm/norm_cpu.h"

namespace ek::EK_CPU_NS {

template <class T, class Q>
static void rms_norm_quant_rows(const RmsNormQuantArgs& a) {
  for_rows(rows_of<3>(a.lead, {&a.x, &a.y, &a.scale}), a.dim, [&](const int64_t* at, int64_t) {
    const T* x = data_of<const T>(a.x) + at[0];
    const float rstd = rstd_of(sum_squares(x, a.dim), a.dim, a.eps);
    quantize_row(a.dim, a.group, RmsRow<T>{x, data_of<const T>(a.weight), rstd, a.weight_offset},
                 data_of<Q>(a.y) + at[1], data_of<float>(a.scale) + at[2], a.scale.stride[a.lead]);
  });
}

static ek_status rms_norm_quant_cpu(const RmsNormQuantArgs& a, const Launch&) {
  with_float(a.T, [&](auto from) {
    with_quant(a.Q,
               [&](auto to) { rms_norm_quant_rows<typename decltype(from)::type, typename decltype(to)::type>(a); });
  });
  return EK_STATUS_OK;
}

const Kernel<RmsNormQuantArgs> kRmsNormQuantCpu[] = {
    {EK_CPU_ROW("rms_norm_quant_cpu"), kCpuTarget, nullptr, rms_norm_quant_cpu}, {}};

}  // namespace ek::EK_CPU_NS
