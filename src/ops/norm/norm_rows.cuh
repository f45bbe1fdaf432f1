// SPDX-License-Identifier: Apache-2.0
// The kernel behind the forward norms: a row is read once, as 16-byte vectors, and stays in the registers of its team
// (part of a warp, a block, or a cluster) until the result is written. Registers hold the packed vectors, which are
// converted again for each pass: that halves the registers of 16-bit rows. Sums in f32; layer_norm in two passes, in clusters
// mostly in one.
// Instructions count here: at 4 TB/s an SM has time for about 900 of a warp that reads and writes four vectors a thread.
#pragma once

#include "cuda/pdl.cuh"
#include "cuda/tma.cuh"
#include "ops/norm/norm_call.cuh"
#include "ops/norm/norm_moments.cuh"

namespace ek {

// 16 bytes as they came. Elements are taken out of whole words: typed as an array of 16-bit elements, what is kept would
// take a register for each of them.
using NormRaw = Vec<uint32_t, 4>;

template <class T>
__device__ __forceinline__ NormRaw norm_load(const T* p) {
  return load_vec<uint32_t, 4>(reinterpret_cast<const uint32_t*>(p));
}

// kAgain: a pass that does not find what an earlier one has converted, which would take twice the registers.
template <class T, bool kAgain = false>
__device__ __forceinline__ void norm_unpack(const NormRaw& raw, float (&f)[kVec<T>]) {
  const auto& v = *reinterpret_cast<const Vec<T, kVec<T>>*>(&raw);
  if constexpr (kAgain && sizeof(T) == 2)
    unpack_again(v, f);
  else
    unpack(v, f);
}

// One vector of a row and what belongs to it.
template <class T, NormInput kInput>
struct NormPiece {
  static constexpr int V = kVec<T>;
  NormRaw x = {}, other = {};
  float gated[V];  // kGateFirst: x * silu(z), kept since silu costs more than registers

  __device__ __forceinline__ void load(const T* px, const T* pother) {
    x = norm_load(px);
    if constexpr (kInput != NormInput::kPlain) other = norm_load(pother);
  }

  // All loads are under way: make of them what is normalised.
  __device__ __forceinline__ void settle(T* pother, bool in) {
    if constexpr (kInput == NormInput::kAdd) {
#pragma unroll
      for (int i = 0; i < 4; ++i) x.v[i] = add_words<T>(x.v[i], other.v[i]);
      if (in) store_vec(reinterpret_cast<uint32_t*>(pother), x);
    } else if constexpr (kInput == NormInput::kGateFirst) {
      float z[V];
      norm_unpack<T>(x, gated);
      norm_unpack<T>(other, z);
#pragma unroll
      for (int j = 0; j < V; ++j) gated[j] *= Silu<CudaMathFor<T>>()(z[j]);
    }
  }

  template <int kPass, bool kAgain = false>
  __device__ __forceinline__ void values(float (&f)[V]) const {
    if constexpr (kInput == NormInput::kGateFirst) {
#pragma unroll
      for (int j = 0; j < V; ++j) f[j] = gated[j];
    } else {
      norm_unpack<T, kAgain>(sizeof(T) < 4 && kPass ? hidden<kPass>(x) : x, f);
    }
  }

  // After the norm.
  __device__ __forceinline__ void finish(float (&f)[V]) const {
    if constexpr (kInput == NormInput::kGateLast) {
      float z[V];
      norm_unpack<T>(other, z);
#pragma unroll
      for (int j = 0; j < V; ++j) f[j] *= Silu<CudaMathFor<T>>()(z[j]);
    }
  }
};

// What a kernel knows of its rows. kGroups: there is a quantization scale for each p.group elements. kWhole: each thread has K
// vectors of its row, rows are evenly spaced, weight (and bias) are given: nothing of it need be asked, which is half of the
// instructions. The sums are the same. kStays: the same again, in blocks that go on to further rows.
enum class NormShape { kAny, kGroups, kWhole, kStays };

// Registers, as threads of an SM of 65536. Light rows: 32 of them, or 40 with weight; other kinds: 40 for two vectors in a
// thread, 64 for more, 128 where weight and bias of few rows are held too. Blocks that stay have the next row beside this.
template <class Op, int K, bool kEarly, NormShape kShape>
constexpr int norm_threads_per_sm() {
  if (kShape == NormShape::kStays) return kNormStayThreads;
  if (K == 2 && !kEarly) return Op::kKind == NormKind::kLight ? 2048 : 1536;
  if (K == 2) return Op::kKind == NormKind::kLight || Op::kQuant ? 1536 : 1024;
  return kEarly && !Op::kQuant ? 512 : 1024;
}
template <class Op, int K, bool kEarly, NormShape kShape>
constexpr int kNormThreadsPerSm =
    norm_threads_per_sm<Op, K, kEarly, kShape>() < kSmThreads ? norm_threads_per_sm<Op, K, kEarly, kShape>()
                                                              : kSmThreads;
template <class Op, int K, class Team, bool kEarly>
constexpr int kNormBlock = Team::kWarp                         ? kNormWarpBlock
                           : Team::kMostThreads < 1024         ? Team::kMostThreads
                           : K == 2 || (kEarly && !Op::kQuant) ? 512
                                                               : 1024;

// kEarly: weight (and bias) are loaded before the sums: latency for registers. Quantization needs it so. Else before the
// last barrier, or after it where a thread holds eight vectors.
template <class Op, int K, class Team, bool kEarly, NormShape kShape = NormShape::kAny>
__global__ void __launch_bounds__(kNormBlock<Op, K, Team, kEarly>,
                                  kNormThreadsPerSm<Op, K, kEarly, kShape> / kNormBlock<Op, K, Team, kEarly>)
    norm_rows_vec(const NormParams<Op> p) {
  if constexpr (Team::kCluster && !kHasClusters) return;
  using T = typename Op::T;
  using Out = typename Op::Out;
  using Piece = NormPiece<T, Op::kInput>;
  constexpr int V = kVec<T>;
  constexpr bool kGroups = kShape == NormShape::kGroups, kStays = kShape == NormShape::kStays;
  constexpr bool kWhole = kStays || kShape == NormShape::kWhole;
  static_assert(!kWhole || !Op::kGated, "");
  __shared__ typename Team::Scratch scratch;
  Team team(scratch);

  // A warp takes 32 * K vectors side by side and a thread every 32nd of them, so that its addresses differ by constants;
  // in short rows, every so many-th as there are lanes. With groups, a thread has K vectors of one group.
  const int lanes = Team::kLanes ? Team::kLanes : team.threads;
  const int lane = Team::kLanes ? team.thread & 31 : team.thread;
  const int shift = kGroups ? p.group_shift : 0, step = kGroups ? 1 << shift : lanes;
  const int first = (team.thread - lane) * K + (kGroups ? (lane >> shift) * step * K + (lane & (step - 1)) : lane);
  uint32_t row = team.row();
  const bool active = kWhole || row < p.count;
  const T* x = p.x + p.template offset<kNormX, kWhole>(row) + first * V;
  T* other = p.other + p.template offset<kNormOther, kWhole>(row) + first * V;
  // Only addresses are computed before the wait.
  pdl_wait();
  pdl_launch();

  // Every load of the row is issued before any of them is used.
  Piece piece[K];
  bool in[K];
#pragma unroll
  for (int k = 0; k < K; ++k) {
    in[k] = kWhole || (active && first + k * step < p.vectors);
    if (in[k]) piece[k].load(x + k * step * V, other + k * step * V);
  }
  // No thread of the warp has a vector k, nor one after it: the same for all of them, so that the work is really skipped.
  // Only heavy rows gain by it.
  const auto beyond = [&](int k) {
    return Op::kKind == NormKind::kHeavy && !kGroups && !kWhole && k > 0 && first - lane + k * step >= p.vectors;
  };
  // Only gated rows have parts with a weight each.
  const T* weight = p.weight + (kWhole ? 0 : p.template offset<kNormWeight>(row)) + first * V;
  const T* bias = p.bias + first * V;
  // One predicate and no branch, or early loads would be put after the sums, which wait for the row.
  const auto affine = [&](const T* from, const T* at, int k, uint32_t absent) {
    const bool want = kWhole || (in[k] & (from != nullptr));
    NormRaw raw = {{absent, absent, absent, absent}};
    if (want) raw = norm_load(at + k * step * V);
    return raw;
  };
  // Whole rows that are centred have no registers for it, others none for what a pass has converted.
  constexpr bool kHeld = kEarly || (K <= 4 && !(kShape == NormShape::kWhole && Op::kCentre));
  constexpr bool kAgain = kShape == NormShape::kWhole && !kEarly && (K == 2 || K == 8);
  NormRaw held_weight[K], held_bias[K];
  const auto hold_affine = [&] {
#pragma unroll
    for (int k = 0; k < K; ++k) {
      held_weight[k] = affine(p.weight, weight, k, kOnes<T>);
      if (Op::kCentre) held_bias[k] = affine(p.bias, bias, k, 0);
    }
  };
  if constexpr (kEarly) hold_affine();
  // In blocks light norms are at the speed of copies without it, and those that quantize one input are slower with it.
  constexpr bool kPrefetches = Team::kCluster || (!Team::kWarp && (Op::kInput == NormInput::kAdd || Op::kCentre));
  if constexpr (kHasTma && kShape == NormShape::kWhole && kPrefetches)
    if (const uint32_t later = row + p.ahead; threadIdx.x == 0 && later < p.count) {
      const int bytes = blockDim.x * K * 16, share = team.thread * K * V;
      bulk_prefetch(p.x + p.template offset<kNormX, kWhole>(later) + share, bytes);
      if constexpr (Op::kInput != NormInput::kPlain)
        bulk_prefetch(p.other + p.template offset<kNormOther, kWhole>(later) + share, bytes);
    }
  // NOTE: here, since it also keeps the compiler, which is short of registers, from putting the last loads after the first sums.
  if constexpr (Team::kCluster) team.meet();
  const auto weight_of = [&](int k, float (&f)[V]) {
    norm_unpack<T>(kHeld ? hidden<3>(held_weight[k]) : affine(p.weight, weight, k, kOnes<T>), f);
    // Mostly 0; layer_norm has none.
    if (!Op::kCentre && p.weight_offset != 0.f) {
#pragma unroll
      for (int j = 0; j < V; ++j) f[j] += p.weight_offset;
    }
  };

  // The first row of the block counts the rounds, so that the compiler knows that all of its threads go along.
  for (uint32_t block_row = blockIdx.x * blockDim.y;;) {
    // Blocks that stay have the next row under way while they work on this one.
    [[maybe_unused]] Piece next[K];
    if constexpr (kStays) {
      static_assert(Op::kInput == NormInput::kPlain, "");
      block_row += gridDim.x * blockDim.y;
      x = p.x + p.template offset<kNormX, kWhole>(block_row + threadIdx.y) + first * V;
      if (block_row < p.count)
#pragma unroll
        for (int k = 0; k < K; ++k) next[k].load(x + k * step * V, nullptr);
    }

    // Sums. Vectors beyond the row are zeros and add nothing; only deviations from the mean have to leave them out.
    // Quantization keeps x * weight, in f32, and needs its largest magnitude in the row or in the group: times rstd, that is
    // the largest result. All of this before the barrier, where the SM has time.
    float mean = 0.f, squares, total[2] = {0.f, 0.f};
    [[maybe_unused]] float product[Op::kQuant ? K : 1][V];
#pragma unroll
    for (int k = 0; k < K; ++k) {
      if (beyond(k)) break;
      float f[V], s = 0.f;
      piece[k].settle(other + k * step * V, in[k]);
      piece[k].template values<0>(f);
#pragma unroll
      for (int j = 0; j < V; ++j) s += Op::kCentre ? f[j] : f[j] * f[j];
      total[0] += s;
      if constexpr (Op::kCentre && Team::kCluster) total[1] += norm_squares(f);
      if constexpr (Op::kQuant) {
        float w[V];
        weight_of(k, w);
#pragma unroll
        for (int j = 0; j < V; ++j) {
          product[k][j] = f[j] * w[j];
          total[1] = MaxNan{}(total[1], fabsf(product[k][j]));
        }
      }
    }
    if constexpr (Op::kCentre && Team::kCluster) {
      // One round of the cluster, and a second one where x^2 has lost too many digits: the same for all of its threads.
      if constexpr (kHeld && !kEarly) hold_affine();
      team.reduce(total, Sum{});
      mean = total[0] * p.factor;
      squares = total[1] - total[0] * mean;
      if (!norm_moments_suffice<T>(total[0] * mean, squares)) {
        total[0] = total[1] = 0.f;
#pragma unroll
        for (int k = 0; k < K; ++k) {
          if (beyond(k)) break;
          float f[V];
          piece[k].template values<1>(f);
#pragma unroll
          for (int j = 0; j < V; ++j) f[j] = in[k] ? f[j] - mean : 0.f;
#pragma unroll
          for (int j = 0; j < V; ++j) total[0] += f[j];
          total[1] += norm_squares(f);
        }
        team.reduce(total, Sum{});
        const float rest = total[0] * p.factor;
        squares = norm_deviations(total[0] * rest, total[1]);
        mean += rest;
      }
    } else if constexpr (Op::kQuant && !kGroups) {
      team.reduce_each(total, [](int v, float a, float b) { return v == 0 ? a + b : MaxNan{}(a, b); });
    } else {
      if constexpr (kGroups) total[1] = warp_reduce(total[1], MaxNan{}, step);
      if constexpr (kHeld && !kEarly && !Op::kCentre) hold_affine();
      float sum[1] = {total[0]};
      team.reduce(sum, Sum{});
      total[0] = sum[0];
    }
    if constexpr (Op::kCentre && !Team::kCluster) {
      // Two passes: the mean, then the squares of what is left. The mean's own rounding adds its square, far below f32.
      mean = total[0] * p.factor;
      float sum[1] = {0.f};
#pragma unroll
      for (int k = 0; k < K; ++k) {
        if (beyond(k)) break;
        float f[V], q = 0.f;
        piece[k].template values<1>(f);
#pragma unroll
        for (int j = 0; j < V; ++j) q += (f[j] - mean) * (f[j] - mean);
        if (in[k]) sum[0] += q;
      }
      if constexpr (kHeld && !kEarly) hold_affine();
      team.reduce(sum, Sum{});
      squares = sum[0];
    } else if constexpr (!Op::kCentre) {
      squares = total[0];
    }
    const float rstd = rsqrtf(squares * p.factor + p.eps);
    if (active && team.thread == 0) {
      if (p.rstd) p.rstd[p.template offset<kNormRstd, kWhole>(row)] = rstd;
      // NaN for a row with an infinity, as the squares are.
      if (Op::kCentre && p.mean)
        p.mean[p.template offset<kNormMean, kWhole>(row)] = squares != squares ? squares : mean;
    }

    // Results
    Out* y = p.y + p.template offset<kNormY, kWhole>(row) + first * V;
    if constexpr (!Op::kQuant) {
#pragma unroll
      for (int k = 0; k < K; ++k) {
        if (beyond(k)) break;
        if (!in[k]) continue;
        float f[V], w[V];
        piece[k].template values<2, kAgain>(f);
        weight_of(k, w);
        if constexpr (Op::kCentre) {
          float b[V];
          norm_unpack<T>(kHeld ? held_bias[k] : affine(p.bias, bias, k, 0), b);
#pragma unroll
          for (int j = 0; j < V; ++j) f[j] = (f[j] - mean) * (rstd * w[j]) + b[j];
        } else {
#pragma unroll
          for (int j = 0; j < V; ++j) f[j] = f[j] * rstd * w[j];
        }
        piece[k].finish(f);
        store_vec(y + k * step * V, pack<Out, V>(f));
      }
    } else {
      const Quantizer<Out> quantize(total[1] * rstd);
      float* scale = p.scale + p.template offset<kNormScale, kWhole>(row);
      if constexpr (kGroups) {
        if (in[0] && (lane & (step - 1)) == 0) scale[(first >> shift) / K * p.scale_step] = quantize.scale;
      } else {
        if (active && team.thread == 0) *scale = quantize.scale;
      }
#pragma unroll
      for (int k = 0; k < K; ++k)
        if (in[k]) store_vec(y + k * step * V, quantize(product[k], rstd));
    }

    if (!kStays || block_row >= p.count) break;
    row = block_row + threadIdx.y;
#pragma unroll
    for (int k = 0; k < K; ++k) piece[k] = next[k];
  }
}

}  // namespace ek
