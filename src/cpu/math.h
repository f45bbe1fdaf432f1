// SPDX-License-Identifier: Apache-2.0
// exp, sigmoid, tanh and erf for loops that vectorise: no branch, no table, no call; within 3 f32 ulp everywhere,
// denormal results included. NaN gives NaN: every limit below is a comparison that NaN fails.
// Polynomials are minimax fits to the stated interval, made for this file.
#pragma once

#include "cpu/convert.h"

namespace ek::EK_CPU_NS {

struct Math {
  static EK_INLINE float exp(float x) {
    x = x > 89.f ? 89.f : x;      // overflows: infinity
    x = x < -104.f ? -104.f : x;  // below half the smallest denormal: 0
    const Split s = split(x);
    return (1.f + expm1_small(s.r)) * power2(s.n >> 1) * power2(s.n - (s.n >> 1));
  }

  // exp(-|x|) never overflows, and small results keep their digits.
  static EK_INLINE float sigmoid(float x) {
    const float t = exp(-__builtin_fabsf(x));
    return (x < 0.f ? t : 1.f) / (1.f + t);
  }

  static constexpr float kSigmoidScale = 1.f;
  static EK_INLINE float sigmoid_scaled(float x) { return sigmoid(x); }

  // e / (e + 2) with e = exp(2 |x|) - 1, built so that no digit is lost near 0.
  static EK_INLINE float tanh(float x) {
    float a = __builtin_fabsf(x);
    a = a > 10.f ? 10.f : a;  // 1 in f32 from 9.02 on
    const Split s = split(2.f * a);
    const float power = power2(s.n);
    const float e = expm1_small(s.r) * power + (power - 1.f);
    return __builtin_copysignf(e / (e + 2.f), x);
  }

  static EK_INLINE float erf(float x) {
    float a = __builtin_fabsf(x);
    a = a > 4.f ? 4.f : a;  // 1 in f32 from 3.92 on
    // |x| < 0.9: x * p(x^2)
    const float t = a * a;
    float p = 8.513104694e-05f;
    p = p * t - 8.175639668e-04f;
    p = p * t + 5.203858949e-03f;
    p = p * t - 2.686050907e-02f;
    p = p * t + 1.128371507e-01f;
    p = p * t - 3.761263490e-01f;
    p = p * t + 1.128379226f;
    // 0.9 ... 4: 1 - exp(q(x)), q = log(erfc)
    float q = 1.971815509e-04f;
    q = q * a - 3.055606037e-03f;
    q = q * a + 2.227708139e-02f;
    q = q * a - 1.040373445e-01f;
    q = q * a - 6.370597482e-01f;
    q = q * a - 1.127749562f;
    q = q * a - 1.774963603e-04f;
    const Split s = split(q);
    const float tail = 1.f - (1.f + expm1_small(s.r)) * power2(s.n);
    return __builtin_copysignf(a < 0.9f ? a * p : tail, x);
  }

 private:
  struct Split {
    float r;    // |r| <= log(2) / 2
    int32_t n;  // x = n log(2) + r
  };
  static EK_INLINE Split split(float x) {
    const float magic = 12582912.f;  // 1.5 * 2^23: rounds to an integer, which is then in the low bits
    const float shifted = x * 1.44269504f + magic;
    const float n = shifted - magic;
    // log(2) in two parts; n times the first is exact.
    const float r = (x - n * 0.693145752f) - n * 1.42860682e-06f;
    return {r, static_cast<int32_t>(bits_of(shifted) - bits_of(magic))};
  }
  // exp(r) - 1 for |r| <= log(2) / 2
  static EK_INLINE float expm1_small(float r) {
    float p = 1.395054045e-03f;
    p = p * r + 8.368917741e-03f;
    p = p * r + 4.166620597e-02f;
    p = p * r + 1.666651815e-01f;
    p = p * r + 0.5f;
    return r + r * r * p;
  }
  // 2^n for -126 <= n <= 127
  static EK_INLINE float power2(int32_t n) { return float_of((static_cast<uint32_t>(n) + 127u) << 23); }
};

}  // namespace ek::EK_CPU_NS
