// SPDX-License-Identifier: Apache-2.0
// y = x in another dtype, rounded to nearest even.
// _vec: vectors of 16 bytes of the wider dtype on dense tensors or aligned rows; the other row takes any alignment.
#include "dispatch/ops_gen.h"
#include "ops/elementwise/map.cuh"

namespace ek {
namespace {

struct Map : MapFunctor {
  static constexpr int kIn = 1, kOut = 1;
  template <class M, int V>
  __device__ __forceinline__ void operator()(M, const float (&in)[1][V], float (&out)[1][V]) const {
#pragma unroll
    for (int i = 0; i < V; ++i) out[0][i] = in[0][i];
  }
};

Streams<1, 1> streams(const CastArgs& a) { return {{{&a.x}}, {{&a.y}}, a.lead, a.dim}; }

template <bool kVector>
ek_status run(const CastArgs& a, const Launch& l) {
  return with_float(a.S, [&](auto from) {
    return with_float(a.D, [&](auto to) {
      return map_typed<kVector, typename decltype(from)::type, typename decltype(to)::type>(l, streams(a), Map());
    });
  });
}

const char* why_not_vec(const CastArgs& a, const Device&) { return map_why_not_vec(streams(a)); }

ek_status cast_cuda_vec(const CastArgs& a, const Launch& l) { return run<true>(a, l); }

ek_status cast_cuda(const CastArgs& a, const Launch& l) { return run<false>(a, l); }

}  // namespace

const Kernel<CastArgs> kCastCuda[] = {
    {"cast_cuda_vec", sm(75), why_not_vec, cast_cuda_vec},
    {"cast_cuda", sm(75), nullptr, cast_cuda},
    {},
};

}  // namespace ek
