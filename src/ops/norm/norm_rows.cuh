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
// Up to so many vectors of a thread, weight (bias) is loaded before the reduction, not after: latency for registers.
constexpr int kNormEarlyWeight = 4;
constexpr int kNormEarlyBias = 2;

// One vector of a row and what belongs to it.
template <class T, NormInput kInput>
struct NormPiece {
  static constexpr int V = kVec<T>;
  Vec<T, V> x = {}, other = {};
  float gated[V];  // kGateFirst: x * silu(z), kept since silu costs more than registers

  __device__ __forceinline__ void load(const T* px, const T* pother) {
    x = kNormStreamLoads ? load_vec_stream<T, V>(px) : load_vec<T, V>(px);
    if constexpr (kInput != NormInput::kPlain)
      other = kNormStreamLoads ? load_vec_stream<T, V>(pother) : load_vec<T, V>(pother);
  }

  // All loads are under way: make of them what is normalised.
  __device__ __forceinline__ void settle(T* pother, bool in) {
    if constexpr (kInput == NormInput::kAdd) {
      float a[V], b[V];
      unpack(x, a);
      unpack(other, b);
#pragma unroll
      for (int j = 0; j < V; ++j) a[j] += b[j];
      x = pack<T, V>(a);
      if (in) store_vec(pother, x);
    } else if constexpr (kInput == NormInput::kGateFirst) {
      float z[V];
      unpack(x, gated);
      unpack(other, z);
#pragma unroll
      for (int j = 0; j < V; ++j) gated[j] *= Silu<CudaMath>()(z[j]);
    }
  }

  __device__ __forceinline__ void values(float (&f)[V]) const {
    if constexpr (kInput == NormInput::kGateFirst) {
#pragma unroll
      for (int j = 0; j < V; ++j) f[j] = gated[j];
    } else {
      unpack(x, f);
    }
  }

  // Between two passes.
  __device__ __forceinline__ void forget_values() {
    if constexpr (kInput != NormInput::kGateFirst && sizeof(T) < 4) forget(x);
  }

  // After the norm.
  __device__ __forceinline__ void finish(float (&f)[V]) const {
    if constexpr (kInput == NormInput::kGateLast) {
      float z[V];
      unpack(other, z);
#pragma unroll
      for (int j = 0; j < V; ++j) f[j] *= Silu<CudaMath>()(z[j]);
    }
  }
};

template <class T>
__device__ __forceinline__ Vec<T, kVec<T>> norm_load_or(const T* p, int i, float absent) {
  constexpr int V = kVec<T>;
  if (p) return load_vec<T, V>(p + i * V);
  float f[V];
#pragma unroll
  for (int j = 0; j < V; ++j) f[j] = absent;
  return pack<T, V>(f);
}

// All kernels keep to 64 registers, so that an SM holds at least 1024 threads.
template <class Team>
constexpr int kNormBlock = 1024;
template <>
constexpr int kNormBlock<WarpTeam<2>> = kNormWarpBlock;

template <class Op, int K, class Team>
__global__ void __launch_bounds__(kNormBlock<Team>, 1024 / kNormBlock<Team>)
    norm_rows_vec(const NormParams<typename Op::T, typename Op::Out> p) {
  if constexpr (Team::kCluster && !kHasClusters) return;
  using T = typename Op::T;
  using Out = typename Op::Out;
  constexpr int V = kVec<T>;
  __shared__ typename Team::Scratch scratch;
  Team team(scratch);
  pdl_wait();
  pdl_launch();

  for (int64_t first = team.first(); first < p.count; first += team.step()) {
    const int64_t row = first + threadIdx.y;
    const bool active = row < p.count;
    int64_t at[kNormTensors];
    p.offsets(row, at);
    const T* x = p.x + at[kNormX];
    T* other = p.other + at[kNormOther];
    const T* weight = p.weight ? p.weight + at[kNormWeight] : nullptr;
    Out* y = p.y + at[kNormY];

    // Every load of the row is issued before any of them is used.
    NormPiece<T, Op::kInput> piece[K];
    Vec<T, V> early_weight[K], early_bias[K];
    bool in[K];
    const auto index = [&](int k) { return team.thread + k * team.threads; };
#pragma unroll
    for (int k = 0; k < K; ++k) {
      in[k] = active && index(k) < p.vectors;
      if (in[k]) piece[k].load(x + index(k) * V, other + index(k) * V);
    }
#pragma unroll
    for (int k = 0; k < K; ++k) {
      if (K <= kNormEarlyWeight && in[k]) early_weight[k] = norm_load_or(weight, index(k), 1.f);
      if (Op::kCentre && K <= kNormEarlyBias && in[k]) early_bias[k] = norm_load_or(p.bias, index(k), 0.f);
    }

    // Sums. Vectors beyond the row are zeros and add nothing; only deviations from the mean have to leave them out.
    float base = 0.f, rest = 0.f, squares = 0.f;
    float sum[2] = {0.f, 0.f};
#pragma unroll
    for (int k = 0; k < K; ++k) {
      float f[V], s = 0.f;
      piece[k].settle(other + index(k) * V, in[k]);
      piece[k].values(f);
#pragma unroll
      for (int j = 0; j < V; ++j) s += Op::kCentre ? f[j] : f[j] * f[j];
      sum[0] += s;
    }
    if constexpr (Op::kCentre) {
      // The mean is base + rest: base alone is rounded to f32, which shows where it is much larger than the deviations.
      float total[1] = {sum[0]};
      team.reduce(total, Sum{});
      base = total[0] * p.factor;
      sum[0] = 0.f;
#pragma unroll
      for (int k = 0; k < K; ++k) {
        float f[V], s = 0.f, q = 0.f;
        piece[k].forget_values();
        piece[k].values(f);
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
      float total[1] = {sum[0]};
      team.reduce(total, Sum{});
      squares = total[0];
    }
    const float rstd = rsqrtf(squares * p.factor + p.eps);
    if (active && team.thread == 0) {
      if (p.rstd) p.rstd[at[kNormRstd]] = rstd;
      if (Op::kCentre && p.mean) p.mean[at[kNormMean]] = base + rest;
    }

    const auto normalised = [&](int k, float(&f)[V]) {
      float w[V], b[V];
      piece[k].forget_values();
      piece[k].values(f);
      unpack(K <= kNormEarlyWeight ? early_weight[k] : norm_load_or(weight, index(k), 1.f), w);
      if constexpr (Op::kCentre) unpack(K <= kNormEarlyBias ? early_bias[k] : norm_load_or(p.bias, index(k), 0.f), b);
#pragma unroll
      for (int j = 0; j < V; ++j) {
        if constexpr (Op::kCentre)
          f[j] = (f[j] - base - rest) * rstd * w[j] + b[j];
        else
          f[j] = f[j] * rstd * (w[j] + p.weight_offset);
      }
      piece[k].finish(f);
    };

    if constexpr (!Op::kQuant) {
#pragma unroll
      for (int k = 0; k < K; ++k) {
        if (!in[k]) continue;
        float f[V];
        normalised(k, f);
        if constexpr (kNormStreamStores)
          store_vec_stream(y + index(k) * V, pack<Out, V>(f));
        else
          store_vec(y + index(k) * V, pack<Out, V>(f));
      }
    } else {
      const auto largest = [&](int k, float(&f)[V]) {
        float amax = 0.f;
        if (in[k]) {
          normalised(k, f);
#pragma unroll
          for (int j = 0; j < V; ++j) amax = MaxNan{}(amax, fabsf(f[j]));
        }
        return amax;
      };
      const auto store = [&](int k, float(&f)[V], const Quantizer<Out>& quantize) {
#pragma unroll
        for (int j = 0; j < V; ++j) f[j] = quantize(f[j]);
        if (in[k]) store_vec(y + index(k) * V, pack<Out, V>(f));
      };
      float* scale = p.scale + at[kNormScale];
      if (p.group) {
        // Groups are runs of lanes: each has its maximum from a few shuffles.
        const int lanes = p.group / V;
#pragma unroll
        for (int k = 0; k < K; ++k) {
          float f[V] = {};
          const Quantizer<Out> quantize(warp_reduce(largest(k, f), MaxNan{}, lanes));
          store(k, f, quantize);
          if (in[k] && index(k) % lanes == 0) scale[index(k) / lanes * p.scale_step] = quantize.scale;
        }
      } else {
        float amax[1] = {0.f};
#pragma unroll
        for (int k = 0; k < K; ++k) {
          float f[V];
          amax[0] = MaxNan{}(amax[0], largest(k, f));
        }
        team.reduce(amax, MaxNan{});
        const Quantizer<Out> quantize(amax[0]);
        if (active && team.thread == 0) *scale = quantize.scale;
#pragma unroll
        for (int k = 0; k < K; ++k) {
          if (!in[k]) continue;
          float f[V];
          normalised(k, f);
          store(k, f, quantize);
        }
      }
    }
  }
}

}  // namespace ek
