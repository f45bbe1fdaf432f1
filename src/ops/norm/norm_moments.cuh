// SPDX-License-Identifier: Apache-2.0
// Mean and deviations from sums of x and x^2, taken in one round, and when they do not suffice.
#pragma once

#include "cuda/vec.cuh"

namespace ek {

template <int N>
__device__ __forceinline__ float norm_squares(const float (&f)[N]) {
  float sum = 0.f;
#pragma unroll
  for (int j = 0; j < N; ++j) sum += f[j] * f[j];
  return sum;
}

// of_mean = count * mean^2, deviations = sum of x^2 - of_mean. Where the mean is large beside the deviation, the difference has
// lost digits: as many as T can spare, or more, and deviations from the mean are to be summed in a second round.
template <class T>
__device__ __forceinline__ bool norm_moments_suffice(float of_mean, float deviations) {
  constexpr float kMostMean = sizeof(T) == 4 ? 2.f : 32.f;
  return of_mean <= kMostMean * deviations && deviations < __int_as_float(0x7f800000);
}

// Of that second round: not less than 0 by rounding; NaN stays.
__device__ __forceinline__ float norm_deviations(float of_mean, float squares) {
  const float deviations = squares - of_mean;
  return deviations < 0.f ? 0.f : deviations;
}

}  // namespace ek
