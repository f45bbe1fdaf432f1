// SPDX-License-Identifier: Apache-2.0
// What the group_norm kernels share: units, sums and their merging, and the result.
// A unit is what a block or a cluster works on: a group of nchw, or neighbouring groups of nhwc, as many as make up a line
// of memory. It is `runs` runs of contiguous elements, evenly spaced, read in accesses of W elements:
// nchw: the runs are the group's channels; nhwc: the unit's part of each position.
// Statistics in one round: each thread sums deviations from the mean of its first access, and sums about different numbers
// are merged about their common mean: lanes, warps, blocks. The order is fixed by the shape of a group.
#pragma once

#include "core/divider.h"
#include "cuda/cluster.cuh"
#include "cuda/pdl.cuh"
#include "cuda/tma.cuh"
#include "cuda/traffic.cuh"
#include "cuda/vec.cuh"
#include "ops/norm/norm_config.h"

namespace ek {

template <class T>
struct GroupNormParams {
  const T* x;                      // [batch, outer, inner]
  T* y;                            // [batch, outer, inner]
  const T* weight;                 // [channels] or null
  const T* bias;                   // [channels] or null
  int64_t x_image, x_unit, x_run;  // from one image, unit, run to the next
  int64_t y_image, y_unit, y_run;
  int64_t count;      // images * units
  int64_t units;      // of an image
  int64_t channels;   // of a unit
  bool channel_runs;  // nchw: a run is a channel; nhwc: the elements of a run are the channels
  int together;       // groups of a unit
  // The bits of a lane's number that tell the group of its accesses, and the lowest of them; 0 where a unit is one group.
  int group_bits, group_shift;
  float factor, eps;  // factor = 1 / elements of a group

  // The group of a lane, and whether it is the first lane that has it.
  __device__ __forceinline__ int group_of(int lane) const { return (lane & group_bits) >> group_shift; }
  __device__ __forceinline__ bool first_of_group(int lane) const { return (lane & ~group_bits) == 0; }
};

// Sums over `count` elements about a number near their mean: of x - base and of its square.
struct alignas(16) GroupSums {
  float count, base, first, second;

  // One more access; the mean of the first one makes the base. However far that is from the others, `second` is at most as
  // many times what it would be about the mean as there are accesses: with eight of them, three bits are lost at worst.
  template <int W>
  __device__ __forceinline__ void add(const float (&f)[W], bool first_access) {
    if (first_access) {
      float total = 0.f;
#pragma unroll
      for (int j = 0; j < W; ++j) total += f[j];
      base = total * (1.f / W);
    }
    float s = 0.f, q = 0.f;
#pragma unroll
    for (int j = 0; j < W; ++j) {
      const float d = f[j] - base;
      s += d;
      q += d * d;
    }
    first += s;
    second += q;
    count += W;
  }

  // The lanes of the same group together, about their mean: every lane gets the same bits.
  __device__ __forceinline__ void merge_lanes(int group_bits = 0) {
    float all = count, total = count * base + first;
    over_lanes(all, total, group_bits);
    const float mean = all > 0.f ? __fdividef(total, all) : 0.f;
    move(mean);
    over_lanes(first, second, group_bits);
    count = all;
  }
  // The same for n sums in memory, by a warp; n <= 32.
  __device__ __forceinline__ static GroupSums merged(const GroupSums* from, int n) {
    GroupSums sums = {};
    if (static_cast<int>(threadIdx.x % 32) < n) sums = from[threadIdx.x % 32];
    sums.merge_lanes();
    return sums;
  }
  // Any n, `step` apart: each lane puts its own together first, one after the other about the mean of those so far.
  __device__ __forceinline__ static GroupSums merged_many(const GroupSums* from, int n, int step) {
    GroupSums sums = {};
#pragma unroll 1
    for (int i = threadIdx.x % 32; i < n; i += 32) {
      GroupSums more = from[i * step];
      const float all = sums.count + more.count;
      const float mean = sums.base + (more.base - sums.base) * __fdividef(more.count, all);
      sums.move(mean);
      more.move(mean);
      sums.count = all;
      sums.first += more.first;
      sums.second += more.second;
    }
    sums.merge_lanes();
    return sums;
  }

  // The mean as base + rest, base alone being rounded to f32; and 1 / the standard deviation.
  __device__ __forceinline__ float4 statistics(float factor, float eps) const {
    const float rest = first * factor;
    float squares = second - first * rest;
    if (squares < 0.f) squares = 0.f;  // by rounding; NaN stays
    return make_float4(base, rest, rsqrtf(squares * factor + eps), 0.f);
  }

 private:
  // The same sums about another number.
  __device__ __forceinline__ void move(float to) {
    const float delta = base - to, moved = first + count * delta;
    second += delta * (first + moved);
    first = moved;
    base = to;
  }
  __device__ __forceinline__ static void over_lanes(float& a, float& b, int group_bits) {
#pragma unroll
    for (int d = 16; d > 0; d >>= 1) {
      if (d & group_bits) continue;
      a += __shfl_xor_sync(0xffffffffu, a, d);
      b += __shfl_xor_sync(0xffffffffu, b, d);
    }
  }
};

// y = (x - base - rest) * rstd * weight + bias, as (x - base) * scale + shift: of one channel, or of W neighbouring ones.
template <class T, int W, bool kChannelRuns>
struct GroupNormAffine {
  static constexpr int N = kChannelRuns ? 1 : W;
  float scale[N], shift[N];

  // c: the (first) channel.
  template <class Index>
  __device__ __forceinline__ GroupNormAffine(const GroupNormParams<T>& p, const float4& statistics, Index c) {
    float w[N], b[N];
#pragma unroll
    for (int j = 0; j < N; ++j) w[j] = 1.f, b[j] = 0.f;
    if (p.weight) unpack(load_vec<T, N>(p.weight + c), w);
    if (p.bias) unpack(load_vec<T, N>(p.bias + c), b);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      scale[j] = statistics.z * w[j];
      shift[j] = b[j] - statistics.y * scale[j];
    }
  }
  __device__ __forceinline__ void apply(const float4& statistics, float (&f)[W]) const {
#pragma unroll
    for (int j = 0; j < W; ++j) f[j] = (f[j] - statistics.x) * scale[j % N] + shift[j % N];
  }
};

// ---- units in registers ----------------------------------------------------------------------------------------------

// 16 bytes as they came: typed as an array of 16-bit elements, what is kept would take a register for each of them.
using GroupNormWords = Vec<uint32_t, 4>;

// kAgain: in a pass that is not to find what an earlier one has converted.
template <class T, bool kAgain = false>
__device__ __forceinline__ void group_norm_unpack(const GroupNormWords& words, float (&f)[kVec<T>]) {
  const auto& v = *reinterpret_cast<const Vec<T, kVec<T>>*>(&words);
  if constexpr (kAgain && sizeof(T) == 2)
    unpack_again(v, f);
  else
    unpack(v, f);
}

template <class T>
struct GroupNormHeldParams : GroupNormParams<T> {
  Divider per_image;        // units; there are fewer than 2^31 in all
  Divider run;              // vectors of a run
  uint32_t vectors, share;  // of a unit, of a block of its cluster
  bool cluster;             // a unit has kMaxCluster blocks, not one
  int64_t y_step;           // nhwc: from a thread's vector in y to its next
};

struct GroupNormScratch {
  GroupSums of_warp[kGroupNormLine][32];
  GroupSums of_block[kGroupNormLine][kMaxCluster];
  float4 statistics[kGroupNormLine];
  uint64_t arrived;  // the sums of all blocks of the cluster
};

// The block, or cluster of blocks, of a unit. Block r has the vectors from r * share on, and its thread t every
// blockDim.x-th of them from t on.
template <class T>
struct GroupNormTeam {
  const GroupNormHeldParams<T>& p;
  GroupNormScratch& scratch;
  const uint32_t rank = cluster_rank();
  const uint32_t begin = rank * p.share, end = min(p.vectors, begin + p.share);
  const bool many = kHasClusters && p.cluster;
  // NOTE: the cluster's own number is computed in f32, and wrong for more than 2^24 blocks.
  const uint32_t unit = many ? blockIdx.x / kMaxCluster : blockIdx.x;
  const uint32_t image = p.per_image.divide(unit), of_image = unit - image * p.per_image.divisor;

  __device__ __forceinline__ GroupNormTeam(const GroupNormHeldParams<T>& params, GroupNormScratch& s)
      : p(params), scratch(s) {
    if (!many) return;
    if (threadIdx.x == 0) {
      mbarrier_init(&scratch.arrived, 1);
      mbarrier_fence();
    }
    cluster_arrive_relaxed();
  }
  __device__ __forceinline__ const T* x() const { return p.x + image * p.x_image + of_image * p.x_unit; }

  // base, rest and rstd of this thread's group, of the sums of all threads.
  __device__ __forceinline__ float4 statistics(GroupSums sums) const {
    const int lane = threadIdx.x % 32, warp = warp_index(), warps = blockDim.x / 32;
    sums.merge_lanes(p.group_bits);
    if (p.first_of_group(lane)) scratch.of_warp[p.group_of(lane)][warp] = sums;
    if (many) cluster_wait();  // every block has begun, and has its barrier
    __syncthreads();

    // A warp for each group puts those of the warps together, then those of the blocks.
    for (int g = warp; g < p.together; g += warps) {
      const GroupSums all = GroupSums::merged(scratch.of_warp[g], warps);
      if (!many) {
        if (lane == 0) scratch.statistics[g] = all.statistics(p.factor, p.eps);
      } else if (lane < kMaxCluster) {
        cluster_store_async(reinterpret_cast<float4*>(&scratch.of_block[g][rank]), &scratch.arrived, lane,
                            make_float4(all.count, all.base, all.first, all.second));
      }
    }
    if (many && warp < p.together) {
      if (threadIdx.x == 0) mbarrier_expect(&scratch.arrived, kMaxCluster * p.together * sizeof(GroupSums));
      mbarrier_wait(&scratch.arrived, 0);
      for (int g = warp; g < p.together; g += warps) {
        const GroupSums all = GroupSums::merged(scratch.of_block[g], kMaxCluster);
        if (lane == 0) scratch.statistics[g] = all.statistics(p.factor, p.eps);
      }
    }
    __syncthreads();
    return scratch.statistics[p.group_of(lane)];
  }

  // The results of this thread's vectors.
  template <bool kChannelRuns, int K>
  __device__ __forceinline__ void store(const GroupNormWords (&held)[K], const float4& statistics) const {
    constexpr int V = kVec<T>;
    using Affine = GroupNormAffine<T, V, kChannelRuns>;
    T* y0 = p.y + image * p.y_image + of_image * p.y_unit;
    const uint32_t c = of_image * static_cast<uint32_t>(p.channels);
    const uint32_t mine = begin + threadIdx.x;
    uint32_t which = p.run.divide(mine);
    const uint32_t at = mine - which * p.run.divisor;
    // nhwc: all vectors of a thread are of the same channels.
    Affine affine(p, statistics, kChannelRuns ? c : c + at * V);
    T* y = y0 + which * p.y_run + at * V;
#pragma unroll
    for (int k = 0; k < K; ++k) {
      const uint32_t i = mine + k * blockDim.x;
      if (i >= end) break;
      if constexpr (kChannelRuns) {
        which = p.run.divide(i);
        affine = Affine(p, statistics, c + which);
        y = y0 + which * p.y_run + (i - which * p.run.divisor) * V;
      }
      float f[V];
      group_norm_unpack<T>(hidden<1>(held[k]), f);
      affine.apply(statistics, f);
      store_whole(y, pack<T, V>(f));
      if constexpr (!kChannelRuns) y += p.y_step;
    }
  }
};

// Units that start at once and leave at once: what one block waits for, others of its SM overlap.
template <class T, int K>
__global__ void __launch_bounds__(1024) group_norm_held(const GroupNormHeldParams<T> p) {
  constexpr int V = kVec<T>;
  __shared__ GroupNormScratch scratch;
  GroupNormTeam<T> team(p, scratch);
  pdl_wait();
  pdl_launch();
  const T* x = team.x();

  // Every load is issued before any of them is used.
  GroupNormWords held[K];
#pragma unroll
  for (int k = 0; k < K; ++k) {
    const uint32_t i = team.begin + threadIdx.x + k * blockDim.x;
    const uint32_t which = p.run.divide(i), at = i - which * p.run.divisor;
    if (i < team.end) held[k] = load_vec<uint32_t, 4>(reinterpret_cast<const uint32_t*>(x + which * p.x_run + at * V));
  }
  // The unit of some clusters further on, into L2: a line of 128 bytes, or a run that is shorter, for each thread.
  const uint32_t later = team.unit + kNormAheadClusters;
  if (team.many && later < p.count) {
    const uint32_t image = p.per_image.divide(later), step = min(8u, p.run.divisor);
    const T* next = p.x + image * p.x_image + (later - image * p.per_image.divisor) * p.x_unit;
    for (uint32_t i = team.begin + threadIdx.x * step; i < team.end; i += blockDim.x * step) {
      const uint32_t which = p.run.divide(i);
      prefetch_l2(next + which * p.x_run + (i - which * p.run.divisor) * V);
    }
  }
  GroupSums sums = {};
#pragma unroll
  for (int k = 0; k < K; ++k) {
    float f[V];
    if (team.begin + threadIdx.x + k * blockDim.x >= team.end) break;
    group_norm_unpack<T>(held[k], f);
    sums.add(f, k == 0);
  }
  const float4 statistics = team.statistics(sums);
  if (p.channel_runs)
    team.template store<true>(held, statistics);
  else
    team.template store<false>(held, statistics);
}

}  // namespace ek
