// SPDX-License-Identifier: Apache-2.0
// tau_scale on the CPU: a factor tanh(tok) + table[pos] for each token and head of q and v, in place.
#include "cpu/math.h"
#include "cpu/rows.h"
#include "dispatch/ops_gen.h"

namespace ek::EK_CPU_NS {
namespace {

// x [..., heads, dim] times tanh(tok [..., heads]) + table[pos [...], heads].
template <class T, class P>
void scale_heads(const TauScaleArgs& a, const Tensor& tok, const Tensor& table, const Tensor& x, int64_t heads,
                 int64_t dim) {
  const Tensor* const tensors[3] = {&x, &tok, &a.pos};
  for_rows(rows_of(a.lead, tensors), heads * dim, [&](const int64_t (&at)[3], int64_t) {
    const int64_t position = static_cast<int64_t>(data_of<const P>(a.pos)[at[2]]);
    const float* line = data_of<const float>(table) + position * table.stride[0];
    for (int64_t h = 0; h < heads; ++h) {
      const float factor =
          Math::tanh(to_f32(data_of<const T>(tok)[at[1] + h * tok.stride[a.lead]])) + line[h * table.stride[1]];
      T* row = data_of<T>(x) + at[0] + h * x.stride[a.lead];
      each_tile(dim, [&](int64_t column, int64_t n) {
        float v[kTile];
        load(row + column, n, v);
        for (int64_t i = 0; i < padded(n); ++i) v[i] *= factor;
        store(v, n, row + column);
      });
    }
  });
}

template <class P>
ek_status run(const TauScaleArgs& a) {
  with_float(a.T, [&](auto type) {
    using T = typename decltype(type)::type;
    scale_heads<T, P>(a, a.tok_q, a.table_q, a.q, a.heads, a.head_dim);
    scale_heads<T, P>(a, a.tok_v, a.table_v, a.v, a.kv_heads, a.v_dim);
  });
  return EK_STATUS_OK;
}

ek_status tau_scale_cpu(const TauScaleArgs& a, const Launch&) {
  return a.P == EK_DTYPE_I32 ? run<int32_t>(a) : run<int64_t>(a);
}

}  // namespace

const Kernel<TauScaleArgs> kTauScaleCpu[] = {
    {EK_CPU_ROW("tau_scale_cpu"), kCpuTarget, nullptr, tau_scale_cpu},
    {},
};

}  // namespace ek::EK_CPU_NS
