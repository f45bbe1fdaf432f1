// SPDX-License-Identifier: Apache-2.0
// swiglu_quant on the CPU: silu(gate) * up, never rounded to T, to e4m3 or i8 with a scale for each row or group.
#include "cpu/quantize.h"
#include "ops/activation/gate_cpu.h"

namespace ek::EK_CPU_NS {

template <class T, class Q>
static void swiglu_quant_rows(const SwigluQuantArgs& a) {
  for_rows(rows_of<4>(a.lead, {&a.x, &a.up, &a.y, &a.scale}), a.dim, [&](const int64_t* at, int64_t) {
    const GateRow<const T> row = {data_of<const T>(a.x) + at[0], data_of<const T>(a.up) + at[1], a.layout, a.dim};
    const auto value = [&](int64_t column, int64_t n, float* v) {
      float up[kTile];
      row.read(column, n, v, up);
      for (int64_t i = 0; i < padded(n); ++i) v[i] = Gate<Silu<Math>>()(v[i], up[i]);
    };
    quantize_row(a.dim, a.group, value, data_of<Q>(a.y) + at[2], data_of<float>(a.scale) + at[3],
                 a.scale.stride[a.lead]);
  });
}

static ek_status swiglu_quant_cpu(const SwigluQuantArgs& a, const Launch&) {
  with_float(a.T, [&](auto from) {
    with_quant(a.Q, [&](auto to) { swiglu_quant_rows<typename decltype(from)::type, typename decltype(to)::type>(a); });
  });
  return EK_STATUS_OK;
}

const Kernel<SwigluQuantArgs> kSwigluQuantCpu[] = {
    {EK_CPU_ROW("swiglu_quant_cpu"), kCpuTarget, nullptr, swiglu_quant_cpu}, {}};

}  // namespace ek::EK_CPU_NS
