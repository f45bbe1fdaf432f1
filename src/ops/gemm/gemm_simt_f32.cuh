// SPDX-License-Identifier: Apache-2.0
// Products of f32 on CUDA cores whose operands come 16 bytes at a time: tiles go to shared memory by cp.async as they lie in
// memory, so nothing is turned and nothing passes through registers. 128 x 128 with 8 x 16 sums to a thread: 24 reads of 16
// bytes for 512 products. k is added one by one, so the bits are those of gemm_simt.
#pragma once

#include "cuda/mma.cuh"
#include "cuda/pdl.cuh"
#include "ops/gemm/gemm_store.cuh"

namespace ek {

struct SimtF32Tile {
  static constexpr int kRows = 128, kK = 16, kThreads = 128;  // kRows: of a and d; columns of b and d
  static constexpr int kHigh = 16, kWide = 8;                 // threads
};

// kRows rows of a (columns of b) by kK of k, which kAcross threads share: each has kGroups groups of four.
// kAlongK: k is side by side, in memory and in shared memory; else rows are.
template <bool kAlongK, int kAcross>
class SimtF32Operand {
  using Tile = SimtF32Tile;
  static constexpr int kLine = kAlongK ? Tile::kK : Tile::kRows, kLines = kAlongK ? Tile::kRows : Tile::kK;
  static constexpr int kPitch = kAlongK ? kLine + 4 : kLine;  // + 4: 16 bytes of eight rows are in different banks
  static constexpr int kAtOnce = Tile::kThreads / (kLine / 4);

 public:
  static constexpr int kGroups = Tile::kRows / kAcross / 4;
  static constexpr int kFloats = kLines * kPitch;

  // From row0 on.
  __device__ __forceinline__ SimtF32Operand(const float* x, int64_t k_step, int64_t step, int64_t rows, int64_t row0)
      : line_(threadIdx.x / (kLine / 4)), side_(threadIdx.x % (kLine / 4) * 4) {
    from_ = x + (kAlongK ? (row0 + line_) * step + side_ : row0 + side_ + line_ * k_step);
    hop_ = kAtOnce * (kAlongK ? step : k_step);
    step_ = kAlongK ? Tile::kK : Tile::kK * k_step;
    rows_ = static_cast<int>(rows - row0 < Tile::kRows ? rows - row0 : Tile::kRows) - (kAlongK ? line_ : side_);
  }
  // The next kK of k, of which `left` exist.
  __device__ __forceinline__ void issue(uint32_t tile, int left) {
    const int bytes = min(max(4 * (kAlongK ? left - side_ : rows_), 0), 16);
#pragma unroll
    for (int line = 0; line < kLines; line += kAtOnce) {
      const bool there = bytes && (kAlongK ? line < rows_ : line + line_ < left);
      copy_async(tile + ((line + line_) * kPitch + side_) * 4, from_ + line / kAtOnce * hop_, there ? bytes : 0);
    }
    from_ += step_;
  }
  // The row of the tile of one of a thread's sums.
  static __device__ __forceinline__ int row(int thread, int group, int i) {
    return kAlongK ? thread + (group * 4 + i) * kAcross : (thread + group * kAcross) * 4 + i;
  }
  // v[c][i]: element i of a group at k + c.
  static __device__ __forceinline__ void load(float (&v)[4][4], const float* tile, int thread, int group, int k) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const Vec<float, 4> x = load_vec<float, 4>(kAlongK ? tile + row(thread, group, i) * kPitch + k
                                                         : tile + (k + i) * kPitch + row(thread, group, 0));
#pragma unroll
      for (int j = 0; j < 4; ++j) (kAlongK ? v[j][i] : v[i][j]) = x.v[j];
    }
  }

 private:
  const float* from_;
  int64_t hop_, step_;
  int line_, side_;
  int rows_;  // from this thread's first on
};

// The threads' high side takes a, or b where kTurned: it is the slower one with k side by side, for the banks of registers.
// grid: (tiles, batch), the tiles of a column of d one after the other.
template <bool kTurned, bool kHighAlongK, bool kWideAlongK>
__global__ void __launch_bounds__(SimtF32Tile::kThreads, 2)
    gemm_simt_f32(const __grid_constant__ GemmParams p, int64_t tiles_m) {
  using Tile = SimtF32Tile;
  using High = SimtF32Operand<kHighAlongK, Tile::kHigh>;
  using Wide = SimtF32Operand<kWideAlongK, Tile::kWide>;
  constexpr int kStage = High::kFloats + Wide::kFloats, kPart = Tile::kRows / High::kGroups,
                kSums = kPart * Tile::kRows;
  __shared__ __align__(16) float smem[2 * kStage > kSums ? 2 * kStage : kSums];
  pdl_wait();
  pdl_launch();
  if constexpr (!kHasAsyncCopy) return;

  const int64_t row0 = blockIdx.x % tiles_m * Tile::kRows, col0 = blockIdx.x / tiles_m * Tile::kRows,
                batch = blockIdx.y;
  const float* a = static_cast<const float*>(p.a.data) + batch * p.a.batch;
  const float* b = static_cast<const float*>(p.b.data) + batch * p.b.batch;
  High x(kTurned ? b : a, kTurned ? p.b.row : p.a.col, kTurned ? p.b.col : p.a.row, kTurned ? p.n : p.m,
         kTurned ? col0 : row0);
  Wide y(kTurned ? a : b, kTurned ? p.a.col : p.b.row, kTurned ? p.a.row : p.b.col, kTurned ? p.m : p.n,
         kTurned ? row0 : col0);
  const int high = threadIdx.x / Tile::kWide, wide = threadIdx.x % Tile::kWide;
  const int steps = static_cast<int>((p.k + Tile::kK - 1) / Tile::kK);
  const auto issue = [&](int step) {
    const int64_t left = p.k - int64_t{step} * Tile::kK;
    const int exist = static_cast<int>(left < Tile::kK ? left : Tile::kK);
    const uint32_t tile = smem_address(smem + (step & 1) * kStage);
    x.issue(tile, exist);
    y.issue(tile + High::kFloats * 4, exist);
    copy_commit();
  };
  float sum[High::kGroups][4][Wide::kGroups][4] = {};

  if (steps) issue(0);
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    copy_wait<0>();
    __syncthreads();  // the tile is there, and everyone has left the other stage
    if (step + 1 < steps) issue(step + 1);
    const float* tile = smem + (step & 1) * kStage;
#pragma unroll
    for (int kk = 0; kk < Tile::kK; kk += 4) {
      float u[High::kGroups][4][4];
#pragma unroll
      for (int h = 0; h < High::kGroups; ++h) High::load(u[h], tile, high, h, kk);
#pragma unroll
      for (int w = 0; w < Wide::kGroups; ++w) {
        float v[4][4];
        Wide::load(v, tile + High::kFloats, wide, w, kk);
#pragma unroll
        for (int c = 0; c < 4; ++c)
#pragma unroll
          for (int h = 0; h < High::kGroups; ++h)
#pragma unroll
            for (int i = 0; i < 4; ++i)
#pragma unroll
              for (int j = 0; j < 4; ++j) sum[h][i][w][j] = fmaf(u[h][c][i], v[c][j], sum[h][i][w][j]);
      }
    }
  }

  // Epilogue: kPart rows (turned: columns) of d at a time through shared memory.
  constexpr int kColumns = kTurned ? kPart : Tile::kRows;
#pragma unroll
  for (int h = 0; h < High::kGroups; ++h) {
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int w = 0; w < Wide::kGroups; ++w)
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const int s = High::row(high, 0, i), t = Wide::row(wide, w, j), r = kTurned ? t : s;
          smem[r * kColumns + gemm_tile_column(r, kTurned ? s : t)] = sum[h][i][w][j];
        }
    __syncthreads();
    gemm_store_tile<float, kColumns>(p, smem, kTurned ? Tile::kRows : kPart, batch, row0 + (kTurned ? 0 : h * kPart),
                                     col0 + (kTurned ? h * kPart : 0));
  }
}

}  // namespace ek
