// SPDX-License-Identifier: Apache-2.0
// tau_scale on CUDA: a warp for each token and head, first the heads of q, then those of v; in place, f32.
#include "cuda/math.cuh"
#include "cuda/pdl.cuh"
#include "cuda/vec.cuh"
#include "dispatch/ops_gen.h"

namespace ek {

namespace {

constexpr int kWarps = 4;

// rows: of q, v, tok_q, tok_v, pos.
template <class T, class P>
__global__ void __launch_bounds__(kWarps * 32)
    tau_kernel(const __grid_constant__ TauScaleArgs a, const __grid_constant__ Rows<5> rows) {
  pdl_wait();
  pdl_launch();
  const int lane = threadIdx.x % 32;
  const int64_t all = a.heads + a.kv_heads, count = a.rows * all, step = static_cast<int64_t>(gridDim.x) * kWarps;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32; i < count; i += step) {
    const int64_t row = row_quotient(i, all);
    int64_t head = i - row * all, at[5];
    rows.offsets(row, at);
    const bool is_v = head >= a.heads;
    if (is_v) head -= a.heads;
    const Tensor &tok = is_v ? a.tok_v : a.tok_q, &table = is_v ? a.table_v : a.table_q, &x = is_v ? a.v : a.q;
    const int64_t position = static_cast<int64_t>(static_cast<const P*>(a.pos.data)[at[4]]);
    const float factor = CudaMathFor<T>::tanh(to_float(
                             static_cast<const T*>(tok.data)[(is_v ? at[3] : at[2]) + head * tok.stride[a.lead]])) +
                         static_cast<const float*>(table.data)[position * table.stride[0] + head * table.stride[1]];
    T* to = static_cast<T*>(x.data) + (is_v ? at[1] : at[0]) + head * x.stride[a.lead];
    const int64_t dim = is_v ? a.v_dim : a.head_dim;
    for (int64_t d = lane; d < dim; d += 32) to[d] = from_float<T>(to_float(to[d]) * factor);
  }
}

ek_status tau_scale_cuda(const TauScaleArgs& a, const Launch& l) {
  const Rows<5> rows = make_rows<5>(a.lead, {&a.q, &a.v, &a.tok_q, &a.tok_v, &a.pos});
  const Grid grid = {grid_blocks(a.rows * (a.heads + a.kv_heads), kWarps), kWarps * 32};
  return with_float(a.T, [&](auto type) {
    using T = typename decltype(type)::type;
    if (a.P == EK_DTYPE_I32) return launch(l, tau_kernel<T, int32_t>, grid, a, rows);
    return launch(l, tau_kernel<T, int64_t>, grid, a, rows);
  });
}

}  // namespace

const Kernel<TauScaleArgs> kTauScaleCuda[] = {
    {"tau_scale_cuda", sm(75), nullptr, tau_scale_cuda},
    {},
};

}  // namespace ek
