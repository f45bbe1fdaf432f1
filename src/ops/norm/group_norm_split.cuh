// SPDX-License-Identifier: Apache-2.0
// group_norm in two passes, for units of any size: sums of their parts, then the result. x is read twice: 3/2 of the bytes
// of one read and one write, less what the L2 cache still holds. The second pass goes backwards, to find more there.
// kWhole: parts that lie in one run of nchw and are whole batches of a block: nothing of it need be asked.
#pragma once

#include "ops/norm/group_norm.cuh"

namespace ek {

template <class T>
struct GroupNormSplitParams : GroupNormParams<T> {
  int64_t run;       // accesses of a run
  int64_t accesses;  // of a unit
  int64_t part;      // accesses
  int32_t parts;     // of a unit
  int32_t summed;    // parts of a unit in the first pass
  // kGroupNormSplitThreads accesses further are so many runs and accesses of a run further.
  int32_t runs_ahead, ahead;
  int32_t short_run;  // run, or 2^31 - 1 where it is longer: no part gets that far
  // What that is in elements, and what is to be added where it leads beyond the end of a run.
  int64_t x_step, y_step, x_wrap, y_wrap;
};

// Which part of which unit block b works on.
template <class T>
struct GroupNormPart {
  int64_t unit, image, of_image, begin;
  int32_t size;
  __device__ __forceinline__ GroupNormPart(const GroupNormSplitParams<T>& p, int64_t b) {
    unit = row_quotient(b, p.parts);
    image = row_quotient(unit, p.units);
    of_image = unit - image * p.units;
    begin = (b - unit * p.parts) * p.part;
    size = static_cast<int32_t>(min(p.accesses - begin, p.part));
  }
};

// A thread's way through a part, kGroupNormSplitThreads accesses at a step, without a multiplication.
template <int W, bool kWhole>
struct GroupNormWalk {
  int64_t x, y;   // offsets of the access from the unit's first element
  int32_t which;  // run; only a channel's number matters
  int32_t left;   // accesses of the run from this one on
  template <class T>
  __device__ __forceinline__ GroupNormWalk(const GroupNormSplitParams<T>& p, int64_t access) {
    const int64_t row = row_quotient(access, p.run), at = access - row * p.run;
    left = static_cast<int32_t>(min(p.run - at, static_cast<int64_t>(p.short_run)));
    which = static_cast<int32_t>(row);
    x = row * p.x_run + at * W;
    y = row * p.y_run + at * W;
  }
  template <class T>
  __device__ __forceinline__ void step(const GroupNormSplitParams<T>& p) {
    x += kWhole ? kGroupNormSplitThreads * W : p.x_step;
    y += kWhole ? kGroupNormSplitThreads * W : p.y_step;
    which += kWhole ? 0 : p.runs_ahead;
    left -= kWhole ? 0 : p.ahead;
    if (!kWhole && left <= 0) {
      x += p.x_wrap;
      y += p.y_wrap;
      ++which;
      left += p.short_run;
    }
  }
};

// Accesses of a thread in flight: of the first pass, and of the second, which has more to hold where parts are not whole.
constexpr int kGroupNormSumBatch = 8;
template <bool kWhole>
constexpr int kGroupNormBatch = kWhole ? 8 : 4;
static_assert(kGroupNormWholePart == kGroupNormSplitThreads * kGroupNormSumBatch &&
                  kGroupNormWholePart == kGroupNormSplitThreads * kGroupNormBatch<true>,
              "whole parts are whole batches");

// partial [count, parts, together]: the sums of each part.
template <class T, int W, bool kWhole>
__global__ void __launch_bounds__(kGroupNormSplitThreads, 1024 / kGroupNormSplitThreads)
    group_norm_moments(const GroupNormSplitParams<T> p, GroupSums* partial) {
  constexpr int kThreads = kGroupNormSplitThreads;
  __shared__ GroupSums of_warp[kGroupNormLine][kThreads / 32];
  pdl_wait();
  pdl_launch();
  const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
  for (int64_t b = blockIdx.x; b < p.count * p.parts; b += gridDim.x) {
    const GroupNormPart<T> part(p, b);
    const T* x = p.x + part.image * p.x_image + part.of_image * p.x_unit;
    GroupNormWalk<W, kWhole> walk(p, part.begin + thread);
    GroupSums sums = {};
    for (int32_t i = thread; i < part.size; i += kGroupNormSumBatch * kThreads) {
      Vec<T, W> v[kGroupNormSumBatch];
#pragma unroll
      for (int k = 0; k < kGroupNormSumBatch; ++k) {
        if (kWhole || i + k * kThreads < part.size) v[k] = load_vec<T, W>(x + walk.x);
        walk.step(p);
      }
#pragma unroll
      for (int k = 0; k < kGroupNormSumBatch; ++k) {
        if (!kWhole && i + k * kThreads >= part.size) break;
        float f[W];
        unpack(v[k], f);
        sums.add(f, k == 0 && i == thread);
      }
    }

    // Lanes, then warps
    sums.merge_lanes(p.group_bits);
    if (p.first_of_group(lane)) of_warp[p.group_of(lane)][warp] = sums;
    __syncthreads();
    for (int g = warp; g < p.together; g += kThreads / 32) {
      sums = GroupSums::merged(of_warp[g], kThreads / 32);
      if (lane == 0) partial[b * p.together + g] = sums;
    }
    __syncthreads();
  }
}

template <class T, int W, bool kWhole>
__global__ void __launch_bounds__(kGroupNormSplitThreads, 1024 / kGroupNormSplitThreads)
    group_norm_result(const GroupNormSplitParams<T> p, const GroupSums* partial) {
  constexpr int kThreads = kGroupNormSplitThreads, kBatch = kGroupNormBatch<kWhole>;
  __shared__ float4 statistics_of[kGroupNormLine];
  pdl_wait();
  pdl_launch();
  const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
  for (int64_t back = blockIdx.x; back < p.count * p.parts; back += gridDim.x) {
    const GroupNormPart<T> part(p, p.count * p.parts - 1 - back);
    const T* x = p.x + part.image * p.x_image + part.of_image * p.x_unit;
    T* y = p.y + part.image * p.y_image + part.of_image * p.y_unit;

    // Loads of a batch before its stores: y may be x, so that the compiler could not reorder them. And those of the first
    // batch before the statistics, which take as long.
    Vec<T, W> v[kBatch];
    GroupNormWalk<W, kWhole> walk(p, part.begin + thread);
    const auto load = [&](int32_t i) {
      GroupNormWalk<W, kWhole> ahead = walk;
#pragma unroll
      for (int k = 0; k < kBatch; ++k) {
        if (kWhole || i + k * kThreads < part.size) v[k] = load_vec<T, W>(x + ahead.x);
        ahead.step(p);
      }
    };
    load(thread);
    for (int g = warp; g < p.together; g += kThreads / 32) {
      const GroupSums sums =
          GroupSums::merged_many(partial + part.unit * p.summed * p.together + g, p.summed, p.together);
      if (lane == 0) statistics_of[g] = sums.statistics(p.factor, p.eps);
    }
    __syncthreads();
    const float4 statistics = statistics_of[p.group_of(lane)];

    const int64_t c = part.of_image * p.channels;
    const auto results = [&](auto channel_runs) {
      constexpr bool kChannelRuns = decltype(channel_runs)::value;
      using Affine = GroupNormAffine<T, W, kChannelRuns>;
      const auto channel = [&] { return kChannelRuns ? c + walk.which : c + (p.short_run - walk.left) * W; };
      // nhwc: mostly all accesses of a thread are of the same channels.
      const bool changes = !kWhole && (kChannelRuns || p.ahead != 0);
      Affine affine(p, statistics, thread < part.size ? channel() : c);
      for (int32_t i = thread; i < part.size; i += kBatch * kThreads) {
        if (i != thread) load(i);
#pragma unroll
        for (int k = 0; k < kBatch; ++k) {
          if (!kWhole && i + k * kThreads >= part.size) break;
          if (changes) affine = Affine(p, statistics, channel());
          float f[W];
          unpack(v[k], f);
          affine.apply(statistics, f);
          store_whole(y + walk.y, pack<T, W>(f));
          walk.step(p);
        }
      }
    };
    if (kWhole || p.channel_runs)
      results(std::true_type{});
    else
      results(std::false_type{});
    __syncthreads();
  }
}

}  // namespace ek
