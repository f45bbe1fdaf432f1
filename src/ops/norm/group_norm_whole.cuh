// SPDX-License-Identifier: Apache-2.0
// group_norm of units in the registers of a cluster, where every thread has K vectors, weight and bias are given, and in nchw
// a group is one run of memory and a warp's part of it of one channel: nothing of it need be asked, which is less than half
// of the instructions of group_norm_held.
// Statistics in one round: each warp hands its sums of x and x^2 to all blocks. Where the mean is large beside the deviation,
// their difference would lose digits, and a second round sums deviations from the mean.
#pragma once

#include "ops/norm/group_norm.cuh"

namespace ek {

constexpr int kGroupNormWholeVectors = 8;    // of a thread
constexpr int kGroupNormWholeThreads = 512;  // of a block at most

template <class T>
struct GroupNormWholeParams : GroupNormHeldParams<T> {
  int64_t x_step;    // nhwc: from a thread's vector in x to its next
  int together_log;  // log2 of the groups of a unit
};

// The lanes of a warp that have the same group, and what they tell the lanes of other warps of the cluster.
// kMost: threads of a block.
template <bool kChannelRuns, int kMost>
struct GroupNormExchange {
  static constexpr int kGroups = kChannelRuns ? 1 : kGroupNormLine;
  struct Scratch {
    float2 of_warp[2][kGroups][kGroupNormCluster * kMost / 32];
    uint64_t arrived[2];
  };
  Scratch& scratch;
  int group_bits, group, lanes, lane;  // lanes of a group, and this one's number among them

  template <class Params>
  __device__ __forceinline__ GroupNormExchange(const Params& p, Scratch& s) : scratch(s) {
    const int me = threadIdx.x % 32;
    group_bits = kChannelRuns ? 0 : p.group_bits;
    group = kChannelRuns ? 0 : p.group_of(me);
    lanes = kChannelRuns ? 32 : 32 >> p.together_log;
    lane =
        kChannelRuns ? me : me >> (p.group_shift + p.together_log) << p.group_shift | (me & ((1 << p.group_shift) - 1));
    // Every block counts what the warps of all of them store: one barrier for each round.
    if (threadIdx.x == 0) {
      for (uint64_t& arrived : scratch.arrived) mbarrier_init(&arrived, 1);
      mbarrier_fence();
      const int sums = kGroupNormCluster * static_cast<int>(blockDim.x / 32) * (kChannelRuns ? 1 : p.together);
      for (uint64_t& arrived : scratch.arrived) mbarrier_expect(&arrived, sums * sizeof(float2));
    }
    cluster_arrive_relaxed();
  }

  // Both sums over the unit's group, in the same order in every thread that has the group. kRound: 0, then 1. After
  // cluster_wait().
  template <int kRound>
  __device__ __forceinline__ float2 over_unit(float2 sums) const {
    sums = over_lanes(sums);
    const int warps = blockDim.x / 32, all = kGroupNormCluster * warps;
    float2* of_warp = scratch.of_warp[kRound][group];
    for (int to = lane; to < kGroupNormCluster; to += lanes)
      cluster_store_async(&of_warp[cluster_rank() * warps + threadIdx.x / 32], &scratch.arrived[kRound], to, sums);
    mbarrier_wait(&scratch.arrived[kRound], 0);
    sums = make_float2(0.f, 0.f);
    const auto add = [&](int i) {
      sums.x += of_warp[i].x;
      sums.y += of_warp[i].y;
    };
    if constexpr (kChannelRuns) {
#pragma unroll
      for (int i = 0; i < kGroupNormCluster * kMost / 32; i += 32)
        if (i + lane < all) add(i + lane);
    } else {
#pragma unroll 4
      for (int i = lane; i < all; i += lanes) add(i);
    }
    return over_lanes(sums);
  }

 private:
  __device__ __forceinline__ float2 over_lanes(float2 sums) const {
#pragma unroll
    for (int d = 16; d > 0; d >>= 1) {
      if (d & group_bits) continue;
      sums.x += __shfl_xor_sync(0xffffffffu, sums.x, d);
      sums.y += __shfl_xor_sync(0xffffffffu, sums.y, d);
    }
    return sums;
  }
};

// Registers: 48 of nchw, so that ten blocks of 128 threads fill an SM (16x512x4096: 34.9 us, with 64 of them 35.4).
template <bool kChannelRuns, int kMost>
constexpr int kGroupNormWholeBlocks = (kChannelRuns && kMost <= 256 ? 1280 : 1024) / kMost;

template <class T, bool kChannelRuns, int kMost>
__global__ void __launch_bounds__(kMost, kSmThreads >= 1280 ? kGroupNormWholeBlocks<kChannelRuns, kMost> : 1)
    group_norm_whole(const GroupNormWholeParams<T> p) {
  if constexpr (kHasClusters) {
    constexpr int K = kGroupNormWholeVectors, V = kVec<T>;
    constexpr int N = kChannelRuns ? 1 : V;  // channels of a thread
    using Exchange = GroupNormExchange<kChannelRuns, kMost>;
    __shared__ typename Exchange::Scratch scratch;
    const Exchange exchange(p, scratch);

    // nchw: a warp has 32 * K vectors side by side; nhwc: a thread has the same place in every so many-th position.
    const uint32_t unit = blockIdx.x / kGroupNormCluster;
    const uint32_t image = p.per_image.divide(unit), of_image = unit - image * p.per_image.divisor;
    const uint32_t lane = threadIdx.x % 32, begin = cluster_rank() * p.share;
    const uint32_t first = begin + (kChannelRuns ? (threadIdx.x - lane) * K + lane : threadIdx.x);
    const uint32_t run = p.run.divide(kChannelRuns ? first - lane : first), at = first - run * p.run.divisor;
    const int64_t x_at = kChannelRuns ? int64_t{first} * V : run * p.x_run + at * V;
    const int64_t y_at = kChannelRuns ? int64_t{first} * V : run * p.y_run + at * V;
    const int64_t x_step = kChannelRuns ? 32 * V : p.x_step, y_step = kChannelRuns ? 32 * V : p.y_step;
    const uint32_t c = of_image * static_cast<uint32_t>(p.channels) + (kChannelRuns ? run : at * V);
    const T* x = p.x + image * p.x_image + of_image * p.x_unit + x_at;
    pdl_wait();
    pdl_launch();

    // Every load is issued before any of them is used.
    GroupNormWords held[K];
#pragma unroll
    for (int k = 0; k < K; ++k) held[k] = load_vec<uint32_t, 4>(reinterpret_cast<const uint32_t*>(x + k * x_step));
    const Vec<T, N> weight = load_vec<T, N>(p.weight + c), bias = load_vec<T, N>(p.bias + c);
    // Every block has begun, and has its barriers. NOTE: here, since it also keeps the compiler, which is short of registers,
    // from putting the last loads after the first sums.
    cluster_wait();

    float2 sums = make_float2(0.f, 0.f);
#pragma unroll
    for (int k = 0; k < K; ++k) {
      float f[V], s = 0.f, q = 0.f;
      group_norm_unpack<T>(held[k], f);
#pragma unroll
      for (int j = 0; j < V; ++j) {
        s += f[j];
        q += f[j] * f[j];
      }
      sums.x += s;
      sums.y += q;
    }
    sums = exchange.template over_unit<0>(sums);
    float mean = sums.x * p.factor, squares = sums.y - sums.x * mean;

    // Deviations, where squares of the mean have taken more digits than the type can spare. The same for the whole cluster.
    constexpr float kMostMean = sizeof(T) == 4 ? 2.f : 32.f;
    const bool fine = sums.x * mean <= kMostMean * squares && squares < __int_as_float(0x7f800000);
    if (!__all_sync(0xffffffffu, fine)) {
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
      sums = exchange.template over_unit<1>(sums);
      const float rest = sums.x * p.factor;
      squares = sums.y - sums.x * rest;
      if (squares < 0.f) squares = 0.f;  // by rounding; NaN stays
      mean += rest;
    }
    const float rstd = rsqrtf(squares * p.factor + p.eps);

    float scale[N], shift[N];
    unpack(weight, scale);
    unpack(bias, shift);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      scale[j] *= rstd;
      shift[j] -= mean * scale[j];
    }
    T* y = p.y + image * p.y_image + of_image * p.y_unit + y_at;
#pragma unroll
    for (int k = 0; k < K; ++k) {
      float f[V];
      group_norm_unpack<T, true>(hidden<1>(held[k]), f);
#pragma unroll
      for (int j = 0; j < V; ++j) f[j] = f[j] * scale[j % N] + shift[j % N];
      store_whole(y + k * y_step, pack<T, V>(f));
    }
  }
}

}  // namespace ek
