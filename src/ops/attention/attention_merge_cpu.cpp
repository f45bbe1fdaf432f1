// SPDX-License-Identifier: Apache-2.0
// attention_merge on the CPU: weights exp(lse - largest) of a row's states, then their sum over x, in order, f32. A state
// whose lse is -inf is not read: what it never wrote may be NaN.
#include "cpu/math.h"
#include "cpu/rows.h"
#include "dispatch/ops_gen.h"

namespace ek::EK_CPU_NS {
namespace {

// One row: x [states, dim] and lse [states] with their steps.
template <class T, class D>
void merge_row(const T* x, int64_t x_step, const float* lse, int64_t lse_step, int64_t states, int64_t dim, D* y,
               float* lse_out) {
  const float infinity = __builtin_inff();
  float most = -infinity, total = 0.f;
  for (int64_t s = 0; s < states; ++s) most = lse[s * lse_step] > most ? lse[s * lse_step] : most;
  const float base = most == -infinity ? 0.f : most;
  for (int64_t s = 0; s < states; ++s) total += Math::exp(lse[s * lse_step] - base);
  each_tile(dim, [&](int64_t column, int64_t n) {
    float v[kTile] = {}, w[kTile];
    for (int64_t s = 0; s < states; ++s) {
      const float weight = Math::exp(lse[s * lse_step] - base) / total;
      if (lse[s * lse_step] == -infinity) continue;
      load(x + s * x_step + column, n, w);
      for (int64_t i = 0; i < padded(n); ++i) v[i] += weight * w[i];
    }
    store(v, n, y + column);
  });
  if (lse_out) *lse_out = total == 0.f ? -infinity : most + __builtin_logf(total);
}

ek_status attention_merge_cpu(const AttentionMergeArgs& a, const Launch&) {
  const auto run = [&](auto in, auto out) {
    using T = typename decltype(in)::type;
    using D = typename decltype(out)::type;
    const Tensor* const tensors[4] = {&a.y, &a.x, &a.lse, &a.lse_out};
    for_rows(rows_of(a.lead, tensors), a.states * a.dim, [&](const int64_t (&at)[4], int64_t) {
      merge_row(data_of<const T>(a.x) + at[1], a.x.stride[a.lead], data_of<const float>(a.lse) + at[2],
                a.lse.stride[a.lead], a.states, a.dim, data_of<D>(a.y) + at[0],
                a.lse_out ? data_of<float>(a.lse_out) + at[3] : nullptr);
    });
  };
  with_float(a.T, [&](auto in) {
    if (a.T == a.D) return run(in, in);
    with_float(a.D, [&](auto out) { run(Type<f32>(), out); });
  });
  return EK_STATUS_OK;
}

}  // namespace

const Kernel<AttentionMergeArgs> kAttentionMergeCpu[] = {
    {EK_CPU_ROW("attention_merge_cpu"), kCpuTarget, nullptr, attention_merge_cpu},
    {},
};

}  // namespace ek::EK_CPU_NS
