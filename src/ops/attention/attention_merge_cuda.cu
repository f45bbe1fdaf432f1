// SPDX-License-Identifier: Apache-2.0
// attention_merge on CUDA: a warp for each row. Weights exp(lse - largest) are found again for every 32 columns: there are
// few states, and their lse is in L1 by then. A state whose lse is -inf is not read. f32.
#include "cuda/pdl.cuh"
#include "cuda/reduce.cuh"
#include "cuda/vec.cuh"
#include "dispatch/ops_gen.h"

namespace ek {

namespace {

constexpr int kWarps = 4;

struct MaxOf {
  __device__ __forceinline__ float operator()(float a, float b) const { return a > b ? a : b; }
};

// rows: of y, x, lse, lse_out.
template <class T, class D>
__global__ void __launch_bounds__(kWarps * 32)
    merge_kernel(const __grid_constant__ AttentionMergeArgs a, const __grid_constant__ Rows<4> rows) {
  pdl_wait();
  pdl_launch();
  const int lane = threadIdx.x % 32;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kWarps, lse_step = a.lse.stride[a.lead];
  for (int64_t row = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32; row < a.rows; row += step) {
    int64_t at[4];
    rows.offsets(row, at);
    const T* x = static_cast<const T*>(a.x.data) + at[1];
    const float* lse = static_cast<const float*>(a.lse.data) + at[2];
    // The largest lse, and the sum of all weights
    float most = -INFINITY, total = 0.f;
    for (int64_t s = lane; s < a.states; s += 32) most = MaxOf()(lse[s * lse_step], most);
    most = warp_reduce(most, MaxOf());
    const float base = most == -INFINITY ? 0.f : most;
    for (int64_t s = lane; s < a.states; s += 32) total += expf(lse[s * lse_step] - base);
    total = warp_reduce(total, Sum());
    const float inverse = total == 0.f ? 0.f : 1.f / total;
    // The weighted sum, 32 columns at a time
    for (int64_t d = lane; d < a.dim; d += 32) {
      float y = 0.f;
      for (int64_t s = 0; s < a.states; ++s) {
        const float value = lse[s * lse_step];
        if (value != -INFINITY) y = fmaf(expf(value - base) * inverse, to_float(x[s * a.x.stride[a.lead] + d]), y);
      }
      (static_cast<D*>(a.y.data) + at[0])[d] = from_float<D>(y);
    }
    if (a.lse_out.data && lane == 0)
      static_cast<float*>(a.lse_out.data)[at[3]] = total == 0.f ? -INFINITY : most + logf(total);
  }
}

ek_status attention_merge_cuda(const AttentionMergeArgs& a, const Launch& l) {
  const Rows<4> rows = make_rows<4>(a.lead, {&a.y, &a.x, &a.lse, &a.lse_out});
  const Grid grid = {grid_blocks(a.rows, kWarps), kWarps * 32};
  return with_float(a.D, [&](auto out) {
    using D = typename decltype(out)::type;
    if (a.T == EK_DTYPE_F32) return launch(l, merge_kernel<float, D>, grid, a, rows);
    return launch(l, merge_kernel<D, D>, grid, a, rows);
  });
}

}  // namespace

const Kernel<AttentionMergeArgs> kAttentionMergeCuda[] = {
    {"attention_merge_cuda", sm(75), nullptr, attention_merge_cuda},
    {},
};

}  // namespace ek
