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

// One scale, and values over it. Reciprocals instead of divisions: two roundings of f32 more, nothing beside the step of
// an 8-bit format.
template <class Q>
struct Quantizer {
  float scale, reciprocal;

  __device__ __forceinline__ explicit Quantizer(float amax) {
    scale = (amax < 1e-20f ? 1e-20f : amax) * (1.f / kQuantLimit<Q>);  // NaN is not less and stays
    reciprocal = __fdividef(1.f, scale);  // exact to 1 ulp: scale is far below 2^126, or infinite, which gives 0
  }

  // v times `factor`, over the scale.
  template <int N>
  __device__ __forceinline__ Vec<Q, N> operator()(const float (&v)[N], float factor = 1.f) const {
    Vec<Q, N> q;
    const float multiplier = reciprocal * factor;
    if constexpr (std::is_same_v<Q, int8_t>) {
      // |v / scale| <= 127 but for roundings, so adding 1.5 * 2^23 leaves the nearest integer in the low byte. Where the
      // scale is not finite every quotient is 0 or NaN, and both are stored as 0.
      const bool finite = scale < __int_as_float(0x7f800000);
      const auto low = [&](int i) { return __float_as_uint(fmaf(v[i], multiplier, 12582912.f)); };
      if constexpr (N % 4 == 0) {
#pragma unroll
        for (int i = 0; i < N; i += 4) {
          const uint32_t a = __byte_perm(low(i), low(i + 1), 0x0040), b = __byte_perm(low(i + 2), low(i + 3), 0x0040);
          reinterpret_cast<uint32_t*>(&q)[i / 4] = finite ? __byte_perm(a, b, 0x5410) : 0;
        }
      } else {
#pragma unroll
        for (int i = 0; i < N; ++i) q.v[i] = static_cast<int8_t>(finite ? low(i) : 0);
      }
    } else {
      float f[N];
#pragma unroll
      for (int i = 0; i < N; ++i) f[i] = v[i] * multiplier;
      q = pack<Q, N>(f);
    }
    return q;
  }
};

}  // namespace ek
