// SPDX-License-Identifier: Apache-2.0
// gemm for up to 32 rows of a on Hopper: narrow tiles, 64 columns of d, in blocks of which up to four share an SM. a and b are
// contiguous along k, which is a multiple of 64.
//
// What counts is that memory never rests: blocks fill rings by TMA, with a constant b before the kernels ahead have ended. One
// warp loads b, one a, each by a single box for 128 of k, since a box takes the copy engine's time however small it is. Four
// warps multiply by wgmma, b in the place of its first operand. Where there are few tiles their k is cut for the blocks of a
// cluster, which deal out the sums: each ends some of them, and the others store theirs into its shared memory.
#pragma once

#include "cuda/cluster.cuh"
#include "cuda/pdl.cuh"
#include "cuda/wgmma.cuh"
#include "ops/gemm/gemm_sm90_narrow_config.h"
#include "ops/gemm/gemm_store.cuh"

namespace ek {

constexpr int kNarrowThreads = 192;     // four warps that multiply, one that loads b, one that loads a
constexpr int kNarrowReadyBarrier = 1;  // the ring's barriers are set up
constexpr int kNarrowSumsBarrier = 2;   // among the warps that multiply

template <class T, int kRows_>
struct GemmSm90NarrowShape {
  using Type = T;
  static constexpr int kRows = kRows_;  // of a, at most
  static constexpr int kUnits = gemm_narrow_units(kRows);
  static constexpr int kBlocksOfK = kGemmNarrowK / kTileK;
  static constexpr int kBBytes = kGemmNarrowCols * kGemmNarrowK * 2;
  static constexpr int kStageBytes = gemm_narrow_stage_bytes(kRows);
};

struct GemmSm90NarrowParams {
  CUtensorMap a, b;  // boxes of 64 of k by the rows of a, or 64 columns of b, by two blocks of k
  GemmOut out;
  GemmNarrowPlan plan;
  int32_t steps;             // of k, 128 each
  int32_t a_rows;            // in a box: m in whole steps of the swizzle
  int32_t a_batch, b_batch;  // 1, or 0 where all batches share the matrix
  bool constant_b;
  bool plain;  // d is alpha * out_scale * a b, and takes pairs of columns
};

template <class S>
struct GemmSm90NarrowSmem {
  char* ring;         // stages of b, then a
  float4* sums;       // of the units that this block ends, from the other blocks: [block][unit][lane]
  uint64_t* full;     // a stage has been filled
  uint64_t* empty;    // it has been read
  uint64_t* arrived;  // the other blocks' sums are here
  __device__ GemmSm90NarrowSmem(char* raw, const GemmNarrowPlan& plan) {
    ring = raw;
    sums = reinterpret_cast<float4*>(ring + plan.stages * S::kStageBytes);
    full = reinterpret_cast<uint64_t*>(sums + (plan.split - 1) * plan.each * 32);
    empty = full + plan.stages;
    arrived = empty + plan.stages;
  }
};

// What a block has: 64 columns, and a part of k.
struct NarrowPart {
  int split, rank, tile, first, count;  // first and count of the steps of k
  __device__ explicit NarrowPart(const GemmSm90NarrowParams& p) : split(p.plan.split) {
    rank = split > 1 ? cluster_rank() : 0;
    tile = split > 1 ? cluster_id() : blockIdx.x;
    first = rank * p.steps / split;
    count = (rank + 1) * p.steps / split - first;
  }
};

// All threads of the block, or of the cluster, are here.
__device__ __forceinline__ void narrow_begin(int split) {
  if (split > 1)
    cluster_arrive_relaxed(), cluster_wait();
  else
    __syncthreads();
}

// A warp that loads one operand: the first stages as soon as it may, the others as they become free.
// let_in: the next kernel comes when what is left fits into the ring.
template <class S, bool kIsB>
__device__ __forceinline__ void sm90_narrow_produce(const GemmSm90NarrowParams& p, const GemmSm90NarrowSmem<S>& smem,
                                                    const NarrowPart& part, bool let_in) {
  const int stages = p.plan.stages, batch = blockIdx.y * (kIsB ? p.b_batch : p.a_batch);
  const uint64_t policy = l2_evict_first();  // b is read once
  const auto load = [&](int step, int stage) {
    if (!elect_one()) return;
    char* const to = smem.ring + stage * S::kStageBytes;
    const int k = (part.first + step) * S::kBlocksOfK;
    if constexpr (kIsB) {
      mbarrier_expect(&smem.full[stage], S::kBBytes);
      tma_load(to, &p.b, 0, part.tile * kGemmNarrowCols, k, batch, &smem.full[stage], policy);
    } else {
      mbarrier_expect(&smem.full[stage], p.a_rows * (kGemmNarrowK * 2));
      tma_load(to + S::kBBytes, &p.a, 0, 0, k, batch, &smem.full[stage]);
    }
  };
  if (!kIsB || !p.constant_b) pdl_wait();
  for (int i = 0; i < min(stages, part.count); ++i) load(i, i);
  narrow_begin(part.split);
  int stage = 0;
  uint32_t phase = 0;
  const int launch = max(stages, part.count - stages);
  for (int i = stages; i < part.count; ++i) {
    if (let_in && i == launch) pdl_launch();
    mbarrier_wait(&smem.empty[stage], phase);
    load(i, stage);
    if (++stage == stages) stage = 0, phase ^= 1;
  }
  if (let_in) pdl_launch();  // where the ring took all of it
}

// Sums of four columns and rows to whoever ends them, and those that this block ends become whole: its own first, then the others
// in order.
template <class S>
__device__ __forceinline__ void sm90_narrow_join(const GemmSm90NarrowSmem<S>& smem, const NarrowPart& part, int each,
                                                 int first, int last, float (&acc)[S::kRows / 2]) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
  for (int j = 0; j < S::kRows / 8; ++j) {
    const int unit = j * 4 + warp, to = unit / each;
    if (to == part.rank) continue;
    float4* const at = smem.sums + ((part.rank - (part.rank > to)) * each + unit - to * each) * 32 + lane;
    cluster_store_async(at, smem.arrived, to, make_float4(acc[j * 4], acc[j * 4 + 1], acc[j * 4 + 2], acc[j * 4 + 3]));
  }
  if (first == last) return;
  mbarrier_wait(smem.arrived, 0);
#pragma unroll
  for (int j = 0; j < S::kRows / 8; ++j) {
    const int unit = j * 4 + warp;
    if (unit < first || unit >= last) continue;
    for (int other = 0; other < part.split - 1; ++other) {
      const float4 x = smem.sums[(other * each + unit - first) * 32 + lane];
      acc[j * 4] += x.x, acc[j * 4 + 1] += x.y, acc[j * 4 + 2] += x.z, acc[j * 4 + 3] += x.w;
    }
  }
}

// Nothing but the product: lanes with neighbouring columns exchange halves, so that each has two columns of a row.
template <class S>
__device__ __forceinline__ void sm90_narrow_store_plain(const GemmSm90NarrowParams& p, int tile, int first, int last,
                                                        const float (&acc)[S::kRows / 2]) {
  using T = typename S::Type;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, odd = lane / 4 % 2;
  const float scale = p.out.epilogue.alpha * p.out.epilogue.out_scale;
  T* const d = static_cast<T*>(p.out.d.data) + blockIdx.y * p.out.d.batch;
#pragma unroll
  for (int j = 0; j < S::kRows / 8; ++j) {
    const int unit = j * 4 + warp;
    if (unit < first || unit >= last) continue;
    const int row = j * 8 + lane % 4 * 2 + odd;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float low = acc[j * 4 + h * 2], high = acc[j * 4 + h * 2 + 1];
      const float other = __shfl_xor_sync(0xffffffffu, odd ? low : high, 4);
      const float y[2] = {(odd ? other : low) * scale, (odd ? high : other) * scale};
      const int64_t col = static_cast<int64_t>(tile) * kGemmNarrowCols + warp * 16 + lane / 4 - odd + h * 8;
      if (row < p.out.m && col < p.out.n) store_vec<T, 2>(d + row * p.out.d.row + col, pack<T, 2>(y));
    }
  }
}

// Any end of a product, through shared memory: eight columns to a thread. The ring has been read, and nobody fills it any more.
template <class S>
__device__ __forceinline__ void sm90_narrow_store(const GemmSm90NarrowParams& p, float* tile_sums, int tile, int first,
                                                  int last, const float (&acc)[S::kRows / 2]) {
  using T = typename S::Type;
  constexpr int kPitch = 20;  // of a row of a unit: the rows that a warp writes at a time lie in different banks
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  barrier_sync(kNarrowSumsBarrier, 128);  // all products have ended
#pragma unroll
  for (int j = 0; j < S::kRows / 8; ++j) {
    const int unit = j * 4 + warp;
    if (unit < first || unit >= last) continue;
    float* const at = tile_sums + (unit * 8 + lane % 4 * 2) * kPitch + lane / 4;
    at[0] = acc[j * 4], at[kPitch] = acc[j * 4 + 1], at[8] = acc[j * 4 + 2], at[kPitch + 8] = acc[j * 4 + 3];
  }
  barrier_sync(kNarrowSumsBarrier, 128);
#pragma unroll 1
  for (int i = first * 16 + threadIdx.x; i < last * 16; i += 128) {
    const int unit = i / 16, row = unit / 4 * 8 + i % 16 / 2;
    const int64_t col = static_cast<int64_t>(tile) * kGemmNarrowCols + unit % 4 * 16 + i % 2 * 8;
    if (row >= p.out.m || col >= p.out.n) continue;
    const float4* from = reinterpret_cast<const float4*>(tile_sums + (unit * 8 + i % 16 / 2) * kPitch + i % 2 * 8);
    const float4 low = from[0], high = from[1];
    float z[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
    if (p.out.f32_out)
      gemm_finish_columns<T, float>(p.out, blockIdx.y, row, col, z);
    else
      gemm_finish_columns<T, T>(p.out, blockIdx.y, row, col, z);
  }
}

// The warps that multiply.
template <class S>
__device__ __forceinline__ void sm90_narrow_consume(const GemmSm90NarrowParams& p, const GemmSm90NarrowSmem<S>& smem,
                                                    const NarrowPart& part) {
#if EK_HAS_WGMMA
  using Mma = Wgmma<typename S::Type, S::kRows, 0, 0>;
  constexpr int kBlockBytes = kGemmNarrowCols * kSwizzleBytes;  // of b, for 64 of k
  const int stages = p.plan.stages, each = p.plan.each, a_step = p.a_rows * kSwizzleBytes >> 4;
  const int first = min(part.rank * each, S::kUnits), last = min(first + each, S::kUnits);
  const bool signals = threadIdx.x == 0;
  if (part.split > 1 && signals)
    mbarrier_expect(smem.arrived, (last - first) * (part.split - 1) * kGemmNarrowUnitBytes);
  float acc[S::kRows / 2];
  const uint32_t ring = smem_address(smem.ring);
  int stage = 0, previous = -1;
  uint32_t phase = 0;
  for (int i = 0; i < part.count; ++i) {
    mbarrier_wait(&smem.full[stage], phase);
    const uint64_t b = wgmma_descriptor(ring + stage * S::kStageBytes, kBlockBytes);
    const uint64_t a = wgmma_descriptor(ring + stage * S::kStageBytes + S::kBBytes, kBlockBytes);
    wgmma_fence();
#pragma unroll
    for (int block = 0; block < S::kBlocksOfK; ++block)
#pragma unroll
      for (int k = 0; k < kTileK / 16; ++k)
        Mma::mma(acc, b + block * (kBlockBytes >> 4) + k * kWgmmaStepK<true>,
                 a + block * a_step + k * kWgmmaStepK<true>, i > 0 || block > 0 || k > 0);
    wgmma_commit();
    // One stage behind, as in gemm_sm90.
    wgmma_wait<1>();
    if (previous >= 0 && signals) mbarrier_arrive(&smem.empty[previous]);
    previous = stage;
    if (++stage == stages) stage = 0, phase ^= 1;
  }
  wgmma_wait<0>();
#pragma unroll
  for (int j = 0; j < S::kRows / 2; ++j) wgmma_hold(acc[j]);
  if (part.split > 1) sm90_narrow_join<S>(smem, part, each, first, last, acc);
  if (p.plain)
    sm90_narrow_store_plain<S>(p, part.tile, first, last, acc);
  else
    sm90_narrow_store<S>(p, reinterpret_cast<float*>(smem.ring), part.tile, first, last, acc);
#endif
}

template <class S>
__global__ __launch_bounds__(kNarrowThreads) void gemm_sm90_narrow(const __grid_constant__ GemmSm90NarrowParams p) {
#if EK_HAS_WGMMA  // code for sm_90a
  extern __shared__ __align__(1024) char raw[];
  const GemmSm90NarrowSmem<S> smem(raw, p.plan);
  const NarrowPart part(p);
  const int warp = warp_index();
  if (warp == 4) {
    if (!p.plan.late) pdl_launch();
    if (elect_one()) {
      for (int i = 0; i < p.plan.stages; ++i) {
        mbarrier_init(&smem.full[i], 2);
        mbarrier_init(&smem.empty[i], 1);
      }
      mbarrier_init(smem.arrived, 1);
      mbarrier_fence();
    }
    __syncwarp();
    barrier_arrive(kNarrowReadyBarrier, 64);
    sm90_narrow_produce<S, true>(p, smem, part, p.plan.late);
  } else if (warp == 5) {
    if (elect_one()) tma_prefetch_map(&p.a);
    barrier_sync(kNarrowReadyBarrier, 64);
    sm90_narrow_produce<S, false>(p, smem, part, false);
  } else {
    narrow_begin(part.split);
    sm90_narrow_consume<S>(p, smem, part);
  }
#endif
}

}  // namespace ek
