// SPDX-License-Identifier: Apache-2.0
// Products with mma.sync: a ring of tiles in shared memory, 64 bytes of k to a tile, f32 accumulators in registers.
//   kAsync: tiles come by cp.async, kStages - 1 ahead (sm_80); else through registers, one ahead (sm_75).
// The sum over k is taken in steps of 32 bytes, in order, whatever the tile: rows do not depend on m.
// f32 inputs are rounded to TF32 as fragments are read.
#pragma once

#include "cuda/mma.cuh"
#include "cuda/pdl.cuh"
#include "ops/gemm/gemm_mma_config.h"
#include "ops/gemm/gemm_store.cuh"

namespace ek {

constexpr int kMmaTileBytes = 64;  // of k: two steps of 32, each one mma

// kRows rows of a (or columns of b) by 64 bytes of k in shared memory, in 16-byte chunks whose places are exchanged
// within 128 bytes so that the eight chunks of an ldmatrix fall into all 32 banks.
//   kAlongK: row by row, 4 chunks each.   otherwise: k by k, kRows elements each.
template <class T, int kRows, bool kAlongK, int kThreads>
struct MmaOperand {
  static constexpr bool kK = kAlongK;
  static constexpr int kUnit = 16 / sizeof(T);  // elements of a chunk
  static constexpr int kTileK = kMmaTileBytes / sizeof(T);
  static constexpr int kRowChunks = kAlongK ? 4 : kRows / kUnit;
  static constexpr int kChunks = kRows * 4 / kThreads;  // of a thread
  static constexpr int kBytes = kRows * kMmaTileBytes;

  static __device__ __forceinline__ uint32_t place(int row, int chunk) {
    const int swap = kAlongK ? row >> 1 & 3 : sizeof(T) == 2 ? row & 7 : (row & 3) << 1;
    return (row * kRowChunks + (chunk ^ swap)) * 16;
  }

  // This thread's chunks: every kHop-th row of chunks from `row` on. kHop is a multiple of the swizzle's period, so that
  // their places are a constant apart.
  static constexpr int kHop = kThreads / kRowChunks;
  static_assert(kThreads % kRowChunks == 0 && kHop % (kAlongK || sizeof(T) == 2 ? 8 : 4) == 0, "");
  const T* from;               // the first chunk of the next tile
  int64_t pitch;               // from row to row
  int outer_left, inner_left;  // what exists from there on: rows, and elements of a row
  uint32_t at;                 // its place

  // The tiles of rows row0 and on of x, one step of k after the other.
  __device__ __forceinline__ MmaOperand(const T* x, int64_t pitch_, int rows, int k, int row0) : pitch(pitch_) {
    const int row = threadIdx.x / kRowChunks, chunk = threadIdx.x % kRowChunks;
    from = x + (kAlongK ? row0 + row : row) * pitch + (kAlongK ? 0 : row0) + chunk * kUnit;
    outer_left = (kAlongK ? rows - row0 : k) - row;
    inner_left = (kAlongK ? k : rows - row0) - chunk * kUnit;
    at = place(row, chunk);
  }

  // f(i, source, elements): `elements` of a chunk exist. Goes on to the next tile.
  template <class F>
  __device__ __forceinline__ void next_tile(F&& f) {
    const int inner = inner_left < 0 ? 0 : inner_left > kUnit ? kUnit : inner_left;
#pragma unroll
    for (int i = 0; i < kChunks; ++i) f(i, from + i * kHop * pitch, i * kHop < outer_left ? inner : 0);
    from += kAlongK ? kTileK : kTileK * pitch;
    (kAlongK ? inner_left : outer_left) -= kTileK;
  }
  __device__ __forceinline__ void copy(uint32_t tile) {
    next_tile([&](int i, const T* source, int count) {
      copy_async(tile + at + i * kHop * kRowChunks * 16, source, count * sizeof(T));
    });
  }

  // The same in two parts: from memory to registers, from there to shared memory.
  __device__ __forceinline__ void fetch(uint4 (&staged)[kChunks]) {
    static_assert(sizeof(T) == 2, "");
    next_tile([&](int i, const T* source, int count) {
      uint32_t words[4] = {};
      if (count == kUnit) {
        const uint4 v = *reinterpret_cast<const uint4*>(source);
        words[0] = v.x, words[1] = v.y, words[2] = v.z, words[3] = v.w;
      } else {
#pragma unroll
        for (int j = 0; j < kUnit; ++j)
          if (j < count) words[j / 2] |= uint32_t{reinterpret_cast<const uint16_t*>(source)[j]} << j % 2 * 16;
      }
      staged[i] = make_uint4(words[0], words[1], words[2], words[3]);
    });
  }
  __device__ __forceinline__ void put(uint32_t tile, const uint4 (&staged)[kChunks]) const {
#pragma unroll
    for (int i = 0; i < kChunks; ++i) store_smem(tile + at + i * kHop * kRowChunks * 16, staged[i]);
  }

  // The fragments of 16 rows from `row` on at step `step` of the tile. kB: in the order that two mma's want b in,
  // columns 0 to 7 first; else in that of a, the first half of k first.
  template <bool kB>
  static __device__ __forceinline__ void fragment(uint32_t (&r)[4], uint32_t tile, int row, int step) {
    const int lane = threadIdx.x % 32;
    if constexpr (kAlongK || sizeof(T) == 2) {
      // Of the four matrices, which are the second half of k, and which the second eight rows?
      const int far_k = (kB ? lane >> 3 : lane >> 4) & 1, far_row = (kB ? lane >> 4 : lane >> 3) & 1;
      if constexpr (kAlongK)
        ldmatrix<false>(r, tile + place(row + far_row * 8 + (lane & 7), step * 2 + far_k));
      else
        ldmatrix<true>(r, tile + place(step * 16 + far_k * 8 + (lane & 7), row / 8 + far_row));
    } else {
      // ldmatrix cannot transpose 32-bit elements. The place of the lane's k and row; what is added to its row, an even
      // number of chunks, then changes bits of it: four places serve all rows, and the rest is in the loads.
      const uint32_t lane_at = place(lane % 4, lane / 16) + lane / 4 % 4 * 4;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int far_k = kB ? i & 1 : i >> 1, far_row = kB ? i >> 1 : i & 1;
        const int k = step * 8 + far_k * 4, swapped = (row * 4 + far_row * 32) & 96, fixed = row * 4 & ~96;
        r[i] = load_smem_word(tile + k * kRowChunks * 16 + fixed + (lane_at ^ swapped));
      }
    }
    if constexpr (sizeof(T) == 4)
#pragma unroll
      for (int i = 0; i < 4; ++i) r[i] = to_tf32(r[i]);
  }
};

template <class T_, int kM_, int kN_, int kWarpM_, int kWarpN_, int kStages_, bool kAsync_, bool kAAlongK,
          bool kBAlongK>
struct MmaPlan {
  using T = T_;
  static constexpr int kM = kM_, kN = kN_, kWarpM = kWarpM_, kWarpN = kWarpN_, kStages = kStages_;
  static constexpr bool kAsync = kAsync_;
  static constexpr int kWarpsM = kM / kWarpM, kThreads = kWarpsM * (kN / kWarpN) * 32;
  using A = MmaOperand<T, kM, kAAlongK, kThreads>;
  using B = MmaOperand<T, kN, kBAlongK, kThreads>;
  static constexpr int kStageBytes = A::kBytes + B::kBytes;
  static constexpr int kSumBytes = kWarpM * kN * 4;  // what the epilogue takes at a time
  static constexpr int kSmem = kStages * kStageBytes > kSumBytes ? kStages * kStageBytes : kSumBytes;
  static_assert(!kAsync || kStages >= 3, "");
};

// The sums of a warp: kWarpM x kWarpN as tiles of 16 x 8.
template <class Plan>
struct MmaSums {
  static constexpr int kTilesM = Plan::kWarpM / 16, kTilesN = Plan::kWarpN / 8;
  float v[kTilesM][kTilesN][4] = {};

  struct Fragments {
    uint32_t a[kTilesM][4], b[kTilesN / 2][4];
    __device__ __forceinline__ void load(uint32_t tile, int row, int col, int step) {
#pragma unroll
      for (int i = 0; i < kTilesM; ++i) Plan::A::template fragment<false>(a[i], tile, row + i * 16, step);
#pragma unroll
      for (int j = 0; j < kTilesN / 2; ++j)
        Plan::B::template fragment<true>(b[j], tile + Plan::A::kBytes, col + j * 16, step);
    }
  };

  __device__ __forceinline__ void add(const Fragments& f) {
#pragma unroll
    for (int i = 0; i < kTilesM; ++i)
#pragma unroll
      for (int j = 0; j < kTilesN; ++j)
        mma<typename Plan::T>(v[i][j], f.a[i], f.b[j / 2][j % 2 * 2], f.b[j / 2][j % 2 * 2 + 1]);
  }

  __device__ __forceinline__ void put(float* tile, int col) const {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < kTilesM; ++i)
#pragma unroll
      for (int j = 0; j < kTilesN; ++j)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const int r = i * 16 + h * 8 + lane / 4, c = col + j * 8 + lane % 4 * 2;
          *reinterpret_cast<float2*>(tile + r * Plan::kN + gemm_tile_column(r, c)) =
              make_float2(v[i][j][h * 2], v[i][j][h * 2 + 1]);
        }
  }
};

// grid: (tiles, batch). Eight rows of tiles are walked column by column, so that the blocks of a wave share both
// operands in L2.
template <class Plan>
__global__ void __launch_bounds__(Plan::kThreads)
    gemm_mma(const __grid_constant__ GemmParams p, int tiles_m, int tiles_n) {
  if constexpr (kHasAsyncCopy || !Plan::kAsync) {
    using T = typename Plan::T;
    using A = typename Plan::A;
    using B = typename Plan::B;
    constexpr int kStages = Plan::kStages;
    extern __shared__ __align__(128) char smem[];
    const uint32_t ring = smem_address(smem);
    pdl_wait();
    pdl_launch();

    constexpr int kGroup = 8;
    const int group = blockIdx.x / (kGroup * tiles_n), inside = blockIdx.x % (kGroup * tiles_n);
    const int height = tiles_m - group * kGroup < kGroup ? tiles_m - group * kGroup : kGroup;
    const int row0 = (group * kGroup + inside % height) * Plan::kM, col0 = inside / height * Plan::kN;
    const int64_t batch = blockIdx.y;
    const int m = static_cast<int>(p.m), n = static_cast<int>(p.n), k = static_cast<int>(p.k);
    A a(static_cast<const T*>(p.a.data) + batch * p.a.batch, A::kK ? p.a.row : p.a.col, m, k, row0);
    B b(static_cast<const T*>(p.b.data) + batch * p.b.batch, B::kK ? p.b.col : p.b.row, n, k, col0);

    const int warp = threadIdx.x / 32, warp_m = warp % Plan::kWarpsM;
    const int row = warp_m * Plan::kWarpM, col = warp / Plan::kWarpsM * Plan::kWarpN;
    const int steps = (k + A::kTileK - 1) / A::kTileK;
    MmaSums<Plan> sums;

    if constexpr (Plan::kAsync) {
      const auto copy = [&](int step, int stage) {
        const uint32_t tile = ring + stage * Plan::kStageBytes;
        if (step < steps) {
          a.copy(tile);
          b.copy(tile + A::kBytes);
        }
        copy_commit();  // an empty group too: wait counts groups
      };
#pragma unroll
      for (int i = 0; i < kStages - 1; ++i) copy(i, i);
      copy_wait<kStages - 2>();
      __syncthreads();
      // Fragments are read half a tile ahead, so that the tensor cores find the next ones in registers.
      typename MmaSums<Plan>::Fragments fragments[2];
      int stage = 0;
      if (steps) fragments[0].load(ring, row, col, 0);
      for (int step = 0; step < steps; ++step) {
        fragments[1].load(ring + stage * Plan::kStageBytes, row, col, 1);
        copy(step + kStages - 1, stage == 0 ? kStages - 1 : stage - 1);
        sums.add(fragments[0]);
        // One barrier tells both that the next tile is there and that all have read this one, whose place is next to be
        // taken. The last time around it reads what lies in the ring and multiplies nothing.
        copy_wait<kStages - 2>();
        __syncthreads();
        stage = stage + 1 == kStages ? 0 : stage + 1;
        fragments[0].load(ring + stage * Plan::kStageBytes, row, col, 0);
        sums.add(fragments[1]);
      }
      copy_wait<0>();
    } else {
      uint4 a_next[A::kChunks], b_next[B::kChunks];
      for (int step = -1; step < steps; ++step) {
        const bool more = step + 1 < steps;
        if (more) {
          a.fetch(a_next);
          b.fetch(b_next);
        }
        const uint32_t tile = ring + (step & 1) * Plan::kStageBytes, next = ring + (~step & 1) * Plan::kStageBytes;
        if (step >= 0) {
          typename MmaSums<Plan>::Fragments fragments;
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            fragments.load(tile, row, col, half);
            sums.add(fragments);
          }
        }
        if (more) {
          a.put(next, a_next);
          b.put(next + A::kBytes, b_next);
        }
        __syncthreads();
      }
    }

    // Epilogue: the sums of one row of warps at a time through shared memory, so that d is written in whole lines.
    float* tile = reinterpret_cast<float*>(smem);
#pragma unroll 1
    for (int part = 0; part < Plan::kWarpsM; ++part) {
      __syncthreads();
      if (warp_m == part) sums.put(tile, col);
      __syncthreads();
      gemm_store_tile<T, Plan::kN>(p, tile, Plan::kWarpM, batch, row0 + part * Plan::kWarpM, col0);
    }
  }
}

template <class Plan>
ek_status gemm_mma_launch(const GemmCall& call, const Launch& l) {
  return gemm_for_each_slab(call, [&](const GemmCall& c) {
    const int tiles_m = static_cast<int>((c.m + Plan::kM - 1) / Plan::kM);
    const int tiles_n = static_cast<int>((c.n + Plan::kN - 1) / Plan::kN);
    Grid grid;
    grid.blocks = dim3(static_cast<unsigned>(tiles_m) * tiles_n, static_cast<unsigned>(c.batch));
    grid.threads = dim3(Plan::kThreads);
    grid.smem = Plan::kSmem;
    return launch(l, gemm_mma<Plan>, grid, gemm_params_of(c), tiles_m, tiles_n);
  });
}

// f(integral_constant<bool> a along k, integral_constant<bool> b along k)
template <class F>
ek_status with_gemm_layouts(const GemmCall& c, F&& f) {
  const bool b_along_k = gemm_layout_of_b(c) == GemmLayout::kAlongK;
  const auto with_b = [&](auto a) { return b_along_k ? f(a, std::true_type{}) : f(a, std::false_type{}); };
  return gemm_layout_of_a(c) == GemmLayout::kAlongK ? with_b(std::true_type{}) : with_b(std::false_type{});
}

}  // namespace ek
