// SPDX-License-Identifier: Apache-2.0
// group_norm of nchw groups in the registers of a cluster, where every thread has K vectors, weight and bias are given, a group
// is one run of memory and a warp's part of it of one channel: nothing of it need be asked, which is less than half of the
// instructions of group_norm_held. (The same for nhwc was 6 % slower than that.)
// Statistics in one round: each warp hands its sums of x and x^2 to all blocks. Where the mean is large beside the deviation,
// their difference would lose digits, and a second round sums deviations from the mean.
#pragma once

#include "cuda/team.cuh"
#include "ops/norm/group_norm.cuh"
#include "ops/norm/norm_moments.cuh"

namespace ek {

constexpr int kGroupNormWholeVectors = 8;    // of a thread
constexpr int kGroupNormWholeThreads = 512;  // of a block at most

// Registers: 48, so that ten blocks of 128 threads fill an SM; 64 for blocks of 512.
template <int kMost>
constexpr int kGroupNormWholeBlocks = (kMost <= 256 ? 1280 : 1024) / kMost;

template <class T, int kMost>
__global__ void __launch_bounds__(kMost, kSmThreads >= 1280 ? kGroupNormWholeBlocks<kMost> : 1)
    group_norm_whole(const GroupNormHeldParams<T> p) {
  if constexpr (kHasClusters) {
    constexpr int K = kGroupNormWholeVectors, V = kVec<T>;
    using Team = ClusterTeam<2, kMost / 32>;
    __shared__ typename Team::Scratch scratch;
    Team team(scratch);

    // A warp has 32 * K vectors side by side.
    const uint32_t unit = team.row(), image = p.per_image.divide(unit), of_image = unit - image * p.per_image.divisor;
    const uint32_t lane = threadIdx.x % 32, begin = team.rank * p.share + (threadIdx.x - lane) * K;
    const int64_t at = int64_t{begin + lane} * V;
    const uint32_t channel = of_image * static_cast<uint32_t>(p.channels) + p.run.divide(begin);
    const T* x = p.x + image * p.x_image + of_image * p.x_unit + at;
    pdl_wait();
    pdl_launch();

    // Every load is issued before any of them is used.
    GroupNormWords held[K];
#pragma unroll
    for (int k = 0; k < K; ++k) held[k] = load_vec<uint32_t, 4>(reinterpret_cast<const uint32_t*>(x + k * 32 * V));
    const T weight = p.weight[channel], bias = p.bias[channel];
    // NOTE: here, since it also keeps the compiler, which is short of registers, from putting the last loads after the first sums.
    team.meet();

    float sums[2] = {0.f, 0.f};
#pragma unroll
    for (int k = 0; k < K; ++k) {
      float f[V], s = 0.f;
      group_norm_unpack<T>(held[k], f);
#pragma unroll
      for (int j = 0; j < V; ++j) s += f[j];
      sums[0] += s;
      sums[1] += norm_squares(f);
    }
    team.reduce(sums, Sum{});
    float mean = sums[0] * p.factor, squares = sums[1] - sums[0] * mean;

    // Deviations, where squares of the mean have taken too many digits: the same for the whole cluster.
    if (!norm_moments_suffice<T>(sums[0] * mean, squares)) {
      sums[0] = sums[1] = 0.f;
#pragma unroll
      for (int k = 0; k < K; ++k) {
        float f[V];
        group_norm_unpack<T, true>(hidden<2>(held[k]), f);
#pragma unroll
        for (int j = 0; j < V; ++j) {
          const float d = f[j] - mean;
          sums[0] += d;
          sums[1] += d * d;
        }
      }
      team.reduce(sums, Sum{});
      const float rest = sums[0] * p.factor;
      squares = norm_deviations(sums[0] * rest, sums[1]);
      mean += rest;
    }
    const float rstd = rsqrtf(squares * p.factor + p.eps);

    const float scale = to_float(weight) * rstd, shift = to_float(bias) - mean * scale;
    T* y = p.y + image * p.y_image + of_image * p.y_unit + at;
#pragma unroll
    for (int k = 0; k < K; ++k) {
      float f[V];
      group_norm_unpack<T, true>(hidden<1>(held[k]), f);
#pragma unroll
      for (int j = 0; j < V; ++j) f[j] = f[j] * scale + shift;
      store_whole(y + k * 32 * V, pack<T, V>(f));
    }
  }
}

}  // namespace ek
