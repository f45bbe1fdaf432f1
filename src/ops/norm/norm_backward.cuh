// SPDX-License-Identifier: Apache-2.0
// The backward pass of rms_norm and layer_norm, rows as 16-byte vectors. With g = dy * (weight + weight_offset) and
// xhat = (x - mean) * rstd (mean = 0 for rms_norm):
//   dx = rstd * (g - mean(g) - xhat * mean(g * xhat))     mean(g) for layer_norm only
//   dweight = sum over rows of dy * xhat,  dbias = sum over rows of dy
// Blocks stay for many rows and keep their sums of dweight and dbias in registers, in f32. Pairs of blocks add up theirs where
// there are clusters; each pair or block leaves one partial row in the workspace, and a second, small kernel adds those up in
// a fixed order.
//   bulk: rows of x and dy come to shared memory by bulk copies, some rows ahead, for a block or for each of its warps.
//   vec: through registers.
#pragma once

#include <type_traits>

#include "cuda/pdl.cuh"
#include "cuda/team.cuh"
#include "cuda/tma.cuh"
#include "cuda/vec.cuh"
#include "ops/norm/norm_config.h"

namespace ek {

enum NormBackwardTensor { kBackwardDy, kBackwardX, kBackwardDx, kBackwardRstd, kBackwardMean, kBackwardTensors };

template <class T>
struct NormBackwardParams {
  const T* dy;        // [rows, dim]
  const T* x;         // [rows, dim]
  const T* weight;    // [dim] or null
  const float* rstd;  // [rows] or null: to be computed
  const float* mean;  // [rows] or null; given together with rstd
  T* dx;              // [rows, dim]
  float* dweight;     // [pairs or blocks, dim] partial sums, or null
  float* dbias;       // [pairs or blocks, dim] partial sums, or null
  int64_t count, dim;
  int32_t vectors;
  float factor, eps, weight_offset;  // factor = 1 / dim
  bool even;                         // row r of tensor t begins at r * step[t]
  int64_t step[kBackwardTensors];
  Rows<kBackwardTensors> rows;  // else

  __device__ __forceinline__ void offsets(int64_t row, int64_t (&at)[kBackwardTensors]) const {
    if (even) {
#pragma unroll
      for (int t = 0; t < kBackwardTensors; ++t) at[t] = row * step[t];
    } else {
      rows.offsets(row, at);
    }
  }
};

using NormWords = Vec<uint32_t, 4>;  // 16 bytes as they came; see NormRaw in norm_rows.cuh

template <class T>
__device__ __forceinline__ NormWords load_words(const T* p) {
  return load_vec<uint32_t, 4>(reinterpret_cast<const uint32_t*>(p));
}
template <class T>
__device__ __forceinline__ void unpack_words(const NormWords& words, float (&f)[kVec<T>]) {
  unpack(*reinterpret_cast<const Vec<T, kVec<T>>*>(&words), f);
}

// mean and rstd of a row as they were given; 0 where they were not.
struct NormStats {
  float rstd = 0.f, mean = 0.f;
  template <class T>
  __device__ __forceinline__ void load(const NormBackwardParams<T>& p, int64_t row) {
    if (row >= p.count || !p.rstd) return;
    int64_t at[kBackwardTensors];
    p.offsets(row, at);
    rstd = p.rstd[at[kBackwardRstd]];
    if (p.mean) mean = p.mean[at[kBackwardMean]];
  }
};

// What a thread keeps from row to row: its columns of dweight and dbias, and those of weight if kHold. Where registers
// are short, weight is read again for each row.
template <bool kCentre, class T, int K, bool kHold>
struct NormColumns {
  static constexpr int V = kVec<T>;
  NormWords weight[kHold ? K : 1] = {};
  float dweight[K][V] = {};
  float dbias[kCentre ? K : 1][V] = {};

  // Weight of vector k. layer_norm: 1 where absent; rms_norm: 0, with an offset of 1.
  __device__ __forceinline__ NormWords load_weight(const NormBackwardParams<T>& p, int index) const {
    constexpr uint32_t kAbsent = kCentre ? kOnes<T> : 0;
    NormWords words = {{kAbsent, kAbsent, kAbsent, kAbsent}};
    if ((p.weight != nullptr) & (index < p.vectors)) words = load_words(p.weight + index * V);
    return words;
  }

  // One row. x(k) and dy(k) give its vectors, zeros beyond the row; between(): after the last barrier of the row, before
  // its second pass. `active`: the row exists. kHide: the vectors are registers, to be kept packed; see hidden().
  template <bool kHide, class Team, class X, class Dy, class Between>
  __device__ __forceinline__ void row(const NormBackwardParams<T>& p, Team& team, bool active, int64_t row,
                                      NormStats stats, const X& x, const Dy& dy, const Between& between) {
    const auto index = [&](int k) { return team.thread + k * team.threads; };
    // sum(g * (x - mean)) = sum(g * x) - mean * sum(g), which saves an instruction an element, and what that loses is far
    // less than the rounding of 16-bit x has lost. Blocks, which wait for each other, did not gain by it.
    constexpr bool kMeanLater = Team::kWarp && sizeof(T) == 2;
    const auto load = [&](auto pass, int k, float (&d)[V], float (&y)[V], float (&g)[V]) {
      float w[V];
      constexpr int kPass = decltype(pass)::value;
      constexpr bool kKeepPacked = kHide && sizeof(T) < 4;
      unpack_words<T>(kKeepPacked ? hidden<kPass>(x(k)) : x(k), d);
      unpack_words<T>(kKeepPacked ? hidden<kPass>(dy(k)) : dy(k), y);
      // Two vectors of weight may stay converted from row to row; more would take the registers of the sums.
      const NormWords held = weight[kHold ? k : 0];
      unpack_words<T>(!kHold ? load_weight(p, index(k)) : K > 2 ? hidden<kPass>(held) : held, w);
#pragma unroll
      for (int j = 0; j < V; ++j) {
        if (kCentre && (kPass == 2 || !kMeanLater)) d[j] -= stats.mean;
        g[j] = y[j] * (kCentre ? w[j] : w[j] + p.weight_offset);
      }
    };

    // What was not given
    if (!p.rstd) {
      const auto sum_over_x = [&](auto&& term) {
        float sum[1] = {0.f};
#pragma unroll
        for (int k = 0; k < K; ++k) {
          float f[V];
          unpack_words<T>(x(k), f);
          if (index(k) < p.vectors)
#pragma unroll
            for (int j = 0; j < V; ++j) sum[0] += term(f[j]);
        }
        team.reduce(sum, Sum{});
        return sum[0] * p.factor;
      };
      if (kCentre) stats.mean = sum_over_x([](float f) { return f; });
      const float squares = sum_over_x([&](float f) { return (f - stats.mean) * (f - stats.mean); });
      stats.rstd = rsqrtf(squares + p.eps);
    }

    // First pass: sums of g * (x - mean) and g. Beyond the row g is 0.
    float sum[kCentre ? 2 : 1] = {};
#pragma unroll
    for (int k = 0; k < K; ++k) {
      float d[V], y[V], g[V], gd = 0.f, gg = 0.f;
      load(std::integral_constant<int, 1>{}, k, d, y, g);
#pragma unroll
      for (int j = 0; j < V; ++j) {
        gd += g[j] * d[j];
        gg += g[j];
      }
      sum[0] += gd;
      if constexpr (kCentre) sum[1] += gg;
    }
    team.reduce(sum, Sum{});
    if (kCentre && kMeanLater) sum[0] -= stats.mean * sum[kCentre ? 1 : 0];
    between();

    // Second pass: dx, and this row's share of dweight and dbias.
    const float rstd = stats.rstd;
    const float along = sum[0] * rstd * p.factor * rstd;
    const float shift = kCentre ? sum[kCentre ? 1 : 0] * p.factor * rstd : 0.f;
    int64_t at[kBackwardTensors];
    p.offsets(row, at);
    T* dx = p.dx + at[kBackwardDx];
#pragma unroll
    for (int k = 0; k < K; ++k) {
      if (!active || index(k) >= p.vectors) continue;
      float d[V], y[V], g[V];
      load(std::integral_constant<int, 2>{}, k, d, y, g);
#pragma unroll
      for (int j = 0; j < V; ++j) {
        const float xhat = d[j] * rstd;
        dweight[k][j] += y[j] * xhat;
        if constexpr (kCentre) dbias[k][j] += y[j];
        d[j] = g[j] * rstd - shift - xhat * along;
      }
      store_vec(dx + index(k) * V, pack<T, V>(d));
    }
  }
};

// The block's partial row of `sums`, to row blockIdx.x of `partial`: where the block has several teams, theirs are added
// in order, by way of shared memory: rows [teams, dim], null where it is one team.
template <class T, int K>
__device__ __forceinline__ void norm_leave_sums(const NormBackwardParams<T>& p, float* partial,
                                                const float (&sums)[K][kVec<T>], float* rows) {
  constexpr int V = kVec<T>;
  float* to = rows ? rows + threadIdx.y * p.dim : partial + blockIdx.x * p.dim;
  if (rows) __syncthreads();  // it may still hold what others read
#pragma unroll
  for (int k = 0; k < K; ++k) {
    const int i = threadIdx.x + k * blockDim.x;
    if (i >= p.vectors) continue;
#pragma unroll
    for (int j = 0; j < V; j += 4)
      *reinterpret_cast<float4*>(to + i * V + j) =
          make_float4(sums[k][j], sums[k][j + 1], sums[k][j + 2], sums[k][j + 3]);
  }
  if (!rows) return;
  __syncthreads();
  const int thread = threadIdx.y * blockDim.x + threadIdx.x, threads = blockDim.x * blockDim.y;
  for (int c = thread; c < p.dim; c += threads) {
    float sum = 0.f;
    for (unsigned y = 0; y < blockDim.y; ++y) sum += rows[y * p.dim + c];
    partial[blockIdx.x * p.dim + c] = sum;
  }
}

// The same for pairs of blocks, clusters of two, each of one team. A thread has its sums in fours, of which block 0 of the pair
// adds up those with even numbers and block 1 the others; it gets the other block's in `slots` [dweight, dbias][half of the
// fours][threads], which this block has done with. arrived: an mbarrier for one arrival.
// NOTE: what this block read there was used in stores of dx that come before its arrival, so a relaxed one is enough.
template <bool kCentre, class T, int K, bool kHold>
__device__ __forceinline__ void norm_leave_pair_sums(const NormBackwardParams<T>& p,
                                                     const NormColumns<kCentre, T, K, kHold>& columns, float4* slots,
                                                     uint64_t* arrived) {
  constexpr int V = kVec<T>, kFours = K * V / 4;
  static_assert(kFours % 2 == 0, "");
  const int rank = static_cast<int>(cluster_rank()), thread = threadIdx.x, threads = blockDim.x;
  const int64_t row = blockIdx.x / 2;
  __syncthreads();  // nobody reads there any more
  if (thread == 0) {
    const int kinds = (p.dweight ? 1 : 0) + (kCentre && p.dbias ? 1 : 0);
    mbarrier_expect(arrived, kinds * kFours / 2 * threads * sizeof(float4));
  }
  cluster_arrive_relaxed();
  cluster_wait();

  const auto each = [&](const auto& f) {
#pragma unroll
    for (int i = 0; i < kFours; ++i) {
      float4* const slot = slots + i / 2 * threads + thread;
      const int vector = i * 4 / V, at = i * 4 % V;
      if (p.dweight) f(i, slot, columns.dweight[vector] + at, p.dweight + row * p.dim);
      if constexpr (kCentre)
        if (p.dbias) f(i, slot + kFours / 2 * threads, columns.dbias[vector] + at, p.dbias + row * p.dim);
    }
  };
  each([&](int i, float4* slot, const float* sums, float*) {
    if (i % 2 != rank) cluster_store_async(slot, arrived, rank ^ 1, make_float4(sums[0], sums[1], sums[2], sums[3]));
  });
  mbarrier_wait(arrived, 0);
  each([&](int i, const float4* slot, const float* sums, float* partial) {
    const int vector = thread + i * 4 / V * threads;
    if (i % 2 != rank || vector >= p.vectors) return;
    const float4 other = *slot;
    *reinterpret_cast<float4*>(partial + vector * V + i * 4 % V) =
        make_float4(sums[0] + other.x, sums[1] + other.y, sums[2] + other.z, sums[3] + other.w);
  });
}

// ---- bulk ------------------------------------------------------------------------------------------------------------

// Shared memory: [teams][stages][x, dy][vectors] of 16 bytes. Row i of a team goes through stage i % stages.
template <bool kCentre, class T, int K, class Team>
__global__ void __launch_bounds__(Team::kWarp ? 32 * kNormBulkWarps : kNormBackwardThreads, 1)
    norm_backward_bulk(const NormBackwardParams<T> p, int stages, bool pairs) {
  if constexpr (kHasTma) {
    extern __shared__ uint4 smem[];
    __shared__ uint64_t barriers[Team::kWarp ? kNormBulkWarps : 1][kNormBulkStages];
    __shared__ uint64_t arrived;
    __shared__ typename Team::Scratch scratch;
    Team team(scratch);
    const int number = Team::kWarp ? threadIdx.y : 0;  // of the team in its block
    uint4* mine = smem + number * stages * 2 * p.vectors;
    uint64_t* full = barriers[number];
    // Teams of a block are far apart, so that all blocks have some of the last rows.
    const int64_t first = blockIdx.x + static_cast<int64_t>(number) * gridDim.x;
    const int64_t step = Team::kWarp ? team.step() : gridDim.x;

    if (threadIdx.x == 0) {
      for (int s = 0; s < stages; ++s) mbarrier_init(&full[s], 1);
      if (!Team::kWarp) mbarrier_init(&arrived, 1);
      mbarrier_fence();
    }
    __syncthreads();
    pdl_wait();

    // One thread of a team asks for rows; a stage is free once everyone is past the next row's first pass.
    const auto fetch = [&](int stage, int64_t row) {
      if (row >= p.count) return;
      int64_t at[kBackwardTensors];
      p.offsets(row, at);
      const uint32_t bytes = p.vectors * 16;
      uint4* to = mine + stage * 2 * p.vectors;
      mbarrier_expect(&full[stage], 2 * bytes);
      bulk_load(to, p.x + at[kBackwardX], bytes, &full[stage]);
      bulk_load(to + p.vectors, p.dy + at[kBackwardDy], bytes, &full[stage]);
    };
    if (threadIdx.x == 0)
      for (int s = 0; s < stages; ++s) fetch(s, first + s * step);

    constexpr bool kHold = K <= 5;
    NormColumns<kCentre, T, K, kHold> columns;
    if constexpr (kHold)
#pragma unroll
      for (int k = 0; k < K; ++k) columns.weight[k] = columns.load_weight(p, team.thread + k * team.threads);

    NormStats stats;
    stats.load(p, first);
    int stage = 0, phase = 0;
    for (int64_t row = first; row < p.count; row += step) {
      NormStats next;
      next.load(p, row + step);
      mbarrier_wait(&full[stage], phase);
      const uint4* from = mine + stage * 2 * p.vectors;
      const auto vector = [&](const uint4* part, int k) {
        const int i = team.thread + k * team.threads;
        NormWords words = {};
        if (i < p.vectors) words = *reinterpret_cast<const NormWords*>(part + i);
        return words;
      };
      columns.template row<false>(
          p, team, true, row, stats, [&](int k) { return vector(from, k); },
          [&](int k) { return vector(from + p.vectors, k); },
          [&] {
            if constexpr (Team::kWarp) team.sync();  // a block was synchronised by its sums
            if (threadIdx.x == 0 && row != first) fetch(stage == 0 ? stages - 1 : stage - 1, row + (stages - 1) * step);
          });
      stats = next;
      if (++stage == stages) stage = 0, phase ^= 1;
    }

    pdl_launch();
    if constexpr (!Team::kWarp)
      if (pairs) return norm_leave_pair_sums(p, columns, reinterpret_cast<float4*>(smem), &arrived);
    float* rows = Team::kWarp ? reinterpret_cast<float*>(smem) : nullptr;
    if (p.dweight) norm_leave_sums<T, K>(p, p.dweight, columns.dweight, rows);
    if constexpr (kCentre)
      if (p.dbias) norm_leave_sums<T, K>(p, p.dbias, columns.dbias, rows);
  }
}

// ---- vec -------------------------------------------------------------------------------------------------------------

template <class T, int K>
struct NormBackwardRow {
  NormWords x[K] = {}, dy[K] = {};
  NormStats stats;

  template <class Team>
  __device__ __forceinline__ void load(const NormBackwardParams<T>& p, const Team& team, int64_t row) {
    int64_t at[kBackwardTensors];
    p.offsets(row, at);
#pragma unroll
    for (int k = 0; k < K; ++k) {
      const int i = team.thread + k * team.threads;
      const bool in = (row < p.count) & (i < p.vectors);
      x[k] = dy[k] = NormWords{};
      if (in) x[k] = load_words(p.x + at[kBackwardX] + i * kVec<T>);
      if (in) dy[k] = load_words(p.dy + at[kBackwardDy] + i * kVec<T>);
    }
    stats = NormStats();
    stats.load(p, row);
  }
};

// Dynamic shared memory for sums: [rows of the block, dim] f32 where a block has several rows, and the slots of pairs.
template <bool kCentre, class T, int K, class Team>
__global__ void __launch_bounds__(kNormBackwardThreads, 1)
    norm_backward_vec(const NormBackwardParams<T> p, bool pairs) {
  // The next row's loads are issued before this row is worked on, where registers allow it.
  constexpr bool kAhead = K <= 2;
  __shared__ typename Team::Scratch scratch;
  __shared__ uint64_t arrived;
  extern __shared__ float4 sums[];
  Team team(scratch);
  if (!Team::kWarp && threadIdx.x == 0) {
    mbarrier_init(&arrived, 1);
    mbarrier_fence();
  }
  pdl_wait();

  constexpr bool kHold = K <= 2 || !kCentre || sizeof(T) == 4;
  NormColumns<kCentre, T, K, kHold> columns;
  if constexpr (kHold)
#pragma unroll
    for (int k = 0; k < K; ++k) columns.weight[k] = columns.load_weight(p, team.thread + k * team.threads);
  NormBackwardRow<T, K> current, next;
  current.load(p, team, team.first() + threadIdx.y);
  for (int64_t first = team.first(); first < p.count; first += team.step()) {
    const int64_t row = first + threadIdx.y;
    if constexpr (kAhead) next.load(p, team, row + team.step());
    columns.template row<true>(
        p, team, row < p.count, row, current.stats, [&](int k) { return current.x[k]; },
        [&](int k) { return current.dy[k]; }, [] {});
    if constexpr (!kAhead) next.load(p, team, row + team.step());
    current = next;
  }

  pdl_launch();
  if constexpr (!Team::kWarp && kHasClusters)
    if (pairs) return norm_leave_pair_sums(p, columns, sums, &arrived);
  float* rows = Team::kWarp ? reinterpret_cast<float*>(sums) : nullptr;
  if (p.dweight) norm_leave_sums<T, K>(p, p.dweight, columns.dweight, rows);
  if constexpr (kCentre)
    if (p.dbias) norm_leave_sums<T, K>(p, p.dbias, columns.dbias, rows);
}

// ---- the sums over blocks --------------------------------------------------------------------------------------------

constexpr int kNormFinishColumns = 32, kNormFinishRows = 16;

// dweight (blockIdx.y = 0) and dbias (1) [dim] from partial sums [pairs or blocks, dim]; zeros where there was no row.
template <class T>
__global__ void __launch_bounds__(kNormFinishColumns* kNormFinishRows)
    norm_backward_finish(const float* dweight_partial, const float* dbias_partial, T* dweight, T* dbias, int64_t dim,
                         int blocks) {
  __shared__ float sums[kNormFinishRows][kNormFinishColumns];
  pdl_wait();
  pdl_launch();
  const float* partial = blockIdx.y ? dbias_partial : dweight_partial;
  T* out = blockIdx.y ? dbias : dweight;
  if (!out) return;
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kNormFinishColumns + threadIdx.x;
  float sum = 0.f;
  if (column < dim)
#pragma unroll 4
    for (int b = threadIdx.y; b < blocks; b += kNormFinishRows) sum += partial[b * dim + column];
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= dim) return;
#pragma unroll
  for (int i = 1; i < kNormFinishRows; ++i) sum += sums[i][threadIdx.x];
  out[column] = from_float<T>(sum);
}

}  // namespace ek
