// SPDX-License-Identifier: Apache-2.0
// A team: the threads that share one row. Part of a warp, a block, or a cluster of blocks; kernels are templates over
// it and look the same for all three. Reductions use one barrier each and give every thread the same bits.
//   blockDim = (threads of a row in this block, rows of a block); more than one row only where a row is <= 32 lanes.
#pragma once

#include "cuda/cluster.cuh"
#include "cuda/reduce.cuh"

namespace ek {

constexpr int kMaxWarps = 32;
constexpr int kMaxCluster = 8;  // the largest that every GPU with clusters must have

// 1, 2, 4 ... 32 lanes: blockDim.x. Several rows to a block, no barrier at all.
template <int kValues = 1>
struct WarpTeam {
  static constexpr bool kCluster = false;
  struct Scratch {};
  const int thread = threadIdx.x, threads = blockDim.x;

  __device__ __forceinline__ explicit WarpTeam(Scratch&) {}
  // Rows start at first() + threadIdx.y and go on in steps of step(): both are the same for the whole block, so that
  // loops over rows end together and shuffles always find all 32 lanes.
  __device__ __forceinline__ int64_t first() const { return static_cast<int64_t>(blockIdx.x) * blockDim.y; }
  __device__ __forceinline__ int64_t step() const { return static_cast<int64_t>(gridDim.x) * blockDim.y; }
  // Threads of the team see each other's writes to memory.
  __device__ __forceinline__ void sync() const { __syncwarp(); }

  template <int N, class Op>
  __device__ __forceinline__ void reduce(float (&x)[N], Op op) {
    static_assert(N <= kValues, "");
#pragma unroll
    for (int v = 0; v < N; ++v) x[v] = warp_reduce(x[v], op, threads);
  }
};

// A block of whole warps, one row at a time. Each reduction uses the other half of the scratch, so that one barrier is
// enough: who writes a half again has passed the barrier that everyone reached after reading it.
template <int kValues = 1>
struct BlockTeam {
  static constexpr bool kCluster = false;
  struct alignas(16) Scratch {
    float slot[2][kValues][kMaxWarps];
  };
  const int thread = threadIdx.x, threads = blockDim.x;

  __device__ __forceinline__ explicit BlockTeam(Scratch& scratch) : scratch_(scratch) {
    // Slots without a warp hold 0, the identity of Sum and of MaxNan, so that all can be read.
    if (threadIdx.x < kMaxWarps && threadIdx.x >= blockDim.x / 32)
#pragma unroll
      for (int v = 0; v < kValues; ++v) scratch_.slot[0][v][threadIdx.x] = scratch_.slot[1][v][threadIdx.x] = 0.f;
  }
  __device__ __forceinline__ int64_t first() const { return blockIdx.x; }
  __device__ __forceinline__ int64_t step() const { return gridDim.x; }
  __device__ __forceinline__ void sync() const { __syncthreads(); }

  template <int N, class Op>
  __device__ __forceinline__ void reduce(float (&x)[N], Op op) {
    static_assert(N <= kValues, "");
    float(&slot)[kValues][kMaxWarps] = scratch_.slot[turn_];
    turn_ ^= 1;
#pragma unroll
    for (int v = 0; v < N; ++v) x[v] = warp_reduce(x[v], op);
    if (threadIdx.x % 32 == 0)
#pragma unroll
      for (int v = 0; v < N; ++v) slot[v][threadIdx.x / 32] = x[v];
    __syncthreads();
    // Every thread adds up all slots: for up to eight warps two broadcast reads, quicker than a second round of shuffles.
#pragma unroll
    for (int v = 0; v < N; ++v) {
      if (blockDim.x <= 8 * 32) {
        const float4 a = reinterpret_cast<const float4*>(slot[v])[0], b = reinterpret_cast<const float4*>(slot[v])[1];
        x[v] = op(op(op(a.x, b.x), op(a.y, b.y)), op(op(a.z, b.z), op(a.w, b.w)));
      } else {
        x[v] = warp_reduce(slot[v][threadIdx.x % 32], op);
      }
    }
  }

 private:
  Scratch& scratch_;
  int turn_ = 0;
};

// A cluster of blocks, one row at a time. Every warp stores its part into every block's shared memory; the halves of
// the scratch alternate as in BlockTeam, with the cluster's barrier in the place of the block's.
// After the last reduction no block touches another's memory, so a block may end without waiting for the others.
template <int kValues = 1>
struct ClusterTeam {
  static constexpr bool kCluster = true;
  struct alignas(16) Scratch {
    float slot[2][kValues][kMaxCluster * kMaxWarps];
  };
  const int rank = static_cast<int>(cluster_rank()), blocks = static_cast<int>(cluster_size());
  const int thread = rank * blockDim.x + threadIdx.x, threads = blocks * blockDim.x;

  __device__ __forceinline__ explicit ClusterTeam(Scratch& scratch) : scratch_(scratch) {
    cluster_arrive();  // the first reduction waits for it: by then every block of the cluster is there to be written to
  }
  __device__ __forceinline__ int64_t first() const { return blockIdx.x / blocks; }
  __device__ __forceinline__ int64_t step() const { return gridDim.x / blocks; }

  template <int N, class Op>
  __device__ __forceinline__ void reduce(float (&x)[N], Op op) {
    static_assert(N <= kValues, "");
    if (!started_) cluster_wait();
    started_ = true;
    float(&slot)[kValues][kMaxCluster * kMaxWarps] = scratch_.slot[turn_];
    turn_ ^= 1;
    const int lane = threadIdx.x % 32, warps = blockDim.x / 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int v = 0; v < N; ++v) x[v] = warp_reduce(x[v], op);
    if (lane < blocks)
#pragma unroll
      for (int v = 0; v < N; ++v) cluster_store(&slot[v][rank * warps + warp], lane, x[v]);
    cluster_arrive();
    cluster_wait();
#pragma unroll
    for (int v = 0; v < N; ++v) {
      x[v] = Op::kIdentity;
      for (int i = lane; i < blocks * warps; i += 32) x[v] = op(x[v], slot[v][i]);
      x[v] = warp_reduce(x[v], op);
    }
  }

 private:
  Scratch& scratch_;
  int turn_ = 0;
  bool started_ = false;
};

}  // namespace ek
