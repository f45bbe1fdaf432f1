// SPDX-License-Identifier: Apache-2.0
// The activations and gates, each written once for CPU and CUDA, in f32.
// M is the math backend (static exp, sigmoid, tanh, erf on floats): cpu/math.h has one per instruction set,
// cuda/math.cuh the GPU's. sigmoid_scaled(kSigmoidScale * x) is sigmoid(x), for arguments with factors of their own.
// Everything is a template over M, so that code compiled for one instruction set is never shared with another. NaN and
// infinities follow from the plain formulas: silu(-inf) = -inf * 0 = NaN.
#pragma once

#include "core/tensor.h"

namespace ek {

// An activation f: operator() is f(x); derivative() returns f'(x) and sets `value` to f(x), which shares its work.

template <class M>
struct Silu {
  EK_HOST_DEVICE float operator()(float x) const { return x * M::sigmoid(x); }
  EK_HOST_DEVICE float derivative(float x, float& value) const {
    const float s = M::sigmoid(x);
    value = x * s;
    return s * (1.f + x * (1.f - s));
  }
};

// x * Phi(x), Phi the normal distribution.
template <class M>
struct GeluErf {
  static EK_HOST_DEVICE float cdf(float x) { return 0.5f + 0.5f * M::erf(x * 0.707106781f); }  // 1 / sqrt(2)
  EK_HOST_DEVICE float operator()(float x) const { return x * cdf(x); }
  EK_HOST_DEVICE float derivative(float x, float& value) const {
    const float phi = cdf(x);
    value = x * phi;
    return phi + x * (0.398942280f * M::exp(-0.5f * x * x));  // the density, with 1 / sqrt(2 pi)
  }
};

// 0.5 x (1 + tanh(u)) with u = sqrt(2 / pi) (x + 0.044715 x^3). That is x * sigmoid(2 u), which loses no digits to
// cancellation where tanh(u) is near -1.
template <class M>
struct GeluTanh {
  static EK_HOST_DEVICE float sigmoid_of_2u(float x) {
    constexpr float k = M::kSigmoidScale;
    return M::sigmoid_scaled(x * (k * 1.595769122f + k * 0.0713548163f * x * x));
  }
  EK_HOST_DEVICE float operator()(float x) const { return x * sigmoid_of_2u(x); }
  EK_HOST_DEVICE float derivative(float x, float& value) const {
    const float s = sigmoid_of_2u(x);
    value = x * s;
    // From |x| = 100 on s * (1 - s) is 0; the limit keeps its factor finite, as 0 * inf would be NaN.
    const float x2 = x * x > 1e4f ? 1e4f : x * x;
    return s + value * (1.f - s) * (1.595769122f + 0.214064449f * x2);
  }
};

// NaN stays NaN: the comparison is false for it.
template <class M>
struct Relu {
  EK_HOST_DEVICE float operator()(float x) const { return x < 0.f ? 0.f : x; }
};

template <class M>
struct Relu2 {
  EK_HOST_DEVICE float operator()(float x) const {
    const float r = x < 0.f ? 0.f : x;
    return r * r;
  }
};

// dx = dy * f'(x): silu_backward, gelu_backward.
template <class Act>
struct UnaryBackward {
  EK_HOST_DEVICE float operator()(float dy, float x) const {
    float value;
    return dy * Act().derivative(x, value);
  }
};

// f(gate) * up: swiglu, geglu and reglu for Act = Silu, GeluErf or GeluTanh, Relu.
template <class Act>
struct Gate {
  EK_HOST_DEVICE float operator()(float gate, float up) const { return Act()(gate) * up; }
  EK_HOST_DEVICE void backward(float dy, float gate, float up, float& dgate, float& dup) const {
    float value;
    const float slope = Act().derivative(gate, value);
    dgate = dy * up * slope;
    dup = dy * value;
  }
};

// f(gate) * (up + 1): gelu_gate.
template <class Act>
struct GatePlusOne {
  EK_HOST_DEVICE float operator()(float gate, float up) const { return Act()(gate) * (up + 1.f); }
};

// gpt-oss: swiglu_clamped.
template <class M>
struct SwigluClamped {
  float alpha, limit;
  EK_HOST_DEVICE float operator()(float gate, float up) const {
    gate = gate > limit ? limit : gate;
    up = up > limit ? limit : up;
    up = up < -limit ? -limit : up;
    return gate * M::sigmoid(alpha * gate) * (up + 1.f);
  }
};

}  // namespace ek
