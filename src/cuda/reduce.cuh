// SPDX-License-Identifier: Apache-2.0
// Sums and maxima over part of a warp, a block, a cluster. All orders are fixed, so results repeat bit for bit.
#pragma once

#include <cstdint>

namespace ek {

struct Sum {
  static constexpr float kIdentity = 0.f;
  __device__ __forceinline__ float operator()(float a, float b) const { return a + b; }
};

// NaN propagates (fmaxf would drop it): a row with a NaN must not get a scale that hides it.
struct MaxNan {
  static constexpr float kIdentity = 0.f;  // used on absolute values only
  __device__ __forceinline__ float operator()(float a, float b) const { return a > b || a != a ? a : b; }
};

// Butterfly over groups of `lanes` lanes (a power of two, <= 32); every lane gets the result.
template <class Op>
__device__ __forceinline__ float warp_reduce(float x, Op op, int lanes = 32) {
#pragma unroll
  for (int d = 16; d > 0; d >>= 1)
    if (d < lanes) x = op(x, __shfl_xor_sync(0xffffffffu, x, d));
  return x;
}

// Over `threads` consecutive threads, a multiple of 32 that divides the block; the thread's group is threadIdx.x / threads.
// `scratch` holds one float for each warp of the block. Every thread of the group gets the result. Safe to call again
// with another scratch at once, with the same one after a __syncthreads().
template <class Op>
__device__ __forceinline__ float block_reduce(float x, Op op, float* scratch, int threads) {
  x = warp_reduce(x, op);
  if (threads == 32) return x;
  const int warp = threadIdx.x / 32, warps = threads / 32, first = warp / warps * warps;
  if (threadIdx.x % 32 == 0) scratch[warp] = x;
  __syncthreads();
  const int lane = threadIdx.x % 32;
  x = lane < warps ? scratch[first + lane] : Op::kIdentity;
  return warp_reduce(x, op);
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

__device__ __forceinline__ uint32_t cluster_rank() {
  uint32_t rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

__device__ __forceinline__ void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// The address of `p` in the shared memory of another block of the cluster, and a store there.
__device__ __forceinline__ void cluster_store(float* p, uint32_t rank, float x) {
  const uint32_t local = static_cast<uint32_t>(__cvta_generic_to_shared(p));
  uint32_t remote;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(local), "r"(rank));
  asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(remote), "f"(x) : "memory");
}

// Over all threads of a cluster. `scratch`: one float for each warp of the block, `slots`: one for each block of the
// cluster; `slots` may be used again only with a cluster_sync() between.
template <class Op>
__device__ __forceinline__ float cluster_reduce(float x, Op op, float* scratch, float* slots, int blocks) {
  x = block_reduce(x, op, scratch, blockDim.x);
  if (threadIdx.x < static_cast<unsigned>(blocks)) cluster_store(&slots[cluster_rank()], threadIdx.x, x);
  cluster_sync();
  x = slots[0];
  for (int i = 1; i < blocks; ++i) x = op(x, slots[i]);
  return x;
}

#endif

}  // namespace ek
