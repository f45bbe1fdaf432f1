// SPDX-License-Identifier: Apache-2.0
// group_norm kernels. A group is `runs` runs of contiguous elements, evenly spaced, read in accesses of W elements:
// nchw: the runs are the group's channels; nhwc: its part of each position.
//   held: the group stays in the registers of a block or cluster, x is read once.
//   split: groups too large for that are read twice, once for the statistics and once for the result: 3/2 of the bytes
//   of one read and one write, less what the L2 cache still holds. The second pass goes backwards, to find more there.
#pragma once

#include "cuda/pdl.cuh"
#include "cuda/team.cuh"
#include "cuda/vec.cuh"
#include "ops/norm/norm_config.h"

namespace ek {

template <class T>
struct GroupNormParams {
  const T* x;                       // [batch, outer, inner]
  T* y;                             // [batch, outer, inner]
  const T* weight;                  // [channels] or null
  const T* bias;                    // [channels] or null
  int64_t x_image, x_group, x_run;  // from one image, group, run to the next
  int64_t y_image, y_group, y_run;
  int64_t count;      // images * groups
  int64_t groups;     // of an image
  int64_t channels;   // of a group
  int64_t run;        // accesses of a run
  int64_t accesses;   // of a group
  bool channel_runs;  // nchw: a run is a channel; nhwc: the elements of a run are the channels
  // Split: kGroupNormSplitThreads accesses further are so many runs and accesses of a run further.
  int64_t runs_ahead, ahead;
  float factor, eps;  // factor = 1 / elements of a group
};

// f = (f - base - rest) * rstd * weight + bias for an access of group g: number `at` of run `which`.
template <int W, class T>
__device__ __forceinline__ void group_norm_apply(const GroupNormParams<T>& p, int64_t g, int64_t which, int64_t at,
                                                 float base, float rest, float rstd, float (&f)[W]) {
  const int64_t c = g * p.channels + (p.channel_runs ? which : at * W);
  float w[W], b[W];
#pragma unroll
  for (int j = 0; j < W; ++j) w[j] = 1.f, b[j] = 0.f;
  if (p.channel_runs) {
    const float one_w = p.weight ? to_float(p.weight[c]) : 1.f, one_b = p.bias ? to_float(p.bias[c]) : 0.f;
#pragma unroll
    for (int j = 0; j < W; ++j) w[j] = one_w, b[j] = one_b;
  } else {
    if (p.weight) unpack(load_vec<T, W>(p.weight + c), w);
    if (p.bias) unpack(load_vec<T, W>(p.bias + c), b);
  }
#pragma unroll
  for (int j = 0; j < W; ++j) f[j] = (f[j] - base - rest) * rstd * w[j] + b[j];
}

// ---- held ------------------------------------------------------------------------------------------------------------

template <class T, int K, class Team>
__global__ void __launch_bounds__(1024) group_norm_held(const GroupNormParams<T> p) {
  if constexpr (!Team::kCluster || kHasClusters) {
    constexpr int V = kVec<T>;
    using Words = Vec<uint32_t, 4>;  // kept as words, so that 16-bit elements do not take a register each
    const auto values = [](const Words& words, float (&f)[V]) {
      unpack(*reinterpret_cast<const Vec<T, V>*>(&words), f);
    };
    __shared__ typename Team::Scratch scratch;
    Team team(scratch);
    pdl_wait();
    pdl_launch();

    for (int64_t item = team.first(); item < p.count; item += team.step()) {
      const int64_t image = row_quotient(item, p.groups), g = item - image * p.groups;
      const T* x = p.x + image * p.x_image + g * p.x_group;
      T* y = p.y + image * p.y_image + g * p.y_group;

      Words held[K];
      uint32_t which[K], at[K];  // run, access of the run
      bool in[K];
#pragma unroll
      for (int k = 0; k < K; ++k) {
        const uint32_t i = team.thread + k * team.threads, run = static_cast<uint32_t>(p.run);
        held[k] = Words{};
        in[k] = i < p.accesses;
        which[k] = i / run;
        at[k] = i - which[k] * run;
        if (in[k])
          held[k] = load_vec<uint32_t, 4>(reinterpret_cast<const uint32_t*>(x + which[k] * p.x_run + at[k] * V));
      }

      // Mean, then the deviations from it. The mean is base + rest: base alone is rounded to f32.
      float total[1] = {0.f}, sum[2] = {0.f, 0.f};
#pragma unroll
      for (int k = 0; k < K; ++k) {
        float f[V], s = 0.f;
        values(held[k], f);
#pragma unroll
        for (int j = 0; j < V; ++j) s += f[j];
        total[0] += s;
      }
      team.reduce(total, Sum{});
      const float base = total[0] * p.factor;
#pragma unroll
      for (int k = 0; k < K; ++k) {
        float f[V], s = 0.f, q = 0.f;
        values(hidden<1>(held[k]), f);
#pragma unroll
        for (int j = 0; j < V; ++j) {
          const float d = f[j] - base;
          s += d;
          q += d * d;
        }
        if (in[k]) sum[0] += s, sum[1] += q;
      }
      team.reduce(sum, Sum{});
      const float rest = sum[0] * p.factor;
      float squares = sum[1] - sum[0] * rest;
      if (squares < 0.f) squares = 0.f;  // by rounding; NaN stays
      const float rstd = rsqrtf(squares * p.factor + p.eps);

#pragma unroll
      for (int k = 0; k < K; ++k) {
        if (!in[k]) continue;
        float f[V];
        values(hidden<2>(held[k]), f);
        group_norm_apply<V>(p, g, which[k], at[k], base, rest, rstd, f);
        store_vec(y + which[k] * p.y_run + at[k] * V, pack<T, V>(f));
      }
    }
  }
}

// ---- split -----------------------------------------------------------------------------------------------------------

// Mean and sum of squared deviations of `count` elements; the mean is base + rest, |rest| below the rounding of base.
struct alignas(16) Moments {
  float count = 0.f, base = 0.f, rest = 0.f, squares = 0.f;

  __device__ __forceinline__ void settle() {
    const float sum = base + rest;
    rest -= sum - base;
    base = sum;
  }
  // Of both together (Chan). Not symmetric in the last bit: the order is part of the result.
  __device__ __forceinline__ void merge(const Moments& m) {
    const float all = count + m.count, share = all > 0.f ? m.count / all : 0.f;
    const float delta = (m.base - base) + (m.rest - rest);
    squares += m.squares + delta * delta * count * share;
    rest += delta * share;
    count = all;
    settle();
  }
  __device__ __forceinline__ Moments from_lane(int distance) const {
    Moments m;
    m.count = __shfl_down_sync(0xffffffffu, count, distance);
    m.base = __shfl_down_sync(0xffffffffu, base, distance);
    m.rest = __shfl_down_sync(0xffffffffu, rest, distance);
    m.squares = __shfl_down_sync(0xffffffffu, squares, distance);
    return m;
  }
  // Lane 0 gets the moments of all lanes.
  __device__ __forceinline__ void merge_warp() {
#pragma unroll
    for (int d = 16; d > 0; d >>= 1) merge(from_lane(d));
  }
};

// Which part of which group block b works on.
template <class T>
struct GroupNormPart {
  int64_t item, image, g, begin, end;
  __device__ __forceinline__ GroupNormPart(const GroupNormParams<T>& p, int64_t b, int64_t parts, int64_t part) {
    item = row_quotient(b, parts);
    image = row_quotient(item, p.groups);
    g = item - image * p.groups;
    begin = (b - item * parts) * part;
    end = min(p.accesses, begin + part);
  }
};

// A thread's way through a part: access `at` of run `which`, kGroupNormSplitThreads accesses at a step, no divisions.
struct GroupNormWalk {
  int64_t which, at;
  template <class T>
  __device__ __forceinline__ GroupNormWalk(const GroupNormParams<T>& p, int64_t access) {
    which = row_quotient(access, p.run);
    at = access - which * p.run;
  }
  template <class T>
  __device__ __forceinline__ void step(const GroupNormParams<T>& p) {
    which += p.runs_ahead;
    at += p.ahead;
    const bool wraps = at >= p.run;
    at -= wraps ? p.run : 0;
    which += wraps ? 1 : 0;
  }
};

// Accesses of a thread in flight.
constexpr int kGroupNormBatch = 4;

// partial [count, parts]: the moments of each part.
template <class T, int W>
__global__ void __launch_bounds__(kGroupNormSplitThreads)
    group_norm_moments(const GroupNormParams<T> p, Moments* partial, int64_t parts, int64_t part) {
  __shared__ Moments of_warp[kGroupNormSplitThreads / 32];
  pdl_wait();
  pdl_launch();
  for (int64_t b = blockIdx.x; b < p.count * parts; b += gridDim.x) {
    const GroupNormPart<T> at(p, b, parts, part);
    const T* x = p.x + at.image * p.x_image + at.g * p.x_group;

    // Sums of deviations from the thread's first element: near enough to the mean for 32-bit sums, without a pass for it.
    GroupNormWalk walk(p, at.begin + threadIdx.x);
    float shift = 0.f, sum = 0.f, squares = 0.f;
    int64_t accesses = 0;
    if (at.begin + threadIdx.x < at.end) shift = to_float(x[walk.which * p.x_run + walk.at * W]);
    for (int64_t i = at.begin + threadIdx.x; i < at.end; i += kGroupNormBatch * kGroupNormSplitThreads) {
      Vec<T, W> v[kGroupNormBatch];
      bool in[kGroupNormBatch];
#pragma unroll
      for (int k = 0; k < kGroupNormBatch; ++k) {
        in[k] = i + k * kGroupNormSplitThreads < at.end;
        if (in[k]) v[k] = load_vec<T, W>(x + walk.which * p.x_run + walk.at * W);
        walk.step(p);
      }
#pragma unroll
      for (int k = 0; k < kGroupNormBatch; ++k) {
        if (!in[k]) continue;
        float f[W], s = 0.f, q = 0.f;
        unpack(v[k], f);
#pragma unroll
        for (int j = 0; j < W; ++j) {
          const float d = f[j] - shift;
          s += d;
          q += d * d;
        }
        sum += s;
        squares += q;
        ++accesses;
      }
    }

    // Thread, warp, block: merged in a fixed order.
    Moments m;
    m.count = static_cast<float>(accesses * W);
    m.base = shift;
    m.rest = accesses ? sum / m.count : 0.f;
    m.squares = squares - sum * m.rest;
    if (m.squares < 0.f) m.squares = 0.f;  // by rounding; NaN stays
    m.settle();
    m.merge_warp();
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = m;
    __syncthreads();
    if (threadIdx.x == 0) {
#pragma unroll
      for (int w = 1; w < kGroupNormSplitThreads / 32; ++w) m.merge(of_warp[w]);
      partial[b] = m;
    }
    __syncthreads();
  }
}

template <class T, int W>
__global__ void __launch_bounds__(kGroupNormSplitThreads)
    group_norm_result(const GroupNormParams<T> p, const Moments* partial, int64_t parts, int64_t part) {
  __shared__ Moments of_group;
  pdl_wait();
  pdl_launch();
  for (int64_t back = blockIdx.x; back < p.count * parts; back += gridDim.x) {
    const GroupNormPart<T> at(p, p.count * parts - 1 - back, parts, part);
    const T* x = p.x + at.image * p.x_image + at.g * p.x_group;
    T* y = p.y + at.image * p.y_image + at.g * p.y_group;

    if (threadIdx.x < 32) {
      Moments m;
      for (int64_t i = threadIdx.x; i < parts; i += 32) m.merge(partial[at.item * parts + i]);
      m.merge_warp();
      if (threadIdx.x == 0) of_group = m;
    }
    __syncthreads();
    const float base = of_group.base, rest = of_group.rest;
    const float rstd = rsqrtf(of_group.squares * p.factor + p.eps);
    // Loads of a batch before its stores: y may be x, so that the compiler could not reorder them.
    GroupNormWalk walk(p, at.begin + threadIdx.x);
    for (int64_t i = at.begin + threadIdx.x; i < at.end; i += kGroupNormBatch * kGroupNormSplitThreads) {
      Vec<T, W> v[kGroupNormBatch];
      GroupNormWalk ahead = walk;
#pragma unroll
      for (int k = 0; k < kGroupNormBatch; ++k) {
        if (i + k * kGroupNormSplitThreads < at.end) v[k] = load_vec<T, W>(x + ahead.which * p.x_run + ahead.at * W);
        ahead.step(p);
      }
#pragma unroll
      for (int k = 0; k < kGroupNormBatch; ++k) {
        if (i + k * kGroupNormSplitThreads < at.end) {
          float f[W];
          unpack(v[k], f);
          group_norm_apply<W>(p, at.g, walk.which, walk.at, base, rest, rstd, f);
          store_vec(y + walk.which * p.y_run + walk.at * W, pack<T, W>(f));
        }
        walk.step(p);
      }
    }
    __syncthreads();
  }
}

}  // namespace ek
