// SPDX-License-Identifier: Apache-2.0
// gemm for up to 64 rows of a (128 in two halves) on Hopper: narrow tiles, 32 to 64 columns of d, in blocks of which up to three share an SM. a and
// b are contiguous along k, which is a multiple of 64.
//
// What counts is that memory never rests: blocks fill rings by TMA, with a constant b before the kernels ahead have ended, and
// have so many columns that SMs are given the same to do, as each gets its share of the memory whatever it has. One
// warp loads b, one a, each by a single box for 128 of k, since a box takes the copy engine's time however small it is. Four
// warps multiply by wgmma, b in the place of its first operand. Where there are few tiles their k is cut for the blocks of a
// cluster, which deal out the sums: each ends some rows, and the others store their sums of those into its shared memory.
// Nor does a kernel end before its last instruction: what runs once is fetched for that, so the code behind the products is short.
#pragma once

#include "cuda/cluster.cuh"
#include "cuda/mma.cuh"
#include "cuda/pdl.cuh"
#include "cuda/swizzle.cuh"
#include "cuda/wgmma_few.cuh"
#include "ops/gemm/gemm_sm90_narrow_config.h"
#include "ops/gemm/gemm_store.cuh"

namespace ek {

constexpr int kNarrowThreads = 192;     // four warps that multiply, one that loads b, one that loads a
constexpr int kNarrowReadyBarrier = 1;  // the rings' barriers are set up
constexpr int kNarrowSumsBarrier = 2;   // among the warps that multiply

template <class T, int kRows_>
struct GemmSm90NarrowShape {
  using Type = T;
  static constexpr int kRows = kRows_;       // of a, at most
  static constexpr int kEights = kRows / 8;  // of rows: what blocks of a cluster share out
  static constexpr int kStepsOf16 = kGemmNarrowK / 16;
  static constexpr int kABytes = gemm_narrow_a_bytes(kRows);  // of a stage
  // A product waits for the one before it that adds to the same sums: two chains of them, where there are registers for both.
  static constexpr bool kTwoChains = kRows <= 32;
};

struct GemmSm90NarrowParams {
  CUtensorMap a, b;  // boxes of 64 of k by the rows of a, or the columns of b, that a block has, by two blocks of k
  GemmOut out;
  GemmNarrowPlan plan;
  GemmNarrowPlaces at;       // from the host, as what runs once takes long
  int32_t steps, longer;     // of k, 128 each, that every part has, and how many parts have one more
  int32_t b_bytes;           // of a stage
  int32_t a_batch, b_batch;  // 1, or 0 where all batches share the matrix
  bool constant_b;
  bool plain;  // d is alpha * out_scale * a b, and takes eight columns at a time
};

// A ring of one operand.
struct NarrowRing {
  char* data;
  uint64_t* full;   // a stage has been filled
  uint64_t* empty;  // it has been read
};

template <class S>
struct GemmSm90NarrowSmem {
  NarrowRing b, a;
  float4* sums;       // of the rows that this block ends, from the other blocks: [block][eight rows][thread]
  uint64_t* arrived;  // they are here
  uint32_t* read;     // of each warp: see sm90_narrow_hold
  __device__ GemmSm90NarrowSmem(char* raw, const GemmSm90NarrowParams& p) {
    b.data = raw;
    a.data = raw + p.at.a;
    sums = reinterpret_cast<float4*>(raw + p.at.sums);
    b.full = reinterpret_cast<uint64_t*>(raw + p.at.barriers);
    b.empty = b.full + p.plan.stages;
    a.full = b.empty + p.plan.stages;
    a.empty = a.full + p.plan.a_stages;
    arrived = a.empty + p.plan.a_stages;
    read = reinterpret_cast<uint32_t*>(arrived + 1);
  }
};

// What a block has: some rows, some columns, and a part of k.
struct NarrowPart {
  int split, rank, row, col, first, count;  // first and count of the steps of k
  __device__ explicit NarrowPart(const GemmSm90NarrowParams& p) : split(p.plan.split), row(0) {
    rank = split > 1 ? cluster_rank() : 0;
    int tile = split > 1 ? cluster_id() : blockIdx.x;
    if (p.plan.row_tiles == 2) row = tile % 2 * p.plan.a_rows, tile /= 2;  // neighbours read the same of b
    col = tile * p.plan.cols;
    first = rank * p.steps + min(rank, p.longer);
    count = p.steps + (rank < p.longer);
  }
  __device__ __forceinline__ int rows(const GemmSm90NarrowParams& p) const {
    return min(p.plan.a_rows, static_cast<int>(p.out.m) - row);
  }
};

// Position in a ring.
struct NarrowAt {
  int stage = 0;
  uint32_t phase = 0;
  __device__ __forceinline__ void next(int stages) {
    if (++stage == stages) stage = 0, phase ^= 1;
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
__device__ __forceinline__ void sm90_narrow_produce(const GemmSm90NarrowParams& p, const NarrowRing& ring,
                                                    const NarrowPart& part, bool let_in) {
  const int stages = kIsB ? p.plan.stages : p.plan.a_stages, batch = blockIdx.y * (kIsB ? p.b_batch : p.a_batch);
  const bool once = p.plan.row_tiles == 1 && (p.b_batch || gridDim.y == 1);  // that is all who reads this of b
  const uint64_t policy = once ? l2_evict_first() : l2_evict_normal();
  const auto load = [&](int step, int stage) {
    if (!elect_one()) return;
    uint64_t* const full = &ring.full[stage];
    const int k = (part.first + step) * (kGemmNarrowK / kTileK);
    if constexpr (kIsB) {
      mbarrier_expect(full, p.b_bytes);
      tma_load(ring.data + stage * p.b_bytes, &p.b, 0, part.col, k, batch, full, policy);
    } else {
      mbarrier_expect(full, p.plan.a_rows * (kGemmNarrowK * 2));
      tma_load(ring.data + stage * S::kABytes, &p.a, 0, part.row, k, batch, full);
    }
  };
  if (!kIsB || !p.constant_b) pdl_wait();
  for (int i = 0; i < min(stages, part.count); ++i) load(i, i);
  narrow_begin(part.split);
  NarrowAt at;
  const int launch = max(stages, part.count - stages);
  for (int i = stages; i < part.count; ++i, at.next(stages)) {
    if (let_in && i == launch) pdl_launch();
    mbarrier_wait(&ring.empty[at.stage], at.phase);
    load(i, at.stage);
  }
  if (let_in) pdl_launch();  // where the ring took all of it
}

// The first step of b, to registers, while a is on its way: its place in the ring is free that much earlier.
template <class S>
__device__ __forceinline__ void sm90_narrow_hold(const GemmSm90NarrowSmem<S>& smem, int cols, bool refilled,
                                                 uint32_t (&held)[S::kStepsOf16][4]) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  int row = warp * 16 + lane % 16;
  if (row >= cols) row -= kGemmNarrowLeastCols;  // of no column: any that is there
  const uint32_t from = smem_address(smem.b.data) + row * kSwizzleBytes;
  mbarrier_wait(&smem.b.full[0], 0);
  uint32_t seen = 0;
#pragma unroll
  for (int i = 0; i < S::kStepsOf16; ++i) {
    constexpr int kPerBlock = kTileK / 16;
    const int eight = i % kPerBlock * 2 + lane / 16;
    ldmatrix<false>(held[i],
                    from + i / kPerBlock * (cols * kSwizzleBytes) + (swizzled_unit<kSwizzleBytes>(row, eight) << 4));
    seen ^= held[i][0];
  }
  if (!refilled) return;
  // A barrier does not wait for loads whose values nobody has used yet, and the copy engine would write over what they read.
  if (lane == 0) smem.read[warp] = seen;
  barrier_sync(kNarrowSumsBarrier, 128);
  if (threadIdx.x == 0) mbarrier_arrive(&smem.b.empty[0]);
}

// The products of a part of k. wgmma takes 64 columns of b: where a block has fewer, the others are of whatever lies behind them in the
// rings, and are not stored.
static_assert((kGemmNarrowCols - kGemmNarrowLeastCols) * kSwizzleBytes <= 2 * gemm_narrow_a_bytes(8), "past the rings");
template <class S>
__device__ __forceinline__ void sm90_narrow_multiply(const GemmSm90NarrowParams& p, const GemmSm90NarrowSmem<S>& smem,
                                                     int count, float (&acc)[S::kRows / 2]) {
#if EK_HAS_WGMMA
  using T = typename S::Type;
  constexpr int kPerBlock = kTileK / 16;
  const int b_step = p.b_bytes >> 5;  // to the next 64 of k
  const int stages = p.plan.stages, a_stages = p.plan.a_stages, a_step = p.plan.a_rows * kSwizzleBytes >> 4;
  const bool signals = threadIdx.x == 0;
  const uint32_t b_ring = smem_address(smem.b.data), a_ring = smem_address(smem.a.data);
  uint32_t b_at = b_ring;  // the stage of b: no multiply, which would not be uniform, as descriptors must be
  NarrowAt b, a;
  int b_before = -1, a_before = -1;
  const auto tile_at = [](uint32_t at) { return wgmma_descriptor(at, kGemmNarrowCols * kSwizzleBytes); };
  const auto a_tile = [&] { return tile_at(a_ring + a.stage * S::kABytes); };
  const auto of = [&](uint64_t tile, int i) {
    return tile + i / kPerBlock * a_step + i % kPerBlock * kWgmmaStepK<true>;
  };
  float second[S::kRows / 2] = {};
  const auto add = [&](int j, bool more, auto product) {
    if (S::kTwoChains && j % 2)
      product(second, 1);
    else
      product(acc, more || j > 0);
  };
  const int held_steps = p.constant_b ? 1 : 0;
  uint32_t held[S::kStepsOf16][4];
  if (held_steps) {
    sm90_narrow_hold<S>(smem, p.plan.cols, count > stages, held);
    mbarrier_wait(&smem.a.full[0], 0);
    const uint64_t tile = a_tile();
    wgmma_fence();
#pragma unroll
    for (int j = 0; j < S::kStepsOf16; ++j)
      add(j, false, [&](float (&sums)[S::kRows / 2], bool more) {
        WgmmaFew<T, S::kRows>::mma(sums, held[j], of(tile, j), more);
      });
    wgmma_commit();
    wgmma_wait<0>();
    a_before = 0;
    a.next(a_stages), b.next(stages);
    b_at = b.stage ? b_at + p.b_bytes : b_ring;
  }
#pragma unroll 1
  for (int i = held_steps; i < count; ++i) {
    mbarrier_wait(&smem.a.full[a.stage], a.phase);
    mbarrier_wait(&smem.b.full[b.stage], b.phase);
    const uint64_t b_tile = tile_at(b_at), tile = a_tile();
    wgmma_fence();
#pragma unroll
    for (int j = 0; j < S::kStepsOf16; ++j)
      add(j, i > 0, [&](float (&sums)[S::kRows / 2], bool more) {
        const uint64_t b_part = b_tile + j / kPerBlock * b_step + j % kPerBlock * kWgmmaStepK<true>;
        Wgmma<T, S::kRows, 0, 0>::mma(sums, b_part, of(tile, j), more);
      });
    wgmma_commit();
    // One stage behind, as in gemm_sm90.
    wgmma_wait<1>();
    if (a_before >= 0 && signals) mbarrier_arrive(&smem.a.empty[a_before]);
    if (b_before >= 0 && signals) mbarrier_arrive(&smem.b.empty[b_before]);
    a_before = a.stage, b_before = b.stage;
    a.next(a_stages), b.next(stages);
    b_at = b.stage ? b_at + p.b_bytes : b_ring;
  }
  wgmma_wait<0>();
#pragma unroll
  for (int j = 0; j < S::kRows / 2; ++j) wgmma_hold(acc[j]);
  if constexpr (S::kTwoChains) {
#pragma unroll
    for (int j = 0; j < S::kRows / 2; ++j) wgmma_hold(second[j]), acc[j] += second[j];
  }
#endif
}

// Sums of eight rows each to whoever ends them.
template <class S>
__device__ __forceinline__ void sm90_narrow_send(const GemmSm90NarrowSmem<S>& smem, const NarrowPart& part, int each,
                                                 const float (&acc)[S::kRows / 2]) {
  int to = 0, left = each;
#pragma unroll
  for (int e = 0; e < S::kEights; ++e) {
    if (left == 0) ++to, left = each;
    --left;
    if (to == part.rank) continue;
    float4* const at = smem.sums + ((part.rank - (part.rank > to)) * each + each - 1 - left) * 128 + threadIdx.x;
    cluster_store_async(at, smem.arrived, to, make_float4(acc[e * 4], acc[e * 4 + 1], acc[e * 4 + 2], acc[e * 4 + 3]));
  }
}

// Those that this block ends become whole: its own first, then the others in order.
template <class S>
__device__ __forceinline__ void sm90_narrow_receive(const GemmSm90NarrowSmem<S>& smem, const NarrowPart& part, int each,
                                                    int first, int last, float (&acc)[S::kRows / 2]) {
  mbarrier_wait(smem.arrived, 0);
  const float4* from = smem.sums + threadIdx.x - first * 128;
#pragma unroll 1
  for (int other = 0; other < part.split - 1; ++other, from += each * 128)
#pragma unroll
    for (int e = 0; e < S::kEights; ++e) {
      if (e < first || e >= last) continue;
      const float4 x = from[e * 128];
      acc[e * 4] += x.x, acc[e * 4 + 1] += x.y, acc[e * 4 + 2] += x.z, acc[e * 4 + 3] += x.w;
    }
}

// Nothing but the product: rounded, transposed on the way to shared memory, and from there eight columns to a thread.
template <class S>
__device__ __forceinline__ void sm90_narrow_store_plain(const GemmSm90NarrowParams& p, char* tile,
                                                        const NarrowPart& part, int first, int last,
                                                        const float (&acc)[S::kRows / 2]) {
  using T = typename S::Type;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const float scale = p.out.epilogue.alpha * p.out.epilogue.out_scale;
  const uint32_t at = smem_address(tile) + lane % 8 * kSwizzleBytes +
                      (swizzled_unit<kSwizzleBytes>(lane, warp * 2 + lane / 8 % 2) << 4);
#pragma unroll
  for (int e = 0; e < S::kEights; ++e) {
    if (e < first || e >= last) continue;
    stmatrix_x2_trans(at + e * (8 * kSwizzleBytes), pack_pair<T>(acc[e * 4] * scale, acc[e * 4 + 1] * scale),
                      pack_pair<T>(acc[e * 4 + 2] * scale, acc[e * 4 + 3] * scale));
  }
  barrier_sync(kNarrowSumsBarrier, 128);
  const int row0 = first * 8 + threadIdx.x / 8, eight = threadIdx.x % 8, end = min(last * 8, part.rows(p));
  const int64_t col = part.col + eight * 8;
  if (col >= p.out.n || eight * 8 >= p.plan.cols) return;
  const char* const from = tile + row0 * kSwizzleBytes + (swizzled_unit<kSwizzleBytes>(row0, eight) << 4);
  T* const to = static_cast<T*>(p.out.d.data) + blockIdx.y * p.out.d.batch + (part.row + row0) * p.out.d.row + col;
#pragma unroll
  for (int r = 0; r < S::kRows; r += 16)
    if (row0 + r < end)
      *reinterpret_cast<uint4*>(to + r * p.out.d.row) = *reinterpret_cast<const uint4*>(from + r * kSwizzleBytes);
}

// Any end of a product, through shared memory in f32: eight columns to a thread.
template <class S>
__device__ __forceinline__ void sm90_narrow_store(const GemmSm90NarrowParams& p, float* tile, const NarrowPart& part,
                                                  int first, int last, const float (&acc)[S::kRows / 2]) {
  using T = typename S::Type;
  constexpr int kPitch = kGemmNarrowCols + 4;  // the rows that a warp writes at a time lie in different banks
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
  for (int e = 0; e < S::kEights; ++e) {
    if (e < first || e >= last) continue;
    float* const at = tile + (e * 8 + lane % 4 * 2) * kPitch + warp * 16 + lane / 4;
    at[0] = acc[e * 4], at[kPitch] = acc[e * 4 + 1], at[8] = acc[e * 4 + 2], at[kPitch + 8] = acc[e * 4 + 3];
  }
  barrier_sync(kNarrowSumsBarrier, 128);
  const int end = min(last * 8, part.rows(p));
#pragma unroll 1
  for (int i = first * 64 + threadIdx.x; i < end * 8; i += 128) {
    const int row = i / 8, eight = i % 8 * 8;
    const int64_t col = part.col + eight;
    if (col >= p.out.n || eight >= p.plan.cols) continue;
    const float4* from = reinterpret_cast<const float4*>(tile + row * kPitch + eight);
    const float4 low = from[0], high = from[1];
    float z[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
    if (p.out.f32_out)
      gemm_finish_columns<T, float>(p.out, blockIdx.y, part.row + row, col, z);
    else
      gemm_finish_columns<T, T>(p.out, blockIdx.y, part.row + row, col, z);
  }
}

// The warps that multiply.
template <class S>
__device__ __forceinline__ void sm90_narrow_consume(const GemmSm90NarrowParams& p, const GemmSm90NarrowSmem<S>& smem,
                                                    const NarrowPart& part) {
  const int each = p.plan.each;  // eights of rows that a block ends
  const int first = min(part.rank * each, S::kEights), last = min(first + each, S::kEights);
  if (part.split > 1 && threadIdx.x == 0)
    mbarrier_expect(smem.arrived, (last - first) * (part.split - 1) * kGemmNarrowEightBytes);
  float acc[S::kRows / 2];
  sm90_narrow_multiply<S>(p, smem, part.count, acc);
  if (part.split > 1) sm90_narrow_send<S>(smem, part, each, acc);
  if (first == last) return;
  barrier_sync(kNarrowSumsBarrier,
               128);  // all products have ended: the rings have been read, and nobody fills them any more
  if (part.split > 1) sm90_narrow_receive<S>(smem, part, each, first, last, acc);
  if (p.plain)
    sm90_narrow_store_plain<S>(p, smem.b.data, part, first, last, acc);
  else
    sm90_narrow_store<S>(p, reinterpret_cast<float*>(smem.b.data), part, first, last, acc);
}

template <class S>
__global__ __launch_bounds__(kNarrowThreads, kGemmNarrowResident) void gemm_sm90_narrow(
    const __grid_constant__ GemmSm90NarrowParams p) {
#if EK_HAS_WGMMA  // code for sm_90a
  extern __shared__ __align__(1024) char raw[];
  const GemmSm90NarrowSmem<S> smem(raw, p);
  const NarrowPart part(p);
  const int warp = warp_index();
  if (warp == 4) {
    if (!p.plan.late) pdl_launch();
    if (elect_one()) {
      for (int i = 0; i < p.plan.stages; ++i) mbarrier_init(&smem.b.full[i], 1), mbarrier_init(&smem.b.empty[i], 1);
      for (int i = 0; i < p.plan.a_stages; ++i) mbarrier_init(&smem.a.full[i], 1), mbarrier_init(&smem.a.empty[i], 1);
      mbarrier_init(smem.arrived, 1);
      mbarrier_fence();
    }
    __syncwarp();
    barrier_arrive(kNarrowReadyBarrier, 64);
    sm90_narrow_produce<S, true>(p, smem.b, part, p.plan.late);
  } else if (warp == 5) {
    if (elect_one()) tma_prefetch_map(&p.a);
    barrier_sync(kNarrowReadyBarrier, 64);
    sm90_narrow_produce<S, false>(p, smem.a, part, false);
  } else {
    narrow_begin(part.split);
    sm90_narrow_consume<S>(p, smem, part);
  }
#endif
}

}  // namespace ek
