// SPDX-License-Identifier: Apache-2.0
// gemm for up to 8 rows of a on Hopper: b goes by TMA into a ring in shared memory, and from there into mma.sync. b is
// contiguous along k (PyTorch's weights).
//
// What counts is that memory never rests, between kernels either. A block takes half or a third of an SM, so that those of the
// next kernel come beside those that are left of this one, fill their rings with a constant b and wait. So it is let in first
// of all; and what a block asks for while it waits is not held in registers, of which there would be too few.
//
// A block has 16 columns of d at a time. One warp fills the ring; the others share k, 64 each of every step, and add up their
// sums in shared memory. Which row of mma is which column does not matter as long as the sums go where they belong: rows 2 i
// and 2 i + 1, which are read together, are columns i and i + 4, which the swizzle keeps in different banks.
#pragma once

#include "cuda/swizzle.cuh"
#include "cuda/vec.cuh"
#include "cuda/wgmma.cuh"
#include "ops/gemm/gemm_skinny.cuh"

namespace ek {

constexpr int kSkinnyReadyBarrier = 1;  // the ring's barriers are set up, and its first loads on the way
constexpr int kSkinnySumsBarrier = 2;   // among the warps that multiply

template <class T, int kWarps_, int kStages_, int kBlocks_>
struct GemmSm90SkinnyShape {
  using Type = T;
  static constexpr int kWarps = kWarps_;    // that multiply
  static constexpr int kStages = kStages_;  // of the ring: steps of k, 64 for each warp
  static constexpr int kBlocks = kBlocks_;  // of an SM
  static constexpr int kCols = 16, kTiles = 1, kTokens = 1;
  static constexpr int kThreads = kWarps * 32 + 32;
  static constexpr int kBoxBytes = kCols * kSwizzleBytes;
  static constexpr int kStageBytes = kWarps * kBoxBytes;
  static constexpr int kSums = kWarps * 32;  // of a set, by fours
  static constexpr int kSmemBytes = kStages * kStageBytes + 2 * kSums * 16 + 2 * kStages * 8;
  static_assert(kBlocks * (kSmemBytes + 1024) <= 228 * 1024, "as many blocks as the plan counts on");
};

struct GemmSm90SkinnyParams : GemmSkinnyParams {
  CUtensorMap b_map;  // boxes of 16 columns by 64 of k
  bool late;          // the next kernel comes when this one has seen the end of those before
  bool plain;         // d is alpha * out_scale * a b, and takes pairs of columns
};

template <class S>
struct GemmSm90SkinnySmem {
  char* ring;       // kStages times a box for each warp
  float4* sums;     // two of [warp][lane]
  uint64_t* full;   // a stage has been filled
  uint64_t* empty;  // all warps are done with it
  __device__ explicit GemmSm90SkinnySmem(char* raw) {
    ring = raw;
    sums = reinterpret_cast<float4*>(ring + S::kStages * S::kStageBytes);
    full = reinterpret_cast<uint64_t*>(sums + 2 * S::kSums);
    empty = full + S::kStages;
  }
};

// k blocks of 64, steps of them, and sets of 16 columns.
template <class S>
struct SkinnyCounts {
  int k_blocks, steps, sets;
  __device__ explicit SkinnyCounts(const GemmSkinnyParams& p)
      : k_blocks((static_cast<int>(p.k) + kTileK - 1) / kTileK),
        steps((k_blocks + S::kWarps - 1) / S::kWarps),
        sets((static_cast<int>(p.n) + S::kCols - 1) / S::kCols) {}
};

// Position in the ring. The parity of `phase` is what mbarrier_wait asks for.
template <class S>
struct SkinnyRing {
  int stage = 0;
  uint32_t phase = 0;
  __device__ __forceinline__ void next() {
    if (++stage == S::kStages) stage = 0, phase ^= 1;
  }
};

// The warp that fills the ring: all steps of k of the block's first columns, then those of its next ones.
template <class S>
__device__ __forceinline__ void sm90_skinny_produce(const GemmSm90SkinnyParams& p, const GemmSm90SkinnySmem<S>& smem) {
  const SkinnyCounts<S> counts(p);
  const int batch = p.b_batch ? blockIdx.y : 0;
  const uint64_t policy = l2_evict_first();  // b is read once
  SkinnyRing<S> ring;
  int set = blockIdx.x, step = 0;
  const auto load = [&] {
    const int first = step * S::kWarps, count = min(S::kWarps, counts.k_blocks - first);
    if (elect_one()) {
      mbarrier_expect(&smem.full[ring.stage], count * S::kBoxBytes);
      char* const to = smem.ring + ring.stage * S::kStageBytes;
      for (int w = 0; w < count; ++w)
        tma_load(to + w * S::kBoxBytes, &p.b_map, (first + w) * kTileK, set * S::kCols, batch, &smem.full[ring.stage],
                 policy);
    }
    ring.next();
    if (++step == counts.steps) step = 0, set += gridDim.x;
  };
  if (!p.constant_b) pdl_wait();
  for (int i = 0; i < S::kStages && set < counts.sets; ++i) load();
  barrier_arrive(kSkinnyReadyBarrier, S::kThreads);
  pdl_wait();
  if (p.late) pdl_launch();
  while (set < counts.sets) {
    mbarrier_wait(&smem.empty[ring.stage], ring.phase ^ 1);
    load();
  }
}

template <class S>
__device__ __forceinline__ void sm90_skinny_store(const GemmSm90SkinnyParams& p, const float4* sums, int64_t first_col,
                                                  int thread) {
  using T = typename S::Type;
  if (!p.plain) return gemm_skinny_store<S>(p, sums, first_col, blockIdx.y, thread);
  const int col = thread % 8 * 2, row = thread / 8;
  if (row >= p.m || first_col + col >= p.n) return;
  float y[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) y[i] = gemm_skinny_sum<S>(sums, col + i, row) * p.epilogue.alpha * p.epilogue.out_scale;
  store_vec<T, 2>(static_cast<T*>(p.d) + blockIdx.y * p.d_batch + row * p.d_row + first_col + col, pack<T, 2>(y));
}

// The warps that multiply.
template <class S>
__device__ __forceinline__ void sm90_skinny_consume(const GemmSm90SkinnyParams& p, const GemmSm90SkinnySmem<S>& smem,
                                                    int warp) {
  using T = typename S::Type;
  constexpr int kAhead = 2;  // steps of a that are on the way
  const SkinnyCounts<S> counts(p);
  const int lane = threadIdx.x % 32, g = lane / 4, q = lane % 4, k = static_cast<int>(p.k);
  const int at = g / 2 + g % 2 * 4;  // the column, and with 8 more the other one, that is row g of mma
  const int half[2] = {at * kSwizzleBytes + swizzled_unit<kSwizzleBytes>(at, q) * 16,
                       at * kSwizzleBytes + swizzled_unit<kSwizzleBytes>(at, q + 4) * 16};
  // Past the last row of a they are the last one again, and what comes of them is dropped.
  const T* const row = static_cast<const T*>(p.a) + blockIdx.y * p.a_batch +
                       min(static_cast<int64_t>(g), p.m - 1) * p.a_row + warp * kTileK + q * 8;
  const char* const box = smem.ring + warp * S::kBoxBytes;

  uint4 a[kAhead][2];
  const auto load_a = [&](uint4(&to)[2], int step) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int offset = step * S::kWarps * kTileK + h * 32;
      to[h] = make_uint4(0, 0, 0, 0);
      load_if(to[h], row + offset, warp * kTileK + q * 8 + offset < k);
    }
  };
  pdl_wait();
#pragma unroll
  for (int j = 0; j < kAhead; ++j) load_a(a[j], j);
  barrier_sync(kSkinnyReadyBarrier, S::kThreads);

  SkinnyRing<S> ring;
  int turn = 0;
  for (int set = blockIdx.x; set < counts.sets; set += gridDim.x, ++turn) {
    float acc[2][4] = {};  // of the halves of a step, so that one product need not wait for the other
    for (int step = 0; step < counts.steps; step += kAhead) {
#pragma unroll
      for (int j = 0; j < kAhead; ++j) {
        if (step + j >= counts.steps) break;
        mbarrier_wait(&smem.full[ring.stage], ring.phase);
        if ((step + j) * S::kWarps + warp < counts.k_blocks) {
          const char* const b = box + ring.stage * S::kStageBytes;
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            const uint4 x = a[j][h], w0 = *reinterpret_cast<const uint4*>(b + half[h]);
            const uint4 w1 = *reinterpret_cast<const uint4*>(b + 8 * kSwizzleBytes + half[h]);
            mma<T>(acc[h], {w0.x, w1.x, w0.y, w1.y}, x.x, x.y);
            mma<T>(acc[h], {w0.z, w1.z, w0.w, w1.w}, x.z, x.w);
          }
        }
        if (step + j + kAhead < counts.steps) load_a(a[j], step + j + kAhead);
        __syncwarp();  // all lanes have read the stage
        if (elect_one()) mbarrier_arrive(&smem.empty[ring.stage]);
        ring.next();
      }
    }
    if (set + static_cast<int>(gridDim.x) < counts.sets) {
#pragma unroll
      for (int j = 0; j < kAhead; ++j) load_a(a[j], j);
    }
    // Other warps store each time, since that takes longer. Who comes to the next barrier has ended these sums, so that those
    // after the next may take their place.
    float4* const sums = smem.sums + turn % 2 * S::kSums;
    sums[warp * 32 + at * 4 + q] =
        make_float4(acc[0][0] + acc[1][0], acc[0][1] + acc[1][1], acc[0][2] + acc[1][2], acc[0][3] + acc[1][3]);
    barrier_sync(kSkinnySumsBarrier, S::kWarps * 32);
    sm90_skinny_store<S>(p, sums, static_cast<int64_t>(set) * S::kCols, (threadIdx.x + turn * 32) % (S::kWarps * 32));
  }
}

template <class S>
__global__ __launch_bounds__(S::kThreads,
                             S::kBlocks) void gemm_sm90_skinny(const __grid_constant__ GemmSm90SkinnyParams p) {
#if EK_HAS_WGMMA  // code for sm_90a
  extern __shared__ __align__(1024) char raw[];
  const GemmSm90SkinnySmem<S> smem(raw);
  const int warp = warp_index();
  if (warp < S::kWarps) return sm90_skinny_consume<S>(p, smem, warp);
  if (!p.late) pdl_launch();
  if (elect_one()) {
    for (int i = 0; i < S::kStages; ++i) {
      mbarrier_init(&smem.full[i], 1);
      mbarrier_init(&smem.empty[i], S::kWarps);
    }
    mbarrier_fence();
  }
  __syncwarp();
  sm90_skinny_produce<S>(p, smem);
#endif
}

}  // namespace ek
