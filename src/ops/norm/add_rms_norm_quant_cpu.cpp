// SPDX-License-Identifier: Apache-2.0
// add_rms_norm_quant on the CPU: residual = T(residual + x); the values of rms_norm(residual), never rounded to T, to
// e4m3 or i8 with a scale per row or group.
#include "cpu/quantize.h"
#include "dispatch/ops_gen.h"
#include "ops/norm/norm_cpu.h"

namespace ek::EK_CPU_NS {

template <class T, class Q>
static void add_rms_norm_quant_rows(const AddRmsNormQuantArgs& a) {
  for_rows(rows_of<4>(a.lead, {&a.x, &a.residual, &a.y, &a.scale}), a.dim, [&](const int64_t* at, int64_t) {
    T* residual = data_of<T>(a.residual) + at[1];
    const double squares = add_to_residual_sum_squares(data_of<const T>(a.x) + at[0], residual, a.dim);
    const float rstd = rstd_of(squares, a.dim, a.eps);
    quantize_row(a.dim, a.group, RmsRow<T>{residual, data_of<const T>(a.weight), rstd, a.weight_offset},
                 data_of<Q>(a.y) + at[2], data_of<float>(a.scale) + at[3], a.scale.stride[a.lead]);
  });
}

static ek_status add_rms_norm_quant_cpu(const AddRmsNormQuantArgs& a, const Launch&) {
  with_float(a.T, [&](auto from) {
    with_quant(
        a.Q, [&](auto to) { add_rms_norm_quant_rows<typename decltype(from)::type, typename decltype(to)::type>(a); });
  });
  return EK_STATUS_OK;
}

const Kernel<AddRmsNormQuantArgs> kAddRmsNormQuantCpu[] = {
    {EK_CPU_ROW("add_rms_norm_quant_cpu"), kCpuTarget, nullptr, add_rms_norm_quant_cpu}, {}};

}  // namespace ek::EK_CPU_NS
