// SPDX-License-Identifier: Apache-2.0
// Quantizing a group of f32 values: value = q * scale, scale = max(|value|) / limit.
#pragma once

#include <cstdint>

#include "cuda/vec.cuh"

namespace ek {

template <class Q>
constexpr float kQuantLimit = 1.f;
template <>
constexpr float kQuantLimit<e4m3> = 448.f;
template <>
constexpr float kQuantLimit<int8_t> = 127.f;

// v / scale for many v: a product with the reciprocal and one correction give the quotient rounded to nearest, as the
// division would. An infinite scale: the correction is switched off, since 0 * inf would make NaN of finite values.
template <class Q>
struct Quantizer {
  float scale, reciprocal, divisor;

  __device__ __forceinline__ explicit Quantizer(float amax) {
    scale = (amax < 1e-20f ? 1e-20f : amax) / kQuantLimit<Q>;  // NaN is not less and stays
    reciprocal = 1.f / scale;
    divisor = scale == __int_as_float(0x7f800000) ? 0.f : scale;
  }
  __device__ __forceinline__ float operator()(float v) const {
    const float q = v * reciprocal;
    return fmaf(fmaf(-q, divisor, v), reciprocal, q);
  }
};

}  // namespace ek
