// SPDX-License-Identifier: Apache-2.0
// y = alpha * x + beta * y. With beta = 0 y is not read: a third less traffic, and NaN in it does not matter.
// _vec: 16-byte accesses on dense tensors or aligned rows; the other row takes any alignment.
#include "dispatch/ops_gen.h"
#include "ops/elementwise/map.cuh"

namespace ek {
namespace {

// In: x, y
struct Axpby : MapFunctor {
  static constexpr int kIn = 2, kOut = 1;
  float alpha, beta;
  explicit Axpby(const AxpbyArgs& a) : alpha(a.alpha), beta(a.beta) {}

  template <class M, int V>
  __device__ __forceinline__ void operator()(M, const float (&in)[2][V], float (&out)[1][V]) const {
#pragma unroll
    for (int i = 0; i < V; ++i) out[0][i] = alpha * in[0][i] + beta * in[1][i];
  }
};

struct Ax : MapFunctor {
  static constexpr int kIn = 1, kOut = 1;
  float alpha;
  explicit Ax(const AxpbyArgs& a) : alpha(a.alpha) {}

  template <class M, int V>
  __device__ __forceinline__ void operator()(M, const float (&in)[1][V], float (&out)[1][V]) const {
#pragma unroll
    for (int i = 0; i < V; ++i) out[0][i] = alpha * in[0][i];
  }
};

Streams<2, 1> axpby_streams(const AxpbyArgs& a) { return {{{&a.x}, {&a.y}}, {{&a.y}}, a.lead, a.dim}; }
Streams<1, 1> ax_streams(const AxpbyArgs& a) { return {{{&a.x}}, {{&a.y}}, a.lead, a.dim}; }

const char* why_not_vec(const AxpbyArgs& a, const Device&) { return map_why_not_vec(ax_streams(a)); }

ek_status axpby_cuda_vec(const AxpbyArgs& a, const Launch& l) {
  return a.beta == 0.f ? map_cuda_vec(l, ax_streams(a), Ax(a)) : map_cuda_vec(l, axpby_streams(a), Axpby(a));
}

ek_status axpby_cuda(const AxpbyArgs& a, const Launch& l) {
  return a.beta == 0.f ? map_cuda(l, ax_streams(a), Ax(a)) : map_cuda(l, axpby_streams(a), Axpby(a));
}

}  // namespace

const Kernel<AxpbyArgs> kAxpbyCuda[] = {
    {"axpby_cuda_vec", sm(75), why_not_vec, axpby_cuda_vec},
    {"axpby_cuda", sm(75), nullptr, axpby_cuda},
    {},
};

}  // namespace ek
