// SPDX-License-Identifier: Apache-2.0
// The kernel behind the forward norms: a row is read once, as 16-byte vectors, and stays in the registers of its team
// (part of a warp, a block, or a cluster) until the result is written. Registers hold the packed vectors, which are
// converted again for each pass: that halves the registers of 16-bit rows. Sums in f32; layer_norm in two passes.
#pragma once

#include "cuda/pdl.cuh"
#include "ops/norm/norm_call.cuh"

namespace ek {

// Knobs that change no bit of a result. Loads that keep nothing in L1 leave it to weight and bias, which every row wants.
constexpr bool kNormStreamLoads = true;
constexpr bool kNormStreamStores = false;
// Up to so many vectors in a thread, weight (bias) is loaded before the reduction, not after: latency for registers.
// A second input, or quantization, counts double.
constexpr int kNormEarlyWeight = 4;
constexpr int kNormEarlyBias = 2;

// 16 bytes as they came. Elements are taken out of whole words: typed as an array of 16-bit elements, what is kept would
// take a register for each of them.
using NormRaw = Vec<uint32_t, 4>;

template <class T>
__device__ __forceinline__ NormRaw norm_load(const T* p) {
  const uint32_t* words = reinterpret_cast<const uint32_t*>(p);
  return kNormStreamLoads ? load_vec_stream<uint32_t, 4>(words) : load_vec<uint32_t, 4>(words);
}

// weight and bias: they stay in L1 for the next row.
template <class T>
__device__ __forceinline__ NormRaw norm_load_shared(const T* p) {
  return load_vec<uint32_t, 4>(reinterpret_cast<const uint32_t*>(p));
}

template <class T>
__device__ __forceinline__ void norm_unpack(const NormRaw& raw, float (&f)[kVec<T>]) {
  unpack(*reinterpret_cast<const Vec<T, kVec<T>>*>(&raw), f);
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
      for (int j = 0; j < V; ++j) gated[j] *= Silu<CudaMath>()(z[j]);
    }
  }

  // zero: another one for each pass. See hidden().
  __device__ __forceinline__ void values(float (&f)[V], uint32_t zero) const {
    if constexpr (kInput == NormInput::kGateFirst) {
#pragma unroll
      for (int j = 0; j < V; ++j) f[j] = gated[j];
    } else {
      norm_unpack<T>(sizeof(T) < 4 ? hidden(x, zero) : x, f);
    }
  }

  // After the norm.
  __device__ __forceinline__ void finish(float (&f)[V]) const {
    if constexpr (kInput == NormInput::kGateLast) {
      float z[V];
      norm_unpack<T>(other, z);
#pragma unroll
      for (int j = 0; j < V; ++j) f[j] *= Silu<CudaMath>()(z[j]);
    }
  }
};

// The most threads of a block, and how many blocks an SM should hold at least: 64 registers a thread, or 80 where a warp
// keeps a wide row to itself.
template <class Team>
constexpr int kNormBlock = 1024;
template <>
constexpr int kNormBlock<WarpTeam<2>> = kNormWarpBlock;
template <class Team, int K>
constexpr int kNormMinBlocks = kNormBlock<Team> == 1024 ? 1 : K == 8 ? 3 : 4;

template <class Op, int K, class Team>
__global__ void __launch_bounds__(kNormBlock<Team>, kNormMinBlocks<Team, K>)
    norm_rows_vec(const NormParams<typename Op::T, typename Op::Out> p) {
  if constexpr (Team::kCluster && !kHasClusters) return;
  using T = typename Op::T;
  using Out = typename Op::Out;
  constexpr int V = kVec<T>;
  __shared__ typename Team::Scratch scratch;
  Team team(scratch);

  for (int64_t first = team.first(); first < p.count; first += team.step()) {
    const int64_t row = first + threadIdx.y;
    const bool active = row < p.count;
    int64_t at[kNormTensors];
    p.offsets(row, at);
    const T* x = p.x + at[kNormX];
    T* other = p.other + at[kNormOther];
    const T* weight = p.weight + at[kNormWeight];
    Out* y = p.y + at[kNormY];
    // Every block has a row. Only addresses are computed before the wait; from the second row on it costs nothing.
    pdl_wait();
    pdl_launch();

    // Every load of the row is issued before any of them is used.
    NormPiece<T, Op::kInput> piece[K];
    bool in[K];
    const auto index = [&](int k) { return team.thread + k * team.threads; };
#pragma unroll
    for (int k = 0; k < K; ++k) {
      in[k] = active && index(k) < p.vectors;
      if (in[k]) piece[k].load(x + index(k) * V, other + index(k) * V);
    }
    // So are weight and bias, as far as registers allow; what is left comes after the reductions, a batch at a time.
    constexpr int kLoad = K * (Op::kInput == NormInput::kPlain && !Op::kQuant ? 1 : 2);
    constexpr bool kEarlyWeight = kLoad <= kNormEarlyWeight, kEarlyBias = kLoad <= kNormEarlyBias;
    constexpr int kBatch = 2;
    NormRaw w[kEarlyWeight ? K : kBatch], b[kEarlyBias ? K : kBatch];
    const bool has_weight = p.weight != nullptr, has_bias = p.bias != nullptr;
    const auto load_affine = [&](int k, bool take_weight, bool take_bias) {
      // One predicate and no branch, or the compiler would put the loads after the sums, which wait for the row.
      const bool want_weight = in[k] & has_weight, want_bias = in[k] & has_bias;
      NormRaw raw_weight = {}, raw_bias = {};  // 0 where absent
      if (take_weight && want_weight) raw_weight = norm_load_shared(weight + index(k) * V);
      if (Op::kCentre && take_bias && want_bias) raw_bias = norm_load_shared(p.bias + index(k) * V);
      if (take_weight) w[kEarlyWeight ? k : k % kBatch] = raw_weight;
      if (take_bias) b[kEarlyBias ? k : k % kBatch] = raw_bias;
    };
#pragma unroll
    for (int k = 0; k < K; ++k) load_affine(k, kEarlyWeight, kEarlyBias);

    // Sums. Vectors beyond the row are zeros and add nothing; only deviations from the mean have to leave them out.
    float base = 0.f, rest = 0.f, squares, total[1] = {0.f};
#pragma unroll
    for (int k = 0; k < K; ++k) {
      float f[V], s = 0.f;
      piece[k].settle(other + index(k) * V, in[k]);
      piece[k].values(f, 0);
#pragma unroll
      for (int j = 0; j < V; ++j) s += Op::kCentre ? f[j] : f[j] * f[j];
      total[0] += s;
    }
    team.reduce(total, Sum{});
    if constexpr (Op::kCentre) {
      // The mean is base + rest: base alone is rounded to f32, which shows where it is much larger than the deviations.
      base = total[0] * p.factor;
      float sum[2] = {0.f, 0.f};
#pragma unroll
      for (int k = 0; k < K; ++k) {
        float f[V], s = 0.f, q = 0.f;
        piece[k].values(f, p.zero[0]);
#pragma unroll
        for (int j = 0; j < V; ++j) {
          const float d = f[j] - base;
          s += d;
          q += d * d;
        }
        if (in[k]) sum[0] += s, sum[1] += q;
      }
      team.reduce(sum, Sum{});
      rest = sum[0] * p.factor;
      squares = sum[1] - sum[0] * rest;
      if (squares < 0.f) squares = 0.f;  // by rounding; NaN stays
    } else {
      squares = total[0];
    }
    const float rstd = rsqrtf(squares * p.factor + p.eps);
    if (active && team.thread == 0) {
      if (p.rstd) p.rstd[at[kNormRstd]] = rstd;
      if (Op::kCentre && p.mean) p.mean[at[kNormMean]] = base + rest;
    }

    // use(k, f) with the results of every vector in the row. Quantization needs all lanes for its shuffles: there,
    // vectors beyond the row come as zeros, or as NaN where all of the row is NaN.
    const auto each_result = [&](uint32_t zero, auto&& use) {
#pragma unroll
      for (int k = 0; k < K; ++k) {
        if (k % kBatch == 0)
#pragma unroll
          for (int i = k; i < k + kBatch; ++i) load_affine(i, !kEarlyWeight, !kEarlyBias);
        if (!Op::kQuant && !in[k]) continue;
        float f[V], wf[V];
        [[maybe_unused]] float bf[V];
        piece[k].values(f, zero);
        norm_unpack<T>(hidden(w[kEarlyWeight ? k : k % kBatch], zero), wf);
        if constexpr (Op::kCentre) norm_unpack<T>(b[kEarlyBias ? k : k % kBatch], bf);
#pragma unroll
        for (int j = 0; j < V; ++j) {
          if constexpr (Op::kCentre)
            f[j] = (f[j] - base - rest) * rstd * (wf[j] + p.weight_offset) + bf[j];
          else
            f[j] = f[j] * rstd * (wf[j] + p.weight_offset);
        }
        piece[k].finish(f);
        use(k, f);
      }
    };

    if constexpr (!Op::kQuant) {
      each_result(p.zero[1], [&](int k, float(&f)[V]) {
        if constexpr (kNormStreamStores)
          store_vec_stream(y + index(k) * V, pack<Out, V>(f));
        else
          store_vec(y + index(k) * V, pack<Out, V>(f));
      });
    } else {
      float* scale = p.scale + at[kNormScale];
      const auto largest = [](const float(&f)[V]) {
        float amax = 0.f;
#pragma unroll
        for (int j = 0; j < V; ++j) amax = MaxNan{}(amax, fabsf(f[j]));
        return amax;
      };
      const auto store = [&](int k, float(&f)[V], const Quantizer<Out>& quantize) {
#pragma unroll
        for (int j = 0; j < V; ++j) f[j] = quantize(f[j]);
        if (in[k]) store_vec(y + index(k) * V, pack<Out, V>(f));
      };
      if (p.group) {
        // A group is a run of lanes: a few shuffles find its maximum.
        const int lanes = p.group / V;
        each_result(p.zero[1], [&](int k, float(&f)[V]) {
          const Quantizer<Out> quantize(warp_reduce(largest(f), MaxNan{}, lanes));
          store(k, f, quantize);
          if (in[k] && index(k) % lanes == 0) scale[index(k) / lanes * p.scale_step] = quantize.scale;
        });
      } else {
        float amax[1] = {0.f};
        each_result(p.zero[0], [&](int, float(&f)[V]) { amax[0] = MaxNan{}(amax[0], largest(f)); });
        team.reduce(amax, MaxNan{});
        const Quantizer<Out> quantize(amax[0]);
        if (active && team.thread == 0) *scale = quantize.scale;
        each_result(p.zero[1], [&](int k, float(&f)[V]) { store(k, f, quantize); });
      }
    }
  }
}

}  // namespace ek
