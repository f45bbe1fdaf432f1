// SPDX-License-Identifier: Apache-2.0
// gemm for few rows of a (m <= 16): all the time goes into reading b once, so b goes from memory straight into the
// registers of mma.sync, without shared memory, barriers or a second kernel. b is contiguous along k (PyTorch's weights).
//
// A block has 16 columns of d at a time; its eight warps share k, and add up their sums in shared memory at the end.
// mma multiplies 16 of n by 8 of m by 16 of k. Which k is which does not matter as long as a and b agree, so a lane takes
// 8 neighbours of k in one 16-byte load and calls them two pairs of k for each of two mma:
//   lane l of b: columns l / 4 and l / 4 + 8, k = 8 (l % 4) ...        lane l of a: row l / 4, the same k
#pragma once

#include "cuda/mma.cuh"
#include "cuda/pdl.cuh"
#include "cuda/traffic.cuh"
#include "ops/gemm/gemm_epilogue.cuh"

namespace ek {

constexpr int kSkinnyWarps = 8;
constexpr int kSkinnyStep = 32;  // of k in one load of a warp

struct GemmSkinnyParams {
  const void* a;  // [m, k]
  const void* b;  // [n, k]
  const void* c;  // [m, n], half as many columns if gated, or nullptr
  void* d;
  int64_t a_row, b_col, c_row, d_row;
  int64_t a_batch, b_batch, c_batch, d_batch;
  int64_t m, n, k;
  GemmEpilogue epilogue;
  bool gated, constant_b, out_f32;
};

inline GemmSkinnyParams gemm_skinny_params(const GemmCall& c) {
  GemmSkinnyParams p;
  p.a = c.a.data;
  p.b = c.b.data;
  p.c = c.c.data;
  p.d = c.d.data;
  p.a_row = c.a.row;
  p.b_col = c.b.col;
  p.c_row = c.c.row;
  p.d_row = c.d.row;
  p.a_batch = c.a.batch;
  p.b_batch = c.b.batch;
  p.c_batch = c.c.batch;
  p.d_batch = c.d.batch;
  p.m = c.m;
  p.n = c.n;
  p.k = c.k;
  p.epilogue = gemm_epilogue_of(c);
  p.gated = c.gated;
  p.constant_b = c.constant_b;
  p.out_f32 = c.out == EK_DTYPE_F32;
  return p;
}

template <class T, int kTiles_, int kTokens_, int kUnroll_, int kBlocks_, bool kOnce_ = false>
struct GemmSkinnyShape {
  using Type = T;
  static constexpr int kWarps = kSkinnyWarps;
  static constexpr int kTiles = kTiles_;    // of 16 columns of d
  static constexpr int kTokens = kTokens_;  // of 8 rows of a
  static constexpr int kUnroll = kUnroll_;  // steps of k that are loaded while as many are multiplied
  static constexpr int kBlocks = kBlocks_;  // of an SM
  static constexpr bool kOnce = kOnce_;     // k is at most kMaxOnce: each warp has it in one load
  static constexpr int kMaxOnce = kSkinnyStep * kUnroll * kSkinnyWarps;
  static constexpr int kCols = 16 * kTiles;
  static constexpr int kSmemBytes = kSkinnyWarps * kTiles * kTokens * 32 * 16;
};

// kUnroll steps of k of the columns of a lane; 0 past the end of k.
template <class S>
struct SkinnyB {
  uint4 v[S::kUnroll][S::kTiles][2];

  __device__ __forceinline__ void load(const typename S::Type* const (&col)[S::kTiles][2], int at, int k) {
#pragma unroll
    for (int u = 0; u < S::kUnroll; ++u) {
      const int i = at + u * kSkinnyStep;
#pragma unroll
      for (int t = 0; t < S::kTiles; ++t)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          v[u][t][h] = make_uint4(0, 0, 0, 0);
          load_once(v[u][t][h], col[t][h] + i, i < k);
        }
    }
  }
};

// The same of the rows of a lane; past the last they are the last one again, and what comes of them is dropped.
template <class S>
struct SkinnyA {
  // All steps at once, before they are multiplied. Of 16 rows the registers are not there: the compiler finds the places.
  static constexpr bool kAhead = S::kTokens == 1;
  uint4 v[S::kUnroll][S::kTokens];

  __device__ __forceinline__ void load(const typename S::Type* const (&row)[S::kTokens], int at, int k) {
#pragma unroll
    for (int u = 0; u < S::kUnroll; ++u) {
      const int i = at + u * kSkinnyStep;
#pragma unroll
      for (int s = 0; s < S::kTokens; ++s) {
        v[u][s] = make_uint4(0, 0, 0, 0);
        if constexpr (kAhead)
          load_if(v[u][s], row[s] + i, i < k);
        else if (i < k)
          v[u][s] = *reinterpret_cast<const uint4*>(row[s] + i);
      }
    }
  }
};

// What the warps have for a column and row, added up.
template <class S>
__device__ __forceinline__ float gemm_skinny_sum(const float4* sums, int col, int row) {
  const int tile = col / 16, h = col / 8 % 2, s = row / 8;
  const float* at =
      reinterpret_cast<const float*>(sums + (tile * S::kTokens + s) * 32 + col % 8 * 4 + row % 8 / 2) + h * 2 + row % 2;
  float sum = 0.f;
#pragma unroll 8
  for (int w = 0; w < S::kWarps; ++w) sum += at[w * S::kTiles * S::kTokens * 128];
  return sum;
}

// From the sums of the warps to d; a thread for each pair of columns of a row, which is gate and up of a gated product. thread:
// which one this is.
template <class S>
__device__ __forceinline__ void gemm_skinny_store(const GemmSkinnyParams& p, const float4* sums, int64_t first_col,
                                                  int64_t batch, int thread) {
  using T = typename S::Type;
  const int rows = static_cast<int>(p.m);
  for (int e = thread; e < S::kCols / 2 * rows; e += S::kWarps * 32) {
    const int col = e % (S::kCols / 2) * 2, row = e / (S::kCols / 2);
    const int64_t n = first_col + col;
    if (n >= p.n) continue;
    const bool both = n + 1 < p.n;
    float z[2] = {gemm_skinny_sum<S>(sums, col, row) * p.epilogue.alpha,
                  gemm_skinny_sum<S>(sums, col + 1, row) * p.epilogue.alpha};
    if (p.epilogue.bias) {
      const T* bias = static_cast<const T*>(p.epilogue.bias) + n;
      z[0] += static_cast<float>(bias[0]);
      if (both) z[1] += static_cast<float>(bias[1]);
    }
    int64_t out = n;
    int count = both ? 2 : 1;
    if (p.gated) {
      float gate[1] = {z[0]};
      p.out_f32 ? gemm_activate<float>(p.epilogue.act, gate) : gemm_activate<T>(p.epilogue.act, gate);
      z[0] = gate[0] * z[1];
      out = n / 2;
      count = 1;
    } else {
      p.out_f32 ? gemm_activate<float>(p.epilogue.act, z) : gemm_activate<T>(p.epilogue.act, z);
    }
    const int64_t d_at = batch * p.d_batch + row * p.d_row + out, c_at = batch * p.c_batch + row * p.c_row + out;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (i == count) break;
      float y = z[i] * p.epilogue.out_scale;
      if (p.out_f32) {
        if (p.c) y += p.epilogue.beta * static_cast<const float*>(p.c)[c_at + i];
        static_cast<float*>(p.d)[d_at + i] = y;
      } else {
        if (p.c) y += p.epilogue.beta * static_cast<float>(static_cast<const T*>(p.c)[c_at + i]);
        static_cast<T*>(p.d)[d_at + i] = static_cast<T>(y);
      }
    }
  }
}

template <class S>
__global__ __launch_bounds__(kSkinnyWarps * 32,
                             S::kBlocks) void gemm_skinny(const __grid_constant__ GemmSkinnyParams p) {
  using T = typename S::Type;
  extern __shared__ float4 sums[];  // [warp][tile][8 rows of a][lane]
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
  const int64_t batch = blockIdx.y, stride = static_cast<int64_t>(gridDim.x) * S::kCols;
  const int k = static_cast<int>(p.k);

  const T* b[S::kTiles][2];
  const auto point_at = [&](int64_t first_col) {
#pragma unroll
    for (int t = 0; t < S::kTiles; ++t)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        // Columns past the end read the last one again; their results are dropped.
        const int64_t col = min(first_col + t * 16 + h * 8 + g, p.n - 1);
        b[t][h] = static_cast<const T*>(p.b) + batch * p.b_batch + col * p.b_col;
      }
  };
  const T* a[S::kTokens];
#pragma unroll
  for (int s = 0; s < S::kTokens; ++s)
    a[s] = static_cast<const T*>(p.a) + batch * p.a_batch + min(static_cast<int64_t>(s * 8 + g), p.m - 1) * p.a_row;

  constexpr int kStep = kSkinnyStep * S::kUnroll;
  const int first_k = warp * kStep + q * 8;
  SkinnyB<S> now;
  point_at(static_cast<int64_t>(blockIdx.x) * S::kCols);
  if (!p.constant_b) pdl_wait();
  now.load(b, first_k, k);
  if (p.constant_b) pdl_wait();
  pdl_launch();

  for (int64_t first_col = static_cast<int64_t>(blockIdx.x) * S::kCols; first_col < p.n; first_col += stride) {
    float acc[S::kTiles][S::kTokens][4] = {};
    for (int at = first_k; at - q * 8 < k; at += kStep * kSkinnyWarps) {
      SkinnyA<S> rows;
      [[maybe_unused]] SkinnyB<S> next;
      rows.load(a, at, k);
      if constexpr (!S::kOnce) next.load(b, at + kStep * kSkinnyWarps, k);
#pragma unroll
      for (int u = 0; u < S::kUnroll; ++u) {
#pragma unroll
        for (int s = 0; s < S::kTokens; ++s) {
          const uint4 x = rows.v[u][s];
#pragma unroll
          for (int t = 0; t < S::kTiles; ++t) {
            const uint4 w0 = now.v[u][t][0], w1 = now.v[u][t][1];
            mma<T>(acc[t][s], {w0.x, w1.x, w0.y, w1.y}, x.x, x.y);
            mma<T>(acc[t][s], {w0.z, w1.z, w0.w, w1.w}, x.z, x.w);
          }
        }
      }
      if constexpr (S::kOnce)
        break;
      else
        now = next;
    }
    // The next columns are on their way while these are added up.
    if (first_col + stride < p.n) {
      point_at(first_col + stride);
      now.load(b, first_k, k);
    }
#pragma unroll
    for (int t = 0; t < S::kTiles; ++t)
#pragma unroll
      for (int s = 0; s < S::kTokens; ++s)
        sums[((warp * S::kTiles + t) * S::kTokens + s) * 32 + lane] =
            make_float4(acc[t][s][0], acc[t][s][1], acc[t][s][2], acc[t][s][3]);
    __syncthreads();
    gemm_skinny_store<S>(p, sums, first_col, batch, threadIdx.x);
    __syncthreads();
  }
}

}  // namespace ek
