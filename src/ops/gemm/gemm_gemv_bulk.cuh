// SPDX-License-Identifier: Apache-2.0
// The product of few rows on sm_90 and newer, for b contiguous along k: every warp streams columns of its own through a
// ring in shared memory that the copy engine fills. What is on the way takes no registers, so eight warps keep 64 or 128 KB of
// loads open on an SM; the ring runs on across columns; and no warp ever waits for another.
#pragma once

#include "cuda/tma.cuh"
#include "ops/gemm/gemm_gemv.cuh"

namespace ek {

// kPiece: bytes of a column in a stage. Shared memory: rings, barriers, the rows of a.
template <class T, int kRows, int kColumns, int kPiece>
__device__ __forceinline__ void gemv_stream(const GemvParams& g, char* smem) {
  constexpr int kUnit = kVec<T>, kSums = kRows * kColumns, kChunks = kPiece / 512;
  constexpr int kStages = kBulkPieces / kColumns, kRing = kBulkPieces * kPiece;
  const GemmParams& p = g.p;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, bytes = static_cast<int>(p.k * sizeof(T));
  char* ring = smem + warp * kRing;
  uint64_t* full = reinterpret_cast<uint64_t*>(smem + kBulkWarps * kRing) + warp * kStages;
  char* a = smem + kBulkWarps * kRing + kBulkBarriers * sizeof(uint64_t);

  // Sets of columns go round over the SMs first, so that an incomplete last round is spread over all of them.
  const int64_t first = int64_t{warp} * gridDim.x + blockIdx.x, step = int64_t{kBulkWarps} * gridDim.x;

  // Lane 0 fills the ring, one stage after the other, through all sets of the warp. Columns beyond the last are read as
  // the last, and dropped at the end.
  int64_t load_set = first;
  int load_at = 0;
  const uint64_t policy = l2_evict_first();  // b is read once
  const auto fill = [&](int stage) {
    if (load_set >= g.sets) return;
    const int count = bytes - load_at < kPiece ? bytes - load_at : kPiece;
    mbarrier_expect(&full[stage], count * kColumns);
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const int64_t col = load_set * kColumns + c < p.n ? load_set * kColumns + c : p.n - 1;
      bulk_load(ring + (stage * kColumns + c) * kPiece,
                reinterpret_cast<const char*>(static_cast<const T*>(p.b.data) + col * p.b.col) + load_at, count,
                &full[stage], policy);
    }
    load_at += kPiece;
    if (load_at >= bytes) {
      load_at = 0;
      load_set += step;
    }
  };
  if (!g.constant_b) pdl_wait();
  if (lane == 0) {
    for (int i = 0; i < kStages; ++i) mbarrier_init(&full[i], 1);
    mbarrier_fence();
    for (int i = 0; i < kStages; ++i) fill(i);
  }
  if (g.constant_b) pdl_wait();
  pdl_launch();
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const T* from = static_cast<const T*>(p.a.data) + (r < p.m ? r : p.m - 1) * p.a.row;
    for (int i = threadIdx.x * 16; i < bytes; i += kGemvThreads * 16)
      *reinterpret_cast<uint4*>(a + r * bytes + i) = *reinterpret_cast<const uint4*>(from + i / sizeof(T));
  }
  __syncthreads();  // a is there; and the barriers, for the other lanes

  int stage = 0;
  uint32_t parity = 0;
  for (int64_t set = first; set < g.sets; set += step) {
    float sum[kSums] = {};
    for (int at = 0; at < bytes; at += kPiece) {
      mbarrier_wait(&full[stage], parity);
      const char* b = ring + stage * kColumns * kPiece;
#pragma unroll
      for (int i = 0; i < kChunks; ++i) {
        const int chunk = i * 512 + lane * 16;
        if (at + chunk < bytes) {
          float y[kColumns][kUnit];
#pragma unroll
          for (int c = 0; c < kColumns; ++c)
            unpack(*reinterpret_cast<const Vec<T, kUnit>*>(b + c * kPiece + chunk), y[c]);
#pragma unroll
          for (int r = 0; r < kRows; ++r) {
            float x[kUnit];
            unpack(*reinterpret_cast<const Vec<T, kUnit>*>(a + r * bytes + at + chunk), x);
#pragma unroll
            for (int c = 0; c < kColumns; ++c)
#pragma unroll
              for (int j = 0; j < kUnit; ++j) sum[r * kColumns + c] = fmaf(x[j], y[c][j], sum[r * kColumns + c]);
          }
        }
      }
      __syncwarp();  // all lanes have read the stage
      if (lane == 0) fill(stage);
      if (++stage == kStages) stage = 0, parity ^= 1;
    }

    // Lane i gets sums 2 i and 2 i + 1.
    gemv_lane_sums<kSums, 16, 1>(sum);
    constexpr int kSpare = 32 / kSums;  // lanes that hold the same value
    const int v = lane * 2;
    const float2 sums = {__shfl_sync(0xffffffffu, sum[0], v * kSpare & 31),
                         __shfl_sync(0xffffffffu, sum[0], (v + 1) * kSpare & 31)};
    if (v < kSums) gemv_finish<T>(p, v / kColumns, set * kColumns + v % kColumns, sums);
  }
}

// One block to an SM.
template <class T, int kRows, int kColumns, int kPiece>
__global__ void __launch_bounds__(kGemvThreads, 1) gemv_bulk(const __grid_constant__ GemvParams g) {
  extern __shared__ __align__(128) char smem[];
  if constexpr (kHasTma) gemv_stream<T, kRows, kColumns, kPiece>(g, smem);
}

}  // namespace ek
