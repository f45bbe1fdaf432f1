// SPDX-License-Identifier: Apache-2.0
// attention_merge on CUDA, in f32. What a state holds whose lse is -inf does not count, be it NaN.
// _vec: a thread for 16 bytes of x, which finds the weights exp(lse - largest) itself: the loads of a state's lse and x are on the
// way together, as one is not needed to ask for the other. The other row takes any alignment: a warp for each row.
#include "cuda/pdl.cuh"
#include "cuda/reduce.cuh"
#include "cuda/rows.cuh"
#include "cuda/vec.cuh"
#include "dispatch/ops_gen.h"

namespace ek {

namespace {

constexpr int kWarps = 4, kThreads = 256;

struct MaxOf {
  __device__ __forceinline__ float operator()(float a, float b) const { return a > b ? a : b; }
};

// ---- vectors ----------------------------------------------------------------------------------------------------------

template <class T, class D>
struct MergeParams {
  const T* x;
  const float* lse;
  D* y;
  float* lse_out;  // or null
  int64_t states, x_step, lse_step;
  RowItems<4> items;  // vectors; rows of x, lse, y, lse_out
};

// kTogether states at once. sum: the mean of the states so far, which is no larger than they are; total: of their weights,
// relative to exp(most), the largest lse so far.
template <class T, class D, int kTogether>
__global__ void __launch_bounds__(kThreads) merge_vec_kernel(const __grid_constant__ MergeParams<T, D> p) {
  constexpr int V = kVec<T>;
  const uint32_t item = blockIdx.x * kThreads + threadIdx.x;
  pdl_wait();
  pdl_launch();
  if (item >= p.items.count) return;
  int64_t at[4];
  const int64_t vector = p.items.locate(item, at);
  const T* x = p.x + at[0] + vector * V;
  const float* lse = p.lse + at[1];

  float sum[V] = {}, most = -INFINITY, total = 0.f;
  for (int64_t first = 0; first < p.states; first += kTogether) {
    float weight[kTogether];
    Vec<uint32_t, 4> raw[kTogether];
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      const bool there = first + i < p.states;
      weight[i] = there ? lse[(first + i) * p.lse_step] : -INFINITY;
      raw[i] = {};
      if (there) raw[i] = load_vec<uint32_t, 4>(reinterpret_cast<const uint32_t*>(x + (first + i) * p.x_step));
    }
    const float before = most;
#pragma unroll
    for (int i = 0; i < kTogether; ++i) most = MaxOf()(weight[i], most);
    const float base = most == -INFINITY ? 0.f : most, scale = before == -INFINITY ? 0.f : expf(before - base);
    const float kept = total * scale;
    total = kept;
    bool counts[kTogether];
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      counts[i] = weight[i] != -INFINITY;
      weight[i] = expf(weight[i] - base);
      total += weight[i];
    }
    const float inverse = total == 0.f ? 0.f : 1.f / total, keep = kept * inverse;
#pragma unroll
    for (int j = 0; j < V; ++j) sum[j] *= keep;
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      float f[V];
      unpack(*reinterpret_cast<const Vec<T, V>*>(&raw[i]), f);
#pragma unroll
      for (int j = 0; j < V; ++j) sum[j] = fmaf(weight[i] * inverse, counts[i] ? f[j] : 0.f, sum[j]);
    }
  }
  store_vec(p.y + at[2] + vector * V, pack<D, V>(sum));
  if (p.lse_out && p.items.first + vector == 0) p.lse_out[at[3]] = total == 0.f ? -INFINITY : most + logf(total);
}

const char* why_not_vec(const AttentionMergeArgs& a, const Device&) {
  const int vector = 16 / dtype_bytes(a.T);
  if (a.dim == 0) return "dim is 0";
  if (a.dim % vector || !rows_aligned(a.x, a.lead + 1, 16)) return "rows of x are not multiples of 16 bytes";
  if (!rows_aligned(a.y, a.lead, vector * dtype_bytes(a.D))) return "a row of y does not start where a vector may";
  return nullptr;
}

template <class T, class D>
ek_status merge_vec(const AttentionMergeArgs& a, const Launch& l) {
  constexpr int V = kVec<T>;
  const Rows<4> rows = make_rows<4>(a.lead, {&a.x, &a.lse, &a.y, &a.lse_out});
  const int64_t step[4] = {V, 0, V, 0};
  return for_each_slab(rows, a.dim / V, step, [&](const RowItems<4>& items, const int64_t (&at)[4]) {
    MergeParams<T, D> p;
    p.x = a.x.ptr<const T>() + at[0];
    p.lse = a.lse.ptr<const float>() + at[1];
    p.y = a.y.ptr<D>() + at[2];
    p.lse_out = a.lse_out ? a.lse_out.ptr<float>() + at[3] : nullptr;
    p.states = a.states;
    p.x_step = a.x.stride[a.lead];
    p.lse_step = a.lse.stride[a.lead];
    p.items = items;
    const Grid grid = {grid_blocks(items.count, kThreads), kThreads};
    return a.states <= 2 ? launch(l, merge_vec_kernel<T, D, 2>, grid, p)
                         : launch(l, merge_vec_kernel<T, D, 8>, grid, p);
  });
}

ek_status attention_merge_cuda_vec(const AttentionMergeArgs& a, const Launch& l) {
  return with_float(a.D, [&](auto out) {
    using D = typename decltype(out)::type;
    return a.T == EK_DTYPE_F32 ? merge_vec<float, D>(a, l) : merge_vec<D, D>(a, l);
  });
}

// ---- any alignment ----------------------------------------------------------------------------------------------------

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
    // The weighted sum, 32 columns at a time; weights are found again for each
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
    {"attention_merge_cuda_vec", sm(75), why_not_vec, attention_merge_cuda_vec},
    {"attention_merge_cuda", sm(75), nullptr, attention_merge_cuda},
    {},
};

}  // namespace ek
