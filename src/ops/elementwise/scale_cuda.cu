// SPDX-License-Identifier: Apache-2.0
// y = alpha * by * x, `by` a scalar on the device (absent: 1).
// _vec: 16-byte accesses on dense tensors or aligned rows; the other row takes any alignment.
#include "dispatch/ops_gen.h"
#include "ops/elementwise/map.cuh"

namespace ek {
namespace {

struct Map : MapFunctor {
  static constexpr int kIn = 1, kOut = 1;
  const float* by;
  float alpha;
  explicit Map(const ScaleArgs& a) : by(a.by.ptr<const float>()), alpha(a.alpha) {}

  __device__ __forceinline__ void begin() {
    if (by) alpha *= *by;
  }
  template <class M, int V>
  __device__ __forceinline__ void operator()(M, const float (&in)[1][V], float (&out)[1][V]) const {
#pragma unroll
    for (int i = 0; i < V; ++i) out[0][i] = alpha * in[0][i];
  }
};

Streams<1, 1> streams(const ScaleArgs& a) { return {{{&a.x}}, {{&a.y}}, a.lead, a.dim}; }

const char* why_not_vec(const ScaleArgs& a, const Device&) { return map_why_not_vec(streams(a)); }

ek_status scale_cuda_vec(const ScaleArgs& a, const Launch& l) { return map_cuda_vec(l, streams(a), Map(a)); }

ek_status scale_cuda(const ScaleArgs& a, const Launch& l) { return map_cuda(l, streams(a), Map(a)); }

}  // namespace

const Kernel<ScaleArgs> kScaleCuda[] = {
    {"scale_cuda_vec", sm(75), why_not_vec, scale_cuda_vec},
    {"scale_cuda", sm(75), nullptr, scale_cuda},
    {},
};

}  // namespace ek
