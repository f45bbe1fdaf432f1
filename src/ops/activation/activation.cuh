// SPDX-License-Identifier: Apache-2.0
// The activation family on CUDA: formulas.h as functors of the map, and the streams of plain and gated ops.
#pragma once

#include "dispatch/ops_gen.h"
#include "ops/activation/formulas.h"
#include "ops/elementwise/map.cuh"

namespace ek {

// On CUDA the distribution comes from the backend as such: 0.5 + 0.5 erf(x / sqrt 2) has no correct digit left at
// x = -6, and the lean backend gets the density from the same exponential.
template <class M>
struct CudaGeluErf {
  __device__ __forceinline__ float operator()(float x) const { return x * M::cdf(x); }
  __device__ __forceinline__ float derivative(float x, float& value) const {
    float density;
    const float phi = M::cdf(x, density);
    value = x * phi;
    return phi + x * (0.398942280f * density);  // 1 / sqrt(2 pi)
  }
};
template <>
struct GeluErf<CudaMath> : CudaGeluErf<CudaMath> {};
template <>
struct GeluErf<CudaMathFast> : CudaGeluErf<CudaMathFast> {};

// ---- functors ---------------------------------------------------------------------------------------------------------

// y = act(x)
template <template <class> class Act>
struct UnaryMap : MapFunctor {
  static constexpr int kIn = 1, kOut = 1;
  template <class M, int V>
  __device__ __forceinline__ void operator()(M, const float (&in)[1][V], float (&out)[1][V]) const {
#pragma unroll
    for (int i = 0; i < V; ++i) out[0][i] = Act<M>()(in[0][i]);
  }
};

// dx = dy * act'(x). In: dy, x
template <template <class> class Act>
struct UnaryBackwardMap : MapFunctor {
  static constexpr int kIn = 2, kOut = 1;
  template <class M, int V>
  __device__ __forceinline__ void operator()(M, const float (&in)[2][V], float (&out)[1][V]) const {
#pragma unroll
    for (int i = 0; i < V; ++i) out[0][i] = UnaryBackward<Act<M>>()(in[0][i], in[1][i]);
  }
};

// y = act(gate) * up, or * (up + 1): Rule is Gate or GatePlusOne. In: gate, up
template <template <class> class Rule, template <class> class Act>
struct GatedMap : MapFunctor {
  static constexpr int kIn = 2, kOut = 1;
  static constexpr bool kPairs = true;
  template <class M, int V>
  __device__ __forceinline__ void operator()(M, const float (&in)[2][V], float (&out)[1][V]) const {
#pragma unroll
    for (int i = 0; i < V; ++i) out[0][i] = Rule<Act<M>>()(in[0][i], in[1][i]);
  }
};

// In: dy, gate, up; out: dgate, dup
template <template <class> class Act>
struct GatedBackwardMap : MapFunctor {
  static constexpr int kIn = 3, kOut = 2;
  static constexpr bool kPairs = true;
  template <class M, int V>
  __device__ __forceinline__ void operator()(M, const float (&in)[3][V], float (&out)[2][V]) const {
#pragma unroll
    for (int i = 0; i < V; ++i) Gate<Act<M>>().backward(in[0][i], in[1][i], in[2][i], out[0][i], out[1][i]);
  }
};

// The form of gelu is chosen once for each vector, not for each element.
template <class Erf, class Tanh>
struct FormMap : MapFunctor {
  static constexpr int kIn = Erf::kIn, kOut = Erf::kOut;
  static constexpr bool kPairs = Erf::kPairs;
  int32_t form;
  explicit FormMap(int32_t gelu_form) : form(gelu_form) {}

  template <class M, int V>
  __device__ __forceinline__ void operator()(M m, const float (&in)[kIn][V], float (&out)[kOut][V]) const {
    if (form == EK_GELU_FORM_ERF) {
      Erf()(m, in, out);
    } else {
      Tanh()(m, in, out);
    }
  }
};

// ---- streams ----------------------------------------------------------------------------------------------------------

template <class Args>
Streams<1, 1> unary_streams(const Args& a) {
  return {{{&a.x}}, {{&a.y}}, a.lead, a.dim};
}

template <class Args>
Streams<2, 1> unary_backward_streams(const Args& a) {
  return {{{&a.dy}, {&a.x}}, {{&a.dx}}, a.lead, a.dim};
}

// The second stream of a gated tensor: `other` by itself, the second half of each row, or (interleaved) the same pairs.
inline Stream second_stream(const Tensor& x, const Tensor& other, int32_t layout, int64_t dim) {
  if (layout == EK_GATE_LAYOUT_SEPARATE) return {&other};
  return {&x, layout == EK_GATE_LAYOUT_HALVES ? dim : 0};
}

template <class Args>
Streams<2, 1> gated_streams(const Args& a) {
  return {{{&a.x}, second_stream(a.x, a.up, a.layout, a.dim)},
          {{&a.y}},
          a.lead,
          a.dim,
          a.layout == EK_GATE_LAYOUT_INTERLEAVED};
}

template <class Args>
Streams<3, 2> gated_backward_streams(const Args& a) {
  return {{{&a.dy}, {&a.x}, second_stream(a.x, a.up, a.layout, a.dim)},
          {{&a.dx}, second_stream(a.dx, a.dup, a.layout, a.dim)},
          a.lead,
          a.dim,
          a.layout == EK_GATE_LAYOUT_INTERLEAVED};
}

}  // namespace ek
