// SPDX-License-Identifier: Apache-2.0
// The math backend of the activation formulas on CUDA. Accurate to a few f32 ulp: the f32 rows must be, and the 16-bit
// rows are bound by memory anyway.
#pragma once

namespace ek {

struct CudaMath {
  static __device__ __forceinline__ float exp(float x) { return expf(x); }
  // __fdividef is 2 ulp for denominators below 2^126; 1 + exp(-x) beyond that is a sigmoid of 0 in f32 all the same.
  static __device__ __forceinline__ float sigmoid(float x) { return __fdividef(1.f, 1.f + expf(-x)); }
  static __device__ __forceinline__ float tanh(float x) { return tanhf(x); }
  static __device__ __forceinline__ float erf(float x) { return erff(x); }
};

}  // namespace ek
