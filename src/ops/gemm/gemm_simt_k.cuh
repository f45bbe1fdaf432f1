// SPDX-License-Identifier: Apache-2.0
// Products of f32 on CUDA cores where a and b are contiguous along k: tiles come by cp.async and stay as they lie in memory, k
// side by side, so nothing is turned and nothing passes through registers. 128 x 128 with 8 x 8 sums to a thread; k is added one
// by one, so the bits are those of gemm_simt.
#pragma once

#include "cuda/mma.cuh"
#include "cuda/pdl.cuh"
#include "ops/gemm/gemm_store.cuh"

namespace ek {

struct SimtKPlan {
  static constexpr int kM = 128, kN = 128, kTileK = 16, kStages = 3;
  static constexpr int kThreads = 256, kAcross = 16;  // threads along m and along n; their sums are kAcross apart
  static constexpr int kEach = kM / kAcross;
  static constexpr int kPitch = kTileK + 4;  // floats: 16 bytes of eight rows are in different banks
  static constexpr int kStage = (kM + kN) * kPitch, kPart = kM / 2;
  static constexpr int kSmem = kStages * kStage * 4;
  static_assert(kM == kN && kPart * kN * 4 <= kSmem, "");
};

// This thread's 16-byte chunks of a tile's rows of k, of a or b.
class SimtKOperand {
 public:
  using Plan = SimtKPlan;
  __device__ __forceinline__ SimtKOperand(const float* x, int64_t step, int64_t rows, int64_t k, int64_t row0) : k_(k) {
#pragma unroll
    for (int i = 0; i < kChunks; ++i) {
      const int64_t row = row0 + threadIdx.x / kPerRow + i * kRowsAtOnce;
      row_[i] = row < rows ? x + row * step : nullptr;
    }
    x_ = x;
  }
  __device__ __forceinline__ void issue(uint32_t tile, int64_t k0) const {
    const int64_t at = k0 + threadIdx.x % kPerRow * 4;
    const int64_t left = (k_ - at) * 4;
    const uint32_t bytes = left <= 0 ? 0 : left < 16 ? static_cast<uint32_t>(left) : 16;
#pragma unroll
    for (int i = 0; i < kChunks; ++i) {
      const uint32_t to = (threadIdx.x / kPerRow + i * kRowsAtOnce) * Plan::kPitch + threadIdx.x % kPerRow * 4;
      const bool there = row_[i] && bytes;
      copy_async(tile + to * 4, there ? row_[i] + at : x_, there ? bytes : 0);
    }
  }

 private:
  static constexpr int kPerRow = Plan::kTileK / 4, kRowsAtOnce = Plan::kThreads / kPerRow;
  static constexpr int kChunks = Plan::kM / kRowsAtOnce;
  const float *x_, *row_[kChunks];  // null: beyond the last row
  int64_t k_;
};

// grid: (tiles, batch), the tiles of a column of d one after the other.
template <class Plan>
__global__ void __launch_bounds__(Plan::kThreads, 2)
    gemm_simt_k(const __grid_constant__ GemmParams p, int64_t tiles_m) {
  constexpr int kEach = Plan::kEach, kAcross = Plan::kAcross;
  extern __shared__ __align__(16) float simt_k_smem[];
  pdl_wait();
  pdl_launch();
  if constexpr (!kHasAsyncCopy) return;

  const int64_t row0 = blockIdx.x % tiles_m * Plan::kM, col0 = blockIdx.x / tiles_m * Plan::kN, batch = blockIdx.y;
  const SimtKOperand a(static_cast<const float*>(p.a.data) + batch * p.a.batch, p.a.row, p.m, p.k, row0);
  const SimtKOperand b(static_cast<const float*>(p.b.data) + batch * p.b.batch, p.b.col, p.n, p.k, col0);
  const int64_t steps = (p.k + Plan::kTileK - 1) / Plan::kTileK;
  const auto issue = [&](int64_t step, int stage) {
    if (step < steps) {
      const uint32_t tile = smem_address(simt_k_smem + stage * Plan::kStage);
      a.issue(tile, step * Plan::kTileK);
      b.issue(tile + Plan::kM * Plan::kPitch * 4, step * Plan::kTileK);
    }
    copy_commit();
  };
  // A warp has four rows and eight columns of each kAcross x kAcross sums: it reads 16 bytes of each at a time.
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int row = warp / 2 * 4 + lane / 8, col = warp % 2 * 8 + lane % 8;
  float sum[kEach][kEach] = {};

  int stage = 0, fill = Plan::kStages - 1;
#pragma unroll
  for (int i = 0; i < Plan::kStages - 1; ++i) issue(i, i);
#pragma unroll 1
  for (int64_t step = 0; step < steps; ++step) {
    copy_wait<Plan::kStages - 2>();
    __syncthreads();  // the tile is there, and everyone has left the stage that is filled next
    issue(step + Plan::kStages - 1, fill);
    const float* x_tile = simt_k_smem + stage * Plan::kStage + row * Plan::kPitch;
    const float* y_tile = simt_k_smem + stage * Plan::kStage + (Plan::kM + col) * Plan::kPitch;
#pragma unroll
    for (int k = 0; k < Plan::kTileK; k += 4) {
      Vec<float, 4> x[kEach];
#pragma unroll
      for (int i = 0; i < kEach; ++i) x[i] = load_vec<float, 4>(x_tile + i * kAcross * Plan::kPitch + k);
#pragma unroll
      for (int j = 0; j < kEach; ++j) {
        const Vec<float, 4> y = load_vec<float, 4>(y_tile + j * kAcross * Plan::kPitch + k);
#pragma unroll
        for (int c = 0; c < 4; ++c)
#pragma unroll
          for (int i = 0; i < kEach; ++i) sum[i][j] = fmaf(x[i].v[c], y.v[c], sum[i][j]);
      }
    }
    stage = stage + 1 == Plan::kStages ? 0 : stage + 1;
    fill = fill + 1 == Plan::kStages ? 0 : fill + 1;
  }
  copy_wait<0>();

  // Epilogue: half of the rows at a time through shared memory.
  constexpr int kRowsOfPart = Plan::kPart / kAcross;  // of a thread
#pragma unroll
  for (int part = 0; part < 2; ++part) {
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kRowsOfPart; ++i)
#pragma unroll
      for (int j = 0; j < kEach; ++j) {
        const int r = row + i * kAcross;
        simt_k_smem[r * Plan::kN + gemm_tile_column(r, col + j * kAcross)] = sum[part * kRowsOfPart + i][j];
      }
    __syncthreads();
    gemm_store_tile<float, Plan::kN>(p, simt_k_smem, Plan::kPart, batch, row0 + part * Plan::kPart, col0);
  }
}

}  // namespace ek
