// SPDX-License-Identifier: Apache-2.0
// A team: the threads that share one row. Part of a warp, a block, or a cluster of blocks; kernels are templates over
// it and look the same for all three. Reductions use one barrier each and give every thread the same bits.
//   blockDim = (threads of a row in this block, rows of a block); more than one row only where a row has <= 256 threads.
// reduce(x, op) does x[v] = op over the team for every v; reduce_each(x, f) has an operation for each: f(v, a, b).
// Identities are 0: sums, and maxima of absolute values. kLanes: of each warp that share a row; 0: known at run time only.
#pragma once

#include <type_traits>

#include "cuda/cluster.cuh"
#include "cuda/reduce.cuh"
#include "cuda/tma.cuh"
#include "dispatch/kernel.h"

namespace ek {

constexpr int kMaxWarps = 32;

// 1, 2, 4 ... 32 lanes: blockDim.x. Several rows to a block, no barrier at all.
template <int kValues = 1, int kLanes_ = 0>
struct WarpTeam {
  static constexpr bool kCluster = false, kWarp = true;
  static constexpr int kLanes = kLanes_, kMostThreads = 32;
  struct Scratch {};
  const int thread = threadIdx.x, threads = kLanes ? kLanes : blockDim.x;

  __device__ __forceinline__ explicit WarpTeam(Scratch&) {}
  // The row of this thread. It may lie beyond the last one: such threads go along, so that shuffles find all lanes.
  __device__ __forceinline__ uint32_t row() const { return blockIdx.x * blockDim.y + threadIdx.y; }
  // Rows of a loop over more rows than blocks start at first() + threadIdx.y and go on in steps of step(): both are the
  // same for the whole block, so that loops end together.
  __device__ __forceinline__ int64_t first() const { return static_cast<int64_t>(blockIdx.x) * blockDim.y; }
  __device__ __forceinline__ int64_t step() const { return static_cast<int64_t>(gridDim.x) * blockDim.y; }
  // Threads of the team see each other's writes to memory.
  __device__ __forceinline__ void sync() const { __syncwarp(); }

  template <int N, class F>
  __device__ __forceinline__ void reduce_each(float (&x)[N], F f) {
    static_assert(N <= kValues, "");
#pragma unroll
    for (int v = 0; v < N; ++v) x[v] = warp_reduce(x[v], [&](float a, float b) { return f(v, a, b); }, threads);
  }
  template <int N, class Op>
  __device__ __forceinline__ void reduce(float (&x)[N], Op op) {
    reduce_each(x, [=](int, float a, float b) { return op(a, b); });
  }
};

// Whole warps. A block has one row, or several of at most 256 threads each. Each reduction uses the other half of the
// scratch, so that one barrier is enough: who writes a half again has passed the barrier that everyone reached after
// reading it.
// kMost: 4, 8 or 16 where a row is known to have at most so many warps. Then every thread reads the parts of all of them and
// puts them together itself, without the wait of shuffles; in the same order, so that the bits are the same.
template <int kValues = 1, int kMost = kMaxWarps>
struct BlockTeam {
  static constexpr bool kCluster = false, kWarp = false;
  static constexpr int kLanes = 32;
  static constexpr int kShort = 8;  // warps of a row up to which rows may share a block
  static constexpr int kMostThreads = 32 * kMost;
  struct alignas(16) Scratch {
    float slot[2][kValues][kMaxWarps];
  };
  const int thread = threadIdx.x, threads = blockDim.x;

  __device__ __forceinline__ explicit BlockTeam(Scratch& scratch) : scratch_(scratch) {}
  __device__ __forceinline__ uint32_t row() const { return blockIdx.x * blockDim.y + threadIdx.y; }
  __device__ __forceinline__ int64_t first() const { return static_cast<int64_t>(blockIdx.x) * blockDim.y; }
  __device__ __forceinline__ int64_t step() const { return static_cast<int64_t>(gridDim.x) * blockDim.y; }
  __device__ __forceinline__ void sync() const { __syncthreads(); }

  template <int N, class F>
  __device__ __forceinline__ void reduce_each(float (&x)[N], F f) {
    static_assert(N <= kValues, "");
    float (&slot)[kValues][kMaxWarps] = scratch_.slot[turn_];
    turn_ ^= 1;
    const int first = threadIdx.y * kShort, warps = blockDim.x / 32, lane = threadIdx.x % 32;
#pragma unroll
    for (int v = 0; v < N; ++v) x[v] = warp_reduce(x[v], [&](float a, float b) { return f(v, a, b); });
    if constexpr (kMost < kMaxWarps) {
      // Lane 0 stores its warp's part, the others zeros for warps that are not there.
      const int mine = threadIdx.x / 32 + lane * warps;
      if (mine < kMost)
#pragma unroll
        for (int v = 0; v < N; ++v) slot[v][first + mine] = lane == 0 ? x[v] : 0.f;
      __syncthreads();
#pragma unroll
      for (int v = 0; v < N; ++v) {
        float part[kMost];
#pragma unroll
        for (int i = 0; i < kMost; i += 4)
          *reinterpret_cast<float4*>(part + i) = *reinterpret_cast<const float4*>(&slot[v][first + i]);
#pragma unroll
        for (int d = kMost / 2; d > 0; d /= 2)
#pragma unroll
          for (int i = 0; i < d; ++i) part[i] = f(v, part[i], part[i + d]);
        x[v] = part[0];
      }
      return;
    }
    if (lane == 0)
#pragma unroll
      for (int v = 0; v < N; ++v) slot[v][first + threadIdx.x / 32] = x[v];
    __syncthreads();
    // For few warps every eight lanes do the same, so that three steps are enough.
    const auto over_slots = [&](auto lanes) {
      const int mine = lane % decltype(lanes)::value;
#pragma unroll
      for (int v = 0; v < N; ++v) {
        x[v] = mine < warps ? slot[v][first + mine] : 0.f;
        x[v] = warp_reduce(x[v], [&](float a, float b) { return f(v, a, b); }, decltype(lanes)::value);
      }
    };
    if (warps <= kShort)
      over_slots(std::integral_constant<int, kShort>());
    else
      over_slots(std::integral_constant<int, kMaxWarps>());
  }
  template <int N, class Op>
  __device__ __forceinline__ void reduce(float (&x)[N], Op op) {
    reduce_each(x, [=](int, float a, float b) { return op(a, b); });
  }

 private:
  Scratch& scratch_;
  int turn_ = 0;
};

// A cluster of kMaxCluster blocks, one row. Every warp stores its part into every block's shared memory, where an mbarrier counts
// what has come: no fence, and no barrier of the cluster. Each reduction has a part of the scratch of its own, so there are at
// most two. A block has all that it is sent before its last reduction ends, so it may end without waiting for the others.
// kMost: warps of a block at most.
template <int kValues = 1, int kMost = kMaxWarps>
struct ClusterTeam {
  static constexpr bool kCluster = true, kWarp = false;
  static constexpr int kLanes = 32, kMostThreads = 32 * kMost, kReductions = 2;
  struct alignas(16) Scratch {
    float slot[kReductions][kValues][kMaxCluster * kMost];
    uint64_t arrived[kReductions];
  };
  const int rank = static_cast<int>(cluster_rank());
  const int thread = rank * blockDim.x + threadIdx.x, threads = kMaxCluster * blockDim.x;

  __device__ __forceinline__ explicit ClusterTeam(Scratch& scratch) : scratch_(scratch) {
    if (threadIdx.x == 0) {
      for (uint64_t& arrived : scratch_.arrived) mbarrier_init(&arrived, 1);
      mbarrier_fence();
    }
    cluster_arrive_relaxed();
  }
  // Every block has begun, and has its barriers. To be called once, before the first reduction.
  __device__ __forceinline__ void meet() const { cluster_wait(); }
  __device__ __forceinline__ uint32_t row() const { return blockIdx.x / kMaxCluster; }

  template <int N, class F>
  __device__ __forceinline__ void reduce_each(float (&x)[N], F f) {
    static_assert(N <= kValues, "");
    float (&slot)[kValues][kMaxCluster * kMost] = scratch_.slot[turn_];
    uint64_t* arrived = &scratch_.arrived[turn_++];
    const int lane = threadIdx.x % 32, warps = threads / 32;  // of the cluster
    if (threadIdx.x == 0) mbarrier_expect(arrived, warps * N * sizeof(float));
#pragma unroll
    for (int v = 0; v < N; ++v) x[v] = warp_reduce(x[v], [&](float a, float b) { return f(v, a, b); });
    if (lane < kMaxCluster)
#pragma unroll
      for (int v = 0; v < N; ++v) cluster_store_async(&slot[v][thread / 32], arrived, lane, x[v]);
    mbarrier_wait(arrived, 0);
#pragma unroll
    for (int v = 0; v < N; ++v) {
      x[v] = 0.f;
      for (int i = lane; i < warps; i += 32) x[v] = f(v, x[v], slot[v][i]);
      x[v] = warp_reduce(x[v], [&](float a, float b) { return f(v, a, b); });
    }
  }
  template <int N, class Op>
  __device__ __forceinline__ void reduce(float (&x)[N], Op op) {
    reduce_each(x, [=](int, float a, float b) { return op(a, b); });
  }

 private:
  Scratch& scratch_;
  int turn_ = 0;
};

}  // namespace ek
