// SPDX-License-Identifier: Apache-2.0
// gpt-oss: y = gate * sigmoid(alpha * gate) * (up + 1), gate and up limited first.
// _vec: 16-byte accesses on dense tensors or aligned rows; the other row takes any alignment.
#include "ops/activation/activation.cuh"

namespace ek {
namespace {

struct Map : MapFunctor {
  static constexpr int kIn = 2, kOut = 1;
  static constexpr bool kPairs = true;
  float alpha, limit;
  Map(float alpha_, float limit_) : alpha(alpha_), limit(limit_) {}

  template <class M, int V>
  __device__ __forceinline__ void operator()(M, const float (&in)[2][V], float (&out)[1][V]) const {
#pragma unroll
    for (int i = 0; i < V; ++i) out[0][i] = SwigluClamped<M>{alpha, limit}(in[0][i], in[1][i]);
  }
};

const char* why_not_vec(const SwigluClampedArgs& a, const Device&) { return map_why_not_vec(gated_streams(a)); }

ek_status swiglu_clamped_cuda_vec(const SwigluClampedArgs& a, const Launch& l) {
  return map_cuda_vec(l, gated_streams(a), Map(a.alpha, a.limit));
}

ek_status swiglu_clamped_cuda(const SwigluClampedArgs& a, const Launch& l) {
  return map_cuda(l, gated_streams(a), Map(a.alpha, a.limit));
}

}  // namespace

const Kernel<SwigluClampedArgs> kSwigluClampedCuda[] = {
    {"swiglu_clamped_cuda_vec", sm(75), why_not_vec, swiglu_clamped_cuda_vec},
    {"swiglu_clamped_cuda", sm(75), nullptr, swiglu_clamped_cuda},
    {},
};

}  // namespace ek
