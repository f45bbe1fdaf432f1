// SPDX-License-Identifier: Apache-2.0
// group_norm of nchw groups in the registers of a cluster, where every thread has K vectors, weight and bias are given, a group
// is one run of memory and a warp's part of it of one channel: nothing of it need be asked, which is less than half of the
// instructions of group_norm_held. (The same for nhwc was 6 % slower than that.)
// Statistics in one round: each warp hands its sums of x and x^2 to all blocks. Where the mean is large beside the deviation,
// their difference would lose digits, and a second round sums deviations from the mean.
#pragma once

#include "ops/norm/group_norm.cuh"
#include "ops/norm/norm_moments.cuh"

namespace ek {

constexpr int kGroupNormWholeVectors = 8;    // of a thread
constexpr int kGroupNormWholeThreads = 512;  // of a block at most

// What the warps of a cluster tell each other. kMost: threads of a block.
template <int kMost>
struct GroupNormExchange {
  struct Scratch {
    float2 of_warp[2][kGroupNormCluster * kMost / 32];
    uint64_t arrived[2];
  };
  Scratch& scratch;
  const int lane = threadIdx.x % 32;

  __device__ __forceinline__ explicit GroupNormExchange(Scratch& s) : scratch(s) {
    // Every block counts what the warps of all of them store: one barrier for each round.
    if (threadIdx.x == 0) {
      for (uint64_t& arrived : scratch.arrived) mbarrier_init(&arrived, 1);
      mbarrier_fence();
      const int sums = kGroupNormCluster * static_cast<int>(blockDim.x / 32);
      for (uint64_t& arrived : scratch.arrived) mbarrier_expect(&arrived, sums * sizeof(float2));
    }
    cluster_arrive_relaxed();
  }

  // Both sums over the group, in the same order in every thread. kRound: 0, then 1. After cluster_wait().
  template <int kRound>
  __device__ __forceinline__ float2 over_group(float2 sums) const {
    sums = over_lanes(sums);
    const int warps = blockDim.x / 32, all = kGroupNormCluster * warps;
    float2* of_warp = scratch.of_warp[kRound];
    if (lane < kGroupNormCluster)
      cluster_store_async(&of_warp[cluster_rank() * warps + threadIdx.x / 32], &scratch.arrived[kRound], lane, sums);
    mbarrier_wait(&scratch.arrived[kRound], 0);
    sums = make_float2(0.f, 0.f);
#pragma unroll
    for (int i = 0; i < kGroupNormCluster * kMost / 32; i += 32)
      if (i + lane < all) {
        sums.x += of_warp[i + lane].x;
        sums.y += of_warp[i + lane].y;
      }
    return over_lanes(sums);
  }

 private:
  static __device__ __forceinline__ float2 over_lanes(float2 sums) {
#pragma unroll
    for (int d = 16; d > 0; d >>= 1) {
      sums.x += __shfl_xor_sync(0xffffffffu, sums.x, d);
      sums.y += __shfl_xor_sync(0xffffffffu, sums.y, d);
    }
    return sums;
  }
};

// Registers: 48, so that ten blocks of 128 threads fill an SM; 64 for blocks of 512.
template <int kMost>
constexpr int kGroupNormWholeBlocks = (kMost <= 256 ? 1280 : 1024) / kMost;

template <class T, int kMost>
__global__ void __launch_bounds__(kMost, kSmThreads >= 1280 ? kGroupNormWholeBlocks<kMost> : 1)
    group_norm_whole(const GroupNormHeldParams<T> p) {
  if constexpr (kHasClusters) {
    constexpr int K = kGroupNormWholeVectors, V = kVec<T>;
    using Exchange = GroupNormExchange<kMost>;
    __shared__ typename Exchange::Scratch scratch;
    const Exchange exchange(scratch);

    // A warp has 32 * K vectors side by side.
    const uint32_t unit = blockIdx.x / kGroupNormCluster;
    const uint32_t image = p.per_image.divide(unit), of_image = unit - image * p.per_image.divisor;
    const uint32_t lane = threadIdx.x % 32, begin = cluster_rank() * p.share + (threadIdx.x - lane) * K;
    const int64_t at = int64_t{begin + lane} * V;
    const uint32_t channel = of_image * static_cast<uint32_t>(p.channels) + p.run.divide(begin);
    const T* x = p.x + image * p.x_image + of_image * p.x_unit + at;
    pdl_wait();
    pdl_launch();

    // Every load is issued before any of them is used.
    GroupNormWords held[K];
#pragma unroll
    for (int k = 0; k < K; ++k) held[k] = load_vec<uint32_t, 4>(reinterpret_cast<const uint32_t*>(x + k * 32 * V));
    const T weight = p.weight[channel], bias = p.bias[channel];
    // Every block has begun, and has its barriers. NOTE: here, since it also keeps the compiler, which is short of registers,
    // from putting the last loads after the first sums.
    cluster_wait();

    float2 sums = make_float2(0.f, 0.f);
#pragma unroll
    for (int k = 0; k < K; ++k) {
      float f[V], s = 0.f;
      group_norm_unpack<T>(held[k], f);
#pragma unroll
      for (int j = 0; j < V; ++j) s += f[j];
      sums.x += s;
      sums.y += norm_squares(f);
    }
    sums = exchange.template over_group<0>(sums);
    float mean = sums.x * p.factor, squares = sums.y - sums.x * mean;

    // Deviations, where squares of the mean have taken too many digits: the same for the whole cluster.
    if (!norm_moments_suffice<T>(sums.x * mean, squares)) {
      sums = make_float2(0.f, 0.f);
#pragma unroll
      for (int k = 0; k < K; ++k) {
        float f[V];
        group_norm_unpack<T, true>(hidden<2>(held[k]), f);
#pragma unroll
        for (int j = 0; j < V; ++j) {
          const float d = f[j] - mean;
          sums.x += d;
          sums.y += d * d;
        }
      }
      sums = exchange.template over_group<1>(sums);
      const float rest = sums.x * p.factor;
      squares = norm_deviations(sums.x * rest, sums.y);
      mean += rest;
    }
    const float rstd = rsqrtf(squares * p.factor + p.eps);

    const float scale = to_float(weight) * rstd, shift = to_float(bias) - mean * scale;
    T* y = p.y + image * p.y_image + of_image * p.y_unit + at;
#pragma unroll
    for (int k = 0; k < K; ++k) {
      float f[V];
      group_norm_unpack<T, true>(hidden<1>(held[k]), f);
#pragma unroll
      for (int j = 0; j < V; ++j) f[j] = f[j] * scale + shift;
      store_whole(y + k * 32 * V, pack<T, V>(f));
    }
  }
}

}  // namespace ek
