// SPDX-License-Identifier: Apache-2.0
// The backward pass of rms_norm and layer_norm for any length and alignment, element by element, in up to four kernels:
// mean and rstd of each row where they were not given; dweight and dbias, columns side by side and rows cut into slices;
// the sum over slices; and last dx, which may overwrite x or dy. So x and dy are read three times (five, with the stats).
#pragma once

#include "ops/norm/norm_backward.cuh"

namespace ek {

// mean and rstd of a row, given or computed before.
template <class T>
__device__ __forceinline__ NormStats norm_stats(const NormBackwardParams<T>& p, const float* computed, int64_t row,
                                                const int64_t (&at)[kBackwardTensors]) {
  NormStats s;
  s.rstd = computed ? computed[row] : p.rstd[at[kBackwardRstd]];
  s.mean = computed ? computed[p.count + row] : p.mean ? p.mean[at[kBackwardMean]] : 0.f;
  return s;
}

// stats [2, rows]: rstd, then mean.
template <bool kCentre, class T, class Team>
__global__ void __launch_bounds__(512) norm_backward_stats(const NormBackwardParams<T> p, float* stats) {
  __shared__ typename Team::Scratch scratch;
  Team team(scratch);
  pdl_wait();
  pdl_launch();
  for (int64_t first = team.first(); first < p.count; first += team.step()) {
    const int64_t row = first + threadIdx.y, dim = row < p.count ? p.dim : 0;
    int64_t at[kBackwardTensors];
    p.offsets(row, at);
    const T* x = p.x + at[kBackwardX];
    float mean = 0.f, sum[1] = {0.f};
    if constexpr (kCentre) {
      for (int64_t i = team.thread; i < dim; i += team.threads) sum[0] += to_float(x[i]);
      team.reduce(sum, Sum{});
      mean = sum[0] * p.factor;
      sum[0] = 0.f;
    }
    for (int64_t i = team.thread; i < dim; i += team.threads) {
      const float d = to_float(x[i]) - mean;
      sum[0] += d * d;
    }
    team.reduce(sum, Sum{});
    if (row < p.count && team.thread == 0) {
      stats[row] = rsqrtf(sum[0] * p.factor + p.eps);
      stats[p.count + row] = mean;
    }
  }
}

constexpr int kNormColumnsRows = 8;

// A block: 32 columns of one slice of the rows. Partial sums [slices, dim].
template <bool kCentre, class T>
__global__ void __launch_bounds__(32 * kNormColumnsRows)
    norm_backward_columns(const NormBackwardParams<T> p, const float* stats, int64_t rows_per_slice) {
  __shared__ float sums[2][kNormColumnsRows][32];
  pdl_wait();
  pdl_launch();
  const int64_t column = static_cast<int64_t>(blockIdx.x) * 32 + threadIdx.x;
  const int64_t begin = blockIdx.y * rows_per_slice, end = min(p.count, begin + rows_per_slice);
  float dweight = 0.f, dbias = 0.f;
  if (column < p.dim)
    for (int64_t row = begin + threadIdx.y; row < end; row += kNormColumnsRows) {
      int64_t at[kBackwardTensors];
      p.offsets(row, at);
      const NormStats s = norm_stats(p, stats, row, at);
      const float y = to_float(p.dy[at[kBackwardDy] + column]);
      dweight += y * ((to_float(p.x[at[kBackwardX] + column]) - s.mean) * s.rstd);
      dbias += y;
    }
  sums[0][threadIdx.y][threadIdx.x] = dweight;
  sums[1][threadIdx.y][threadIdx.x] = dbias;
  __syncthreads();
  float* partial = threadIdx.y == 0 ? p.dweight : p.dbias;
  if (threadIdx.y > 1 || !partial || column >= p.dim) return;
  float sum = 0.f;
#pragma unroll
  for (int i = 0; i < kNormColumnsRows; ++i) sum += sums[threadIdx.y][i][threadIdx.x];
  partial[blockIdx.y * p.dim + column] = sum;
}

template <bool kCentre, class T, class Team>
__global__ void __launch_bounds__(512) norm_backward_dx(const NormBackwardParams<T> p, const float* stats) {
  __shared__ typename Team::Scratch scratch;
  Team team(scratch);
  pdl_wait();
  pdl_launch();
  for (int64_t first = team.first(); first < p.count; first += team.step()) {
    const int64_t row = first + threadIdx.y, dim = row < p.count ? p.dim : 0;
    int64_t at[kBackwardTensors];
    p.offsets(row, at);
    const T *x = p.x + at[kBackwardX], *dy = p.dy + at[kBackwardDy];
    T* dx = p.dx + at[kBackwardDx];
    NormStats s;
    if (row < p.count) s = norm_stats(p, stats, row, at);
    const auto gradient = [&](int64_t i) {
      return to_float(dy[i]) * ((p.weight ? to_float(p.weight[i]) : 0.f) + p.weight_offset);
    };
    float sum[2] = {0.f, 0.f};
    for (int64_t i = team.thread; i < dim; i += team.threads) {
      const float g = gradient(i);
      sum[0] += g * (to_float(x[i]) - s.mean);
      sum[1] += g;
    }
    team.reduce(sum, Sum{});
    const float along = sum[0] * s.rstd * p.factor, shift = kCentre ? sum[1] * p.factor : 0.f;
    for (int64_t i = team.thread; i < dim; i += team.threads) {
      const float xhat = (to_float(x[i]) - s.mean) * s.rstd;
      dx[i] = from_float<T>((gradient(i) - shift - xhat * along) * s.rstd);
    }
  }
}

}  // namespace ek
