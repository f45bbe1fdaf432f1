// SPDX-License-Identifier: Apache-2.0
// Sums and maxima over part of a warp and over a block. All orders are fixed, so results repeat bit for bit.
// cuda/team.cuh builds on these where the threads of a row may also be a cluster of blocks.
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
  __device__ __forceinline__ float operator()(float a, float b) const {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    float x;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(x) : "f"(a), "f"(b));
    return x;
#else
    return a > b || a != a ? a : b;
#endif
  }
};

// Butterfly over groups of `lanes` lanes (a power of two, <= 32); every lane gets the result.
template <class Op>
__device__ __forceinline__ float warp_reduce(float x, Op op, int lanes = 32) {
#pragma unroll
  for (int d = 16; d > 0; d >>= 1)
    if (d < lanes) x = op(x, __shfl_xor_sync(0xffffffffu, x, d));
  return x;
}

// Sums of kCount values, x[0] on, over the lanes that differ in the bits kDistance, kDistance / 2 ... kLast. Every step gives
// half of the values away: the bits of a lane, the highest first, say which of them it is left with, in x[0] on. From when
// there is only one, all lanes get its sum.
template <int kDistance, int kLast, int kCount, int N>
__device__ __forceinline__ void fold_lanes(float (&x)[N]) {
  if constexpr (kDistance >= kLast) {
    constexpr int kLeft = kCount > 1 ? kCount / 2 : 1;
    const bool upper = threadIdx.x & kDistance;
#pragma unroll
    for (int i = 0; i < kLeft; ++i) {
      const float other = kCount > 1 && !upper ? x[i + kCount - kLeft] : x[i];
      const float mine = kCount > 1 && upper ? x[i + kCount - kLeft] : x[i];
      x[i] = mine + __shfl_xor_sync(0xffffffffu, other, kDistance);
    }
    fold_lanes<kDistance / 2, kLast, kLeft>(x);
  }
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

}  // namespace ek
