// SPDX-License-Identifier: Apache-2.0
// What the kernels of gemm_gemv.cu share: sums over a warp, over the blocks that split k, and the way out.
#pragma once

#include "cuda/pdl.cuh"
#include "ops/gemm/gemm_gemv_config.h"
#include "ops/gemm/gemm_store.cuh"

namespace ek {

struct GemvParams {
  GemmParams p;
  int64_t range;       // of k, for a block
  int64_t sets;        // bulk: of columns
  int threads;         // along k: that share kColumns columns
  bool constant_b;     // b can be read before the kernels before this one have ended
  float* partials;     // [batch, blocks, splits, sums]
  uint32_t* counters;  // [batch, blocks]
};

// Sums N values (a power of two) over the lanes whose number differs in the bits kMost, kMost / 2 ... 1 * kLeast. Each
// step halves the values a lane keeps, so that N values cost about N shuffles. What is left ends in v[0].
template <int N, int kMost, int kLeast>
__device__ __forceinline__ void gemv_lane_sums(float (&v)[N]) {
  const int lane = threadIdx.x % 32;
  int count = N;
#pragma unroll
  for (int d = kMost; d >= kLeast; d /= 2) {
    if (count > 1) {
      count /= 2;
      const bool upper = lane & d;
#pragma unroll
      for (int i = 0; i < N / 2; ++i)
        if (i < count) {
          const float keep = upper ? v[i + count] : v[i], give = upper ? v[i] : v[i + count];
          v[i] = keep + __shfl_xor_sync(0xffffffffu, give, d);
        }
    } else {
      v[0] += __shfl_xor_sync(0xffffffffu, v[0], d);
    }
  }
}

// Thread i < pairs has two sums; here they become those of all blocks that share the set of columns (blockIdx.y counts
// them). True in the block that came last, which goes on alone. Every split is read back in order, so the bits do not
// depend on who came when.
__device__ __forceinline__ bool gemv_add_splits(const GemvParams& g, int64_t set, int pairs, float2* sums) {
  __shared__ bool last;
  const int splits = gridDim.y, i = threadIdx.x;
  float2* all = reinterpret_cast<float2*>(g.partials) + set * splits * pairs;
  if (i < pairs) __stcg(all + blockIdx.y * pairs + i, *sums);
  __threadfence();
  __syncthreads();
  if (i == 0) {
    last = atomicAdd(&g.counters[set], 1u) == splits - 1u;
    if (last) g.counters[set] = 0;
  }
  __syncthreads();
  if (!last) return false;
  __threadfence();
  *sums = make_float2(0.f, 0.f);
  if (i < pairs)
#pragma unroll 8
    for (int s = 0; s < splits; ++s) {
      const float2 part = __ldcg(all + s * pairs + i);
      sums->x += part.x;
      sums->y += part.y;
    }
  return true;
}

// Two columns of d, or one where they are gate and up. Written out for single elements: inlined into so many kernels,
// the wide forms of gemm_store.cuh would be most of their code.
template <class T>
__device__ __forceinline__ void gemv_finish(const GemmParams& p, int64_t row, int64_t col, float2 sums) {
  if (row >= p.m || col >= p.n) return;
  const bool both = col + 1 < p.n;
  float z[2] = {sums.x * p.epilogue.alpha, sums.y * p.epilogue.alpha};
  if (const T* bias = static_cast<const T*>(p.epilogue.bias)) {
    z[0] += to_float(bias[col]);
    if (both) z[1] += to_float(bias[col + 1]);
  }
  const float up = z[1];
  const bool f32 = std::is_same_v<T, float> || p.f32_out;
  if (f32)
    gemm_activate<float>(p.epilogue.act, z);
  else
    gemm_activate<T>(p.epilogue.act, z);
  if (p.gated) z[0] *= up;
  const int64_t from = p.gated ? col / 2 : col, count = both && !p.gated ? 2 : 1;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    if (i >= count) break;
    float v = z[i] * p.epilogue.out_scale;
    const int64_t c_at = blockIdx.z * p.c.batch + row * p.c.row + (from + i) * p.c.col;
    const int64_t d_at = blockIdx.z * p.d.batch + row * p.d.row + (from + i) * p.d.col;
    if (p.c.data) {
      const float c = f32 ? static_cast<const float*>(p.c.data)[c_at] : to_float(static_cast<const T*>(p.c.data)[c_at]);
      v = fmaf(p.epilogue.beta, c, v);
    }
    if (f32)
      static_cast<float*>(p.d.data)[d_at] = v;
    else
      static_cast<T*>(p.d.data)[d_at] = from_float<T>(v);
  }
}

}  // namespace ek
