// SPDX-License-Identifier: Apache-2.0
// The epilogue of a product in f32, element by element: z = alpha * acc + bias, then the activation or the gate, then
// out_scale and c. gemm_call.h has the formula.
#pragma once

#include "cuda/math.cuh"
#include "ops/activation/formulas.h"
#include "ops/gemm/gemm_call.h"

namespace ek {

struct GemmEpilogue {
  const void* bias;  // [n] of the input type, or nullptr
  float alpha, beta, out_scale;
  int32_t act;
};

inline GemmEpilogue gemm_epilogue_of(const GemmCall& c) { return {c.bias, c.alpha, c.beta, c.out_scale, c.act}; }

// Applies the activation to an array in registers. One test of `act` for all of it: the loops inside are straight code.
template <class T, int N>
__device__ __forceinline__ void gemm_activate(int32_t act, float (&z)[N]) {
  using M = CudaMathFor<T>;
  const auto each = [&](auto f) {
#pragma unroll
    for (int i = 0; i < N; ++i) z[i] = f(z[i]);
  };
  switch (act) {
    case EK_ACTIVATION_SILU: each(Silu<M>()); break;
    case EK_ACTIVATION_GELU_ERF: each([](float x) { return x * M::cdf(x); }); break;
    case EK_ACTIVATION_GELU_TANH: each(GeluTanh<M>()); break;
    case EK_ACTIVATION_RELU: each(Relu<M>()); break;
    case EK_ACTIVATION_RELU2: each(Relu2<M>()); break;
    default: break;
  }
}

}  // namespace ek
