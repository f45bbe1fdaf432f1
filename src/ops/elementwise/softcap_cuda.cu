// SPDX-License-Identifier: Apache-2.0
// y = cap * tanh(x / cap).
// _vec: 16-byte accesses on dense tensors or aligned rows; the other row takes any alignment.
#include <cfloat>

#include "dispatch/ops_gen.h"
#include "ops/elementwise/map.cuh"

namespace ek {
namespace {

struct Map : MapFunctor {
  static constexpr int kIn = 1, kOut = 1;
  float cap, inverse;
  // A cap so small that 1 / cap overflows still gives 0 for x = 0.
  explicit Map(float cap_) : cap(cap_), inverse(1.f / cap_ > FLT_MAX ? FLT_MAX : 1.f / cap_) {}

  template <class M, int V>
  __device__ __forceinline__ void operator()(M, const float (&in)[1][V], float (&out)[1][V]) const {
#pragma unroll
    for (int i = 0; i < V; ++i) out[0][i] = cap * M::tanh(in[0][i] * inverse);
  }
};

Streams<1, 1> streams(const SoftcapArgs& a) { return {{{&a.x}}, {{&a.y}}, a.lead, a.dim}; }

const char* why_not_vec(const SoftcapArgs& a, const Device&) { return map_why_not_vec(streams(a)); }

ek_status softcap_cuda_vec(const SoftcapArgs& a, const Launch& l) { return map_cuda_vec(l, streams(a), Map(a.cap)); }

ek_status softcap_cuda(const SoftcapArgs& a, const Launch& l) { return map_cuda(l, streams(a), Map(a.cap)); }

}  // namespace

const Kernel<SoftcapArgs> kSoftcapCuda[] = {
    {"softcap_cuda_vec", sm(75), why_not_vec, softcap_cuda_vec},
    {"softcap_cuda", sm(75), nullptr, softcap_cuda},
    {},
};

}  // namespace ek
