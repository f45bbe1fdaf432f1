// SPDX-License-Identifier: Apache-2.0
// The math backends of the activation formulas on CUDA: a lean one for 16-bit tensors, and one accurate to a few f32
// ulp. cdf is the normal distribution, with all its digits in the lower tail; `density` becomes exp(-x^2 / 2).
#pragma once

#include <type_traits>

namespace ek {

// For f16 and bf16 tensors, whose rounding error is 2^-12 or more: at 4 TB/s an H200 has about 30 instruction slots for
// each 16-bit element of a unary op, conversions included, and expf with erff would take more. Relative errors (found
// over dense grids with 2^-22 assumed for each hardware approximation):
//   sigmoid 2^-17.8 for x > -87; below, results under 2^-126 become 0
//   cdf     2^-17.4 for x > -5.7 (where f16 results end), 2^-16.4 down to -12.9; below, 0
//   tanh    2^-17 for |x| < 6, 2^-15.6 beyond
struct CudaMathFast {
  static __device__ __forceinline__ float exp2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
  }
  static __device__ __forceinline__ float reciprocal(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
  }
  static constexpr float kSigmoidScale = -1.44269504f;  // - log2(e)
  static __device__ __forceinline__ float sigmoid_scaled(float x) { return reciprocal(1.f + exp2(x)); }
  static __device__ __forceinline__ float sigmoid(float x) { return sigmoid_scaled(x * kSigmoidScale); }

  // x * p(x^2) / q(x^2), a minimax fit of the relative error on |x| <= 6, where tanh is 1 - 1.2e-5. The comparisons, not
  // fminf, let NaN through.
  static __device__ __forceinline__ float tanh(float x) {
    x = x > 6.f ? 6.f : x;
    x = x < -6.f ? -6.f : x;
    const float s = x * x;
    const float p = (1.514560823e-03f * s + 1.148304690e-01f) * s + 9.999926740e-01f;
    const float q = ((5.627085787e-05f * s + 1.761105807e-02f) * s + 4.481136874e-01f) * s + 1.f;
    return x * p * reciprocal(q);
  }

  // The tail beyond |x| is exp(-x^2 / 2) t p(t) with t = 1 / (1 + 0.3075 |x|): a form that keeps the relative error for
  // negative x, where 0.5 + 0.5 erf(x / sqrt 2) would cancel. p is a minimax fit for |x| <= 14.
  static __device__ __forceinline__ float cdf(float x, float& density) {
    const float t = reciprocal(fabsf(x) * 0.3075f + 1.f);
    const float z = x * 0.849321800f;  // sqrt(log2(e) / 2)
    density = exp2(-(z * z));
    float p = -7.553515922e-02f;
    p = p * t + 1.911819663e-01f;
    p = p * t + 5.909854626e-03f;
    p = p * t + 1.369333804e-01f;
    p = p * t + 1.185788574e-01f;
    p = p * t + 1.229305909e-01f;
    const float tail = p * t * density;
    return x < 0.f ? tail : 1.f - tail;
  }
  static __device__ __forceinline__ float cdf(float x) {
    float density;
    return cdf(x, density);
  }
};

// For f32 tensors.
struct CudaMath {
  // exp(-|x|) never overflows, and small results keep their digits. __fdividef is 2 ulp for denominators below 2^126.
  static __device__ __forceinline__ float sigmoid(float x) {
    const float e = expf(-fabsf(x));
    return __fdividef(x < 0.f ? e : 1.f, 1.f + e);
  }
  static constexpr float kSigmoidScale = 1.f;
  static __device__ __forceinline__ float sigmoid_scaled(float x) { return sigmoid(x); }
  static __device__ __forceinline__ float tanh(float x) { return tanhf(x); }
  // The tail beyond |x| is exp(-x^2 / 2) t p(t) with t = 1 / (1 + |x| / 4), p a minimax fit for |x| <= 14.5: 4 ulp of the tail.
  // The rounding of x^2 would be a factor of the exponential, and that of t nearly as much. A third of normcdff's time.
  static __device__ __forceinline__ float cdf(float x, float& density) {
    float size = fabsf(x);
    size = size > 15.f ? 15.f : size;  // where the tail is 0; NaN stays
    const float quarter = 0.25f * size;
    float t = CudaMathFast::reciprocal(1.f + quarter);
    t = fmaf(t, fmaf(-quarter, t, 1.f - t), t);
    float p = 1.689239591e-02f;
    p = fmaf(p, t, -6.453712285e-02f);
    p = fmaf(p, t, 5.587935820e-02f);
    p = fmaf(p, t, 2.261105739e-02f);
    p = fmaf(p, t, 1.773458347e-02f);
    p = fmaf(p, t, 8.385130018e-02f);
    p = fmaf(p, t, 7.301277667e-02f);
    p = fmaf(p, t, 9.528786689e-02f);
    p = fmaf(p, t, 9.952145815e-02f);
    p = fmaf(p, t, 9.974633157e-02f);
    const float square = size * size, lost = fmaf(size, size, -square);
    density = expf(-0.5f * square);
    density = fmaf(-0.5f * lost, density, density);
    const float tail = p * t * density;
    return x < 0.f ? tail : 1.f - tail;
  }
  static __device__ __forceinline__ float cdf(float x) {
    float density;
    return cdf(x, density);
  }
};

// The backend for results of type T.
template <class T>
using CudaMathFor = std::conditional_t<std::is_same_v<T, float>, CudaMath, CudaMathFast>;

}  // namespace ek
