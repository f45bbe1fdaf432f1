// SPDX-License-Identifier: Apache-2.0
// Products on CUDA cores: takes every call, with f32 multiplied exactly. k is added one by one in every tile, so that a
// row's bits depend on nothing but the row. 128 x 128 tiles with 8 x 8 sums to a thread; 32 x 64 for few rows. Aligned
// f32: gemm_simt_f32.cuh.
#include "cuda/pdl.cuh"
#include "ops/gemm/gemm_rows.h"
#include "ops/gemm/gemm_simt_f32.cuh"

namespace ek {

namespace {

constexpr int kTileK = 16;
constexpr int kQuad = 4;  // elements that a thread loads along one dim: 8 bytes of f16 and bf16, 16 of f32

// How quads lie: along k or across (along m of a, n of b), and whether they can be loaded as one.
struct Walk {
  bool along_k, wide;
};

Walk walk_of(const Matrix& x, int64_t k_step, int64_t step, int64_t batch, ek_dtype type) {
  const auto size = [](int64_t s) { return s < 0 ? -s : s; };
  const bool along_k = size(k_step) < size(step) || (k_step == 1 && step == 1);
  const int64_t inner = along_k ? k_step : step, outer = along_k ? step : k_step;
  const bool aligned = reinterpret_cast<uintptr_t>(x.data) % (kQuad * dtype_bytes(type)) == 0;
  return {along_k, aligned && inner == 1 && outer % kQuad == 0 && (batch == 1 || x.batch % kQuad == 0)};
}

// kRows rows of a (columns of b) by kTileK of k: from global memory to registers, then to shared memory as
// f32 [kTileK][kPitch].
template <class T, int kRows, int kThreads>
struct SimtOperand {
  static constexpr int kPitch = kRows + 4;  // halves the bank conflicts of quads along k, keeps rows on 16 bytes
  static constexpr int kQuads = kRows * kTileK / kQuad / kThreads;
  static constexpr int kFloats = kTileK * kPitch;
  static constexpr int kHopK = kThreads / (kRows / kQuad);  // across: from quad to quad of a thread
  const Walk walk;
  const T* from;       // this thread's first quad of the next tile
  int64_t inner, hop;  // steps: inside a quad, and to the thread's next quad
  int rows;            // of the tile

  // From row0 on.
  __device__ __forceinline__ SimtOperand(const T* x, int64_t k_step, int64_t step, int64_t all, int64_t row0, Walk w)
      : walk(w) {
    int row, kk;
    locate(0, row, kk);
    from = x + (row0 + row) * step + kk * k_step;
    inner = walk.along_k ? k_step : step;
    hop = walk.along_k ? kThreads / (kTileK / kQuad) * step : kHopK * k_step;
    rows = static_cast<int>(all - row0 < kRows ? all - row0 : kRows);
  }

  __device__ __forceinline__ void locate(int i, int& row, int& kk) const {
    const int q = threadIdx.x + i * kThreads;
    row = walk.along_k ? q / (kTileK / kQuad) : q % (kRows / kQuad) * kQuad;
    kk = walk.along_k ? q % (kTileK / kQuad) * kQuad : q / (kRows / kQuad);
  }

  // The next tile, of whose k `left` exist.
  __device__ __forceinline__ void fetch(float (&v)[kQuads][kQuad], int left) {
#pragma unroll
    for (int i = 0; i < kQuads; ++i) {
      int row, kk;
      locate(i, row, kk);
      // How many of the quad exist; beyond, zeros.
      const int count = walk.along_k ? (row < rows ? left - kk : 0) : (kk < left ? rows - row : 0);
      const T* quad = from + i * hop;
      if (walk.wide && count >= kQuad) {
        unpack(load_vec<T, kQuad>(quad), v[i]);
      } else {
#pragma unroll
        for (int j = 0; j < kQuad; ++j) v[i][j] = j < count ? to_float(quad[j * inner]) : 0.f;
      }
    }
    from += kTileK * (walk.along_k ? inner : hop / kHopK);  // kept as a number of its own, it spills
  }

  __device__ __forceinline__ void put(float* tile, const float (&v)[kQuads][kQuad]) const {
#pragma unroll
    for (int i = 0; i < kQuads; ++i) {
      int row, kk;
      locate(i, row, kk);
      if (walk.along_k) {
#pragma unroll
        for (int j = 0; j < kQuad; ++j) tile[(kk + j) * kPitch + row] = v[i][j];
      } else {
        *reinterpret_cast<float4*>(tile + kk * kPitch + row) = make_float4(v[i][0], v[i][1], v[i][2], v[i][3]);
      }
    }
  }
};

// The sums of a thread: kHigh x kWide quads of rows and columns, which lie a whole set of threads apart, so that the
// threads of a warp read neighbouring quads.
template <class T_, int kM_, int kN_, int kHigh_, int kWide_>
struct SimtPlan {
  using T = T_;
  static constexpr int kM = kM_, kN = kN_, kHigh = kHigh_, kWide = kWide_;
  static constexpr int kPartM = kM / kHigh, kPartN = kN / kWide, kThreadsN = kPartN / kQuad;
  static constexpr int kThreads = kPartM / kQuad * kThreadsN;
  using A = SimtOperand<T, kM, kThreads>;
  using B = SimtOperand<T, kN, kThreads>;
  static constexpr int kStage = A::kFloats + B::kFloats, kSums = kPartM * kN;
  static constexpr int kFloats = 2 * kStage > kSums ? 2 * kStage : kSums;
};

template <int kParts, int kPart>
__device__ __forceinline__ void load_quads(float (&v)[kParts][kQuad], const float* from) {
#pragma unroll
  for (int i = 0; i < kParts; ++i) {
    const float4 x = *reinterpret_cast<const float4*>(from + i * kPart);
    v[i][0] = x.x, v[i][1] = x.y, v[i][2] = x.z, v[i][3] = x.w;
  }
}

// grid: (tiles, batch), the tiles of a column of d one after the other.
template <class Plan>
__global__ void __launch_bounds__(Plan::kThreads, 2)
    gemm_simt(const __grid_constant__ GemmParams p, int64_t tiles_m, Walk walk_a, Walk walk_b) {
  using T = typename Plan::T;
  using A = typename Plan::A;
  using B = typename Plan::B;
  __shared__ __align__(16) float smem[Plan::kFloats];
  pdl_wait();
  pdl_launch();

  const int64_t row0 = blockIdx.x % tiles_m * Plan::kM, col0 = blockIdx.x / tiles_m * Plan::kN, batch = blockIdx.y;
  A a(static_cast<const T*>(p.a.data) + batch * p.a.batch, p.a.col, p.a.row, p.m, row0, walk_a);
  B b(static_cast<const T*>(p.b.data) + batch * p.b.batch, p.b.row, p.b.col, p.n, col0, walk_b);
  const int row = threadIdx.x / Plan::kThreadsN * kQuad, col = threadIdx.x % Plan::kThreadsN * kQuad;

  float sum[Plan::kHigh][kQuad][Plan::kWide][kQuad] = {};
  float a_next[A::kQuads][kQuad], b_next[B::kQuads][kQuad];

  // Multiply one tile of k while the next is on its way to registers; two places in shared memory, one barrier each.
  int stage = 1;
  for (int64_t left = p.k; left > -kTileK; left -= kTileK, stage ^= 1) {
    const bool more = left > 0;
    if (more) {
      const int exist = static_cast<int>(left < kTileK ? left : kTileK);
      a.fetch(a_next, exist);
      b.fetch(b_next, exist);
    }
    if (left < p.k) {
      const float* tile = smem + stage * Plan::kStage;
#pragma unroll
      for (int k = 0; k < kTileK; ++k) {
        float x[Plan::kHigh][kQuad], y[Plan::kWide][kQuad];
        load_quads<Plan::kHigh, Plan::kPartM>(x, tile + k * A::kPitch + row);
        load_quads<Plan::kWide, Plan::kPartN>(y, tile + A::kFloats + k * B::kPitch + col);
#pragma unroll
        for (int h = 0; h < Plan::kHigh; ++h)
#pragma unroll
          for (int i = 0; i < kQuad; ++i)
#pragma unroll
            for (int w = 0; w < Plan::kWide; ++w)
#pragma unroll
              for (int j = 0; j < kQuad; ++j) sum[h][i][w][j] = fmaf(x[h][i], y[w][j], sum[h][i][w][j]);
      }
    }
    if (more) {
      float* tile = smem + (stage ^ 1) * Plan::kStage;
      a.put(tile, a_next);
      b.put(tile + A::kFloats, b_next);
    }
    __syncthreads();
  }

  // Epilogue: kPartM rows at a time through shared memory.
#pragma unroll
  for (int h = 0; h < Plan::kHigh; ++h) {
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kQuad; ++i)
#pragma unroll
      for (int w = 0; w < Plan::kWide; ++w)
        *reinterpret_cast<float4*>(smem + (row + i) * Plan::kN + gemm_tile_column(row + i, w * Plan::kPartN + col)) =
            make_float4(sum[h][i][w][0], sum[h][i][w][1], sum[h][i][w][2], sum[h][i][w][3]);
    __syncthreads();
    gemm_store_tile<T, Plan::kN>(p, smem, Plan::kPartM, batch, row0 + h * Plan::kPartM, col0);
  }
}

Walk walk_of_a(const GemmCall& c) { return walk_of(c.a, c.a.col, c.a.row, c.batch, c.in); }
Walk walk_of_b(const GemmCall& c) { return walk_of(c.b, c.b.row, c.b.col, c.batch, c.in); }

// go(slab, grid, tiles of m) launches.
template <class F>
ek_status run_tiles(const GemmCall& call, int tile_m, int tile_n, int threads, F&& go) {
  const auto run_slab = [&](const GemmCall& c) {
    Grid grid;
    grid.blocks = dim3(static_cast<unsigned>(gemm_tiles(c, tile_m, tile_n)), static_cast<unsigned>(c.batch));
    grid.threads = dim3(threads);
    return go(c, grid, (c.m + tile_m - 1) / tile_m);
  };
  return gemm_for_each_part(call, tile_m, tile_n,
                            [&](const GemmCall& part) { return gemm_for_each_slab(part, run_slab); });
}

template <class Plan>
ek_status run_any(const GemmCall& call, const Launch& l) {
  const Walk a = walk_of_a(call), b = walk_of_b(call);
  return run_tiles(call, Plan::kM, Plan::kN, Plan::kThreads, [&](const GemmCall& c, const Grid& grid, int64_t tiles_m) {
    return launch(l, gemm_simt<Plan>, grid, gemm_params_of(c), tiles_m, a, b);
  });
}

ek_status run_f32(const GemmCall& call, const Launch& l, bool along_k_a, bool along_k_b) {
  using Tile = SimtF32Tile;
  const auto kernel = along_k_a   ? along_k_b ? gemm_simt_f32<false, true, true> : gemm_simt_f32<true, false, true>
                      : along_k_b ? gemm_simt_f32<false, false, true>
                                  : gemm_simt_f32<false, false, false>;
  return run_tiles(call, Tile::kRows, Tile::kRows, Tile::kThreads,
                   [&](const GemmCall& c, const Grid& grid, int64_t tiles_m) {
                     return launch(l, kernel, grid, gemm_params_of(c), tiles_m);
                   });
}

const char* why_not(const GemmCall&, const Device&) { return nullptr; }

ek_status run(const GemmCall& call, const Launch& l) {
  // Small tiles where large ones would be mostly empty or leave SMs without work.
  const int64_t large = call.batch * ((call.m + 127) / 128) * ((call.n + 127) / 128);
  const bool small = call.m <= 64 || call.n <= 64 || large < l.device.processors;
  const Walk a = walk_of_a(call), b = walk_of_b(call);
  // Its steps of k are counted in 32 bits.
  if (!small && call.in == EK_DTYPE_F32 && a.wide && b.wide && l.device.target >= 80 && call.k < int64_t{1} << 34)
    return run_f32(call, l, a.along_k, b.along_k);
  return with_float(call.in, [&](auto type) {
    using T = typename decltype(type)::type;
    return small ? run_any<SimtPlan<T, 32, 64, 1, 1>>(call, l) : run_any<SimtPlan<T, 128, 128, 2, 2>>(call, l);
  });
}

}  // namespace

const GemmKernel kGemmSimt = {sm(75), why_not, run, nullptr, kDeterministic | kBatchInvariant, 0};

}  // namespace ek
