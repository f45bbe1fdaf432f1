// SPDX-License-Identifier: Apache-2.0
// Attention on CUDA cores, for every legal call: a block for each token and head. Its warps take turns at batches of four
// keys, lanes side by side along a head, each warp with an online softmax of its own; then the warps' states are merged.
// f32 throughout, any strides. A query's bits depend on its own keys alone. Nothing is shared between the heads of a
// group, so this reads K and V as often as there are heads: the rows with tiles are the fast ones.
#pragma once

#include "cuda/pdl.cuh"
#include "cuda/reduce.cuh"
#include "cuda/vec.cuh"
#include "ops/attention/attention_call.h"

namespace ek {

constexpr int kAttentionWarps = 4, kAttentionKeys = 4;  // keys of a warp's step: their loads overlap
constexpr int kAttentionMostDim = 1024;

__device__ __forceinline__ float kv_float(float x) { return x; }
__device__ __forceinline__ float kv_float(half x) { return to_float(x); }
__device__ __forceinline__ float kv_float(bf16 x) { return to_float(x); }
__device__ __forceinline__ float kv_float(e4m3 x) { return static_cast<float>(x); }
__device__ __forceinline__ float kv_float(int8_t x) { return static_cast<float>(x); }

// An element of q or y, whose dtype is known at run time only: a template axis less.
__device__ __forceinline__ float load_float(const void* data, int64_t at, ek_dtype dtype) {
  if (dtype == EK_DTYPE_F32) return static_cast<const float*>(data)[at];
  if (dtype == EK_DTYPE_F16) return to_float(static_cast<const half*>(data)[at]);
  return to_float(static_cast<const bf16*>(data)[at]);
}
__device__ __forceinline__ void store_float(void* data, int64_t at, ek_dtype dtype, float x) {
  if (dtype == EK_DTYPE_F32)
    static_cast<float*>(data)[at] = x;
  else if (dtype == EK_DTYPE_F16)
    static_cast<half*>(data)[at] = from_float<half>(x);
  else
    static_cast<bf16*>(data)[at] = from_float<bf16>(x);
}

// The sequence of a token; batch where none has it.
__device__ __forceinline__ int64_t sequence_of(const Sequences& s, int64_t batch, int64_t token) {
  if (!s.cu_q) return row_quotient(token, s.q_len);
  if (batch == 0 || token < s.cu_q[0] || token >= s.cu_q[batch]) return batch;
  int64_t low = 0, high = batch;  // cu_q[low] <= token < cu_q[high]
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    if (s.cu_q[middle] <= token)
      low = middle;
    else
      high = middle;
  }
  return low;
}

// kDims: elements of a head that a lane has, a 32nd of the most that head_dim and v_dim may be.
template <class K, int kDims>
__global__ void __launch_bounds__(kAttentionWarps * 32, 4)  // 128 registers: with fewer it spills
    attention_simt(const __grid_constant__ AttentionCall c, const __grid_constant__ Rows<3> rows) {
  __shared__ float states[kAttentionWarps][kDims * 32];
  __shared__ float maxima[kAttentionWarps], totals[kAttentionWarps];
  pdl_wait();
  pdl_launch();
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int head_dim = static_cast<int>(c.head_dim), v_dim = static_cast<int>(c.v_dim);
  const int64_t units = c.tokens * c.heads;

  for (int64_t unit = blockIdx.x; unit < units; unit += gridDim.x) {
    // The query, and the keys that it sees
    const int64_t token = row_quotient(unit, c.heads), head = unit - token * c.heads;
    const int64_t sequence = sequence_of(c.seqs, c.batch, token);
    if (sequence >= c.batch) continue;
    const int64_t kv_head = row_quotient(head * c.kv_heads, c.heads);
    const int64_t query = token - c.seqs.q_begin(sequence), q_len = c.seqs.q_count(sequence);
    const int64_t kv_len = c.seqs.kv_count(sequence), position = query + kv_len - q_len;
    const KeyRange keys = visible(c.mask, query, q_len, kv_len, c.seqs.prefix(sequence));
    const float slope = c.alibi ? c.alibi[head] : 0.f;
    float q[kDims], acc[kDims];
    const int64_t q_at = rows.offset(0, token) + head * c.q.stride[c.lead];
#pragma unroll
    for (int i = 0; i < kDims; ++i) {
      q[i] = lane + 32 * i < head_dim ? load_float(c.q.data, q_at + lane + 32 * i, c.T) : 0.f;
      acc[i] = 0.f;
    }
    float most = -INFINITY, total = 0.f;

    for (int64_t first = keys.begin + warp * kAttentionKeys; first < keys.end;
         first += kAttentionWarps * kAttentionKeys) {
      // Scores of the warp's keys; one that the query does not see is not read.
      float s[kAttentionKeys];
      int64_t v_at[kAttentionKeys];
      float v_scale[kAttentionKeys];
#pragma unroll
      for (int j = 0; j < kAttentionKeys; ++j) {
        s[j] = 0.f;
        v_at[j] = 0;
        v_scale[j] = 1.f;
        if (first + j >= keys.end) continue;
        const Sequences::Place at = c.seqs.place(sequence, first + j);
        const K* k = static_cast<const K*>(c.k.data) + at.page * c.k.page + at.slot * c.k.slot + kv_head * c.k.head;
#pragma unroll
        for (int i = 0; i < kDims; ++i)
          if (lane + 32 * i < head_dim) s[j] = fmaf(q[i], kv_float(k[lane + 32 * i]), s[j]);
        s[j] *= c.scale;
        if (c.k.scale)
          s[j] *= c.k.scale[at.page * c.k.scale_page + at.slot * c.k.scale_slot + kv_head * c.k.scale_head];
        v_at[j] = at.page * c.v.page + at.slot * c.v.slot + kv_head * c.v.head;
        if (c.v.scale)
          v_scale[j] = c.v.scale[at.page * c.v.scale_page + at.slot * c.v.scale_slot + kv_head * c.v.scale_head];
      }
      float batch_most = most;
#pragma unroll
      for (int j = 0; j < kAttentionKeys; ++j) {
        s[j] = warp_reduce(s[j], Sum());
        if (c.softcap > 0.f) s[j] = c.softcap * tanhf(s[j] / c.softcap);
        if (slope != 0.f) s[j] -= slope * fabsf(static_cast<float>(position - first - j));
        if (first + j >= keys.end) s[j] = -INFINITY;
        batch_most = s[j] > batch_most ? s[j] : batch_most;
      }

      // Softmax so far, and the sum of values
      const float base = finite_base(batch_most), keep = expf(most - base);
      most = batch_most;
      total *= keep;
#pragma unroll
      for (int i = 0; i < kDims; ++i) acc[i] *= keep;
#pragma unroll
      for (int j = 0; j < kAttentionKeys; ++j) {
        if (first + j >= keys.end) continue;
        const float p = expf(s[j] - base), scaled = p * v_scale[j];
        total += p;
        const K* v = static_cast<const K*>(c.v.data) + v_at[j];
#pragma unroll
        for (int i = 0; i < kDims; ++i)
          if (lane + 32 * i < v_dim) acc[i] = fmaf(scaled, kv_float(v[lane + 32 * i]), acc[i]);
      }
    }

    // The states of all warps, and the sink
#pragma unroll
    for (int i = 0; i < kDims; ++i) states[warp][lane + 32 * i] = acc[i];
    if (lane == 0) maxima[warp] = most, totals[warp] = total;
    __syncthreads();
    const float sink = c.sinks ? c.sinks[head] : -INFINITY;
    float all_most = sink;
    for (int w = 0; w < kAttentionWarps; ++w) all_most = maxima[w] > all_most ? maxima[w] : all_most;
    const float base = finite_base(all_most);
    float sum = expf(sink - base), factor[kAttentionWarps];
#pragma unroll
    for (int w = 0; w < kAttentionWarps; ++w) {
      factor[w] = expf(maxima[w] - base);
      sum += totals[w] * factor[w];
    }
    const float inverse = sum == 0.f ? 0.f : 1.f / sum;
    const int64_t y_at = rows.offset(1, token) + head * c.y.stride[c.lead];
    for (int d = threadIdx.x; d < v_dim; d += kAttentionWarps * 32) {
      float y = 0.f;
#pragma unroll
      for (int w = 0; w < kAttentionWarps; ++w) y += states[w][d] * factor[w];
      store_float(c.y.data, y_at + d, c.T, y * inverse);
    }
    if (c.lse.data && threadIdx.x == 0)
      static_cast<float*>(c.lse.data)[rows.offset(2, token) + head * c.lse.stride[c.lead]] =
          sum == 0.f ? -INFINITY : all_most + logf(sum);
    __syncthreads();  // states are written again
  }
}

// For K and V in f32, f16 or bf16: compiled in attention_cuda.cu for both ops.
ek_status attention_run_simt_float(const AttentionCall& call, const Launch& l);

// K: the dtype of keys and values.
template <class K>
ek_status attention_run_simt(const AttentionCall& call, const Launch& l) {
  const Rows<3> rows = make_rows<3>(call.lead, {&call.q, &call.y, &call.lse});
  const Grid grid = {grid_blocks(call.tokens * call.heads, 1), kAttentionWarps * 32};
  if (call.head_dim <= 256 && call.v_dim <= 256) return launch(l, attention_simt<K, 8>, grid, call, rows);
  static_assert(kAttentionMostDim == 32 * 32, "");
  return launch(l, attention_simt<K, 32>, grid, call, rows);
}

}  // namespace ek
