// SPDX-License-Identifier: Apache-2.0
// The kernel behind the forward norms: a row is read once, as 16-byte vectors, and stays in the registers of its team
// (part of a warp, a block, or a cluster) until the result is written. Registers hold the packed vectors, which are
// converted again for each pass: that halves the registers of 16-bit rows. Sums in f32; layer_norm in two passes.
#pragma once

#include "cuda/pdl.cuh"
#include "ops/norm/norm_call.cuh"

namespace ek {

// 16 bytes as they came. Elements are taken out of whole words: typed as an array of 16-bit elements, what is kept would
// take a register for each of them.
using NormRaw = Vec<uint32_t, 4>;

template <class T>
__device__ __forceinline__ NormRaw norm_load(const T* p) {
  return load_vec<uint32_t, 4>(reinterpret_cast<const uint32_t*>(p));
}

template <class T>
__device__ __forceinline__ void norm_unpack(const NormRaw& raw, float (&f)[kVec<T>]) {
  unpack(*reinterpret_cast<const Vec<T, kVec<T>>*>(&raw), f);
}

// 1 in every element of a word.
template <class T>
constexpr uint32_t kOnes = std::is_same_v<T, bf16>   ? 0x3f803f80
                           : std::is_same_v<T, half> ? 0x3c003c00
                                                     : 0x3f800000;

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
      float a[V], b[V];
      norm_unpack<T>(x, a);
      norm_unpack<T>(other, b);
#pragma unroll
      for (int j = 0; j < V; ++j) a[j] += b[j];
      const Vec<T, V> sum = pack<T, V>(a);
      x = *reinterpret_cast<const NormRaw*>(&sum);
      if (in) store_vec(reinterpret_cast<uint32_t*>(pother), x);
    } else if constexpr (kInput == NormInput::kGateFirst) {
      float z[V];
      norm_unpack<T>(x, gated);
      norm_unpack<T>(other, z);
#pragma unroll
      for (int j = 0; j < V; ++j) gated[j] *= Silu<CudaMathFor<T>>()(z[j]);
    }
  }

  template <int kPass>
  __device__ __forceinline__ void values(float (&f)[V]) const {
    if constexpr (kInput == NormInput::kGateFirst) {
#pragma unroll
      for (int j = 0; j < V; ++j) f[j] = gated[j];
    } else {
      norm_unpack<T>(sizeof(T) < 4 && kPass ? hidden<kPass>(x) : x, f);
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

// The most threads that an SM of this target holds.
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ == 800 || (__CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1100)
constexpr int kSmThreads = 2048;
#elif __CUDA_ARCH__ < 800
constexpr int kSmThreads = 1024;
#else
constexpr int kSmThreads = 1536;
#endif

// Registers, as threads of an SM of 65536. Light rows: 32 of them, or 40 with weight; other kinds: 40 for two vectors in a
// thread, 64 for more, 128 where weight and bias of few rows are held too.
template <class Op, int K, bool kEarly>
constexpr int norm_threads_per_sm() {
  if (K == 2 && !kEarly) return Op::kKind == NormKind::kLight ? 2048 : 1536;
  if (K == 2) return Op::kKind == NormKind::kLight || Op::kQuant ? 1536 : 1024;
  return kEarly && !Op::kQuant ? 512 : 1024;
}
template <class Op, int K, bool kEarly>
constexpr int kNormThreadsPerSm =
    norm_threads_per_sm<Op, K, kEarly>() < kSmThreads ? norm_threads_per_sm<Op, K, kEarly>() : kSmThreads;
template <class Op, int K, class Team, bool kEarly>
constexpr int kNormBlock = Team::kWarp                         ? kNormWarpBlock
                           : K == 2 || (kEarly && !Op::kQuant) ? 512
                                                               : 1024;

// kEarly: weight (and bias) are loaded before the reductions, not after: latency for registers. Quantization needs it so.
template <class Op, int K, class Team, bool kEarly>
__global__ void __launch_bounds__(kNormBlock<Op, K, Team, kEarly>,
                                  kNormThreadsPerSm<Op, K, kEarly> / kNormBlock<Op, K, Team, kEarly>)
    norm_rows_vec(const NormParams<typename Op::T, typename Op::Out> p) {
  if constexpr (Team::kCluster && !kHasClusters) return;
  using T = typename Op::T;
  using Out = typename Op::Out;
  constexpr int V = kVec<T>;
  __shared__ typename Team::Scratch scratch;
  Team team(scratch);

  const uint32_t row = team.row();
  const bool active = row < p.rows.count;
  const T* x = p.x + p.rows.offset(kNormX, row);
  T* other = p.other + p.rows.offset(kNormOther, row);
  // Only addresses are computed before the wait.
  pdl_wait();
  pdl_launch();

  // Every load of the row is issued before any of them is used.
  NormPiece<T, Op::kInput> piece[K];
  bool in[K];
  const auto index = [&](int k) { return team.thread + k * team.threads; };
  // No thread of the team has a vector k, nor one after it: the same for all of them, so that the work is really skipped.
  // Only heavy rows gain by it.
  const auto beyond = [&](int k) { return Op::kCentre && k > 0 && k * team.threads >= p.vectors; };
#pragma unroll
  for (int k = 0; k < K; ++k) {
    in[k] = active && index(k) < p.vectors;
    if (in[k]) piece[k].load(x + index(k) * V, other + index(k) * V);
  }
  NormRaw early_weight[K], early_bias[K];
  const T* weight = p.weight + p.rows.offset(kNormWeight, row);
  // One predicate and no branch, or early loads would be put after the sums, which wait for the row.
  const auto affine = [&](const T* from, const T* at, int k, uint32_t absent) {
    const bool want = in[k] & (from != nullptr);
    NormRaw raw = {{absent, absent, absent, absent}};
    if (want) raw = norm_load(at + index(k) * V);
    return raw;
  };
  // An absent weight is 0, with an offset of 1 that costs an addition; layer_norm has no offset and counts instructions.
  constexpr uint32_t kNoWeight = Op::kCentre ? kOnes<T> : 0;
  if constexpr (kEarly)
#pragma unroll
    for (int k = 0; k < K; ++k) {
      early_weight[k] = affine(p.weight, weight, k, kNoWeight);
      if (Op::kCentre) early_bias[k] = affine(p.bias, p.bias, k, 0);
    }
  const auto weight_of = [&](int k, float (&f)[V]) {
    norm_unpack<T>(kEarly ? hidden<3>(early_weight[k]) : affine(p.weight, weight, k, kNoWeight), f);
    if constexpr (!Op::kCentre)
#pragma unroll
      for (int j = 0; j < V; ++j) f[j] += p.weight_offset;
  };

  // Sums. Vectors beyond the row are zeros and add nothing; only deviations from the mean have to leave them out.
  // Quantization keeps x * weight, in f32, and needs its largest magnitude in the row or in each group, which is a run of
  // lanes: times rstd, that is the largest result. All of this before the barrier, where the SM has time.
  float mean = 0.f, squares, total[2] = {0.f, 0.f};
  [[maybe_unused]] float product[Op::kQuant ? K : 1][V], largest[Op::kQuant ? K : 1];
  const int lanes = Op::kQuant ? p.group / V : 0;
#pragma unroll
  for (int k = 0; k < K; ++k) {
    if (beyond(k)) break;
    float f[V], s = 0.f;
    piece[k].settle(other + index(k) * V, in[k]);
    piece[k].template values<0>(f);
#pragma unroll
    for (int j = 0; j < V; ++j) s += Op::kCentre ? f[j] : f[j] * f[j];
    total[0] += s;
    if constexpr (Op::kQuant) {
      float w[V];
      weight_of(k, w);
      largest[k] = 0.f;
#pragma unroll
      for (int j = 0; j < V; ++j) {
        product[k][j] = f[j] * w[j];
        largest[k] = MaxNan{}(largest[k], fabsf(product[k][j]));
      }
      if (lanes)
        largest[k] = warp_reduce(largest[k], MaxNan{}, lanes);
      else
        total[1] = MaxNan{}(total[1], largest[k]);
    }
  }
  if constexpr (Op::kQuant) {
    team.reduce_each(total, [](int v, float a, float b) { return v == 0 ? a + b : MaxNan{}(a, b); });
  } else {
    float sum[1] = {total[0]};
    team.reduce(sum, Sum{});
    total[0] = sum[0];
  }
  if constexpr (Op::kCentre) {
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
    team.reduce(sum, Sum{});
    squares = sum[0];
  } else {
    squares = total[0];
  }
  const float rstd = rsqrtf(squares * p.factor + p.eps);
  if (active && team.thread == 0) {
    if (p.rstd) p.rstd[p.rows.offset(kNormRstd, row)] = rstd;
    // NaN for a row with an infinity, as the squares are.
    if (Op::kCentre && p.mean) p.mean[p.rows.offset(kNormMean, row)] = squares != squares ? squares : mean;
  }

  // Results
  Out* y = p.y + p.rows.offset(kNormY, row);
  if constexpr (!Op::kQuant) {
#pragma unroll
    for (int k = 0; k < K; ++k) {
      if (beyond(k)) break;
      if (!in[k]) continue;
      float f[V], w[V];
      piece[k].template values<2>(f);
      weight_of(k, w);
      if constexpr (Op::kCentre) {
        float b[V];
        norm_unpack<T>(kEarly ? early_bias[k] : affine(p.bias, p.bias, k, 0), b);
#pragma unroll
        for (int j = 0; j < V; ++j) f[j] = (f[j] - mean) * (rstd * w[j]) + b[j];
      } else {
#pragma unroll
        for (int j = 0; j < V; ++j) f[j] = f[j] * rstd * w[j];
      }
      piece[k].finish(f);
      store_vec(y + index(k) * V, pack<Out, V>(f));
    }
  } else {
    float* scale = p.scale + p.rows.offset(kNormScale, row);
    if (!lanes && active && team.thread == 0) *scale = Quantizer<Out>(total[1] * rstd).scale;
    const int log2_lanes = 31 - __clz(lanes);
#pragma unroll
    for (int k = 0; k < K; ++k) {
      if (!in[k]) continue;
      const Quantizer<Out> quantize((lanes ? largest[k] : total[1]) * rstd);
      store_vec(y + index(k) * V, quantize(product[k], rstd));
      if (lanes && (index(k) & (lanes - 1)) == 0) scale[(index(k) >> log2_lanes) * p.scale_step] = quantize.scale;
    }
  }
}

}  // namespace ek
