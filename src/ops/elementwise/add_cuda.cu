// SPDX-License-Identifier: Apache-2.0
// y = a + b.
// _vec: 16-byte accesses on dense tensors or aligned rows; the other row takes any alignment.
#include "dispatch/ops_gen.h"
#include "ops/elementwise/map.cuh"

namespace ek {
namespace {

struct Map : MapFunctor {
  static constexpr int kIn = 2, kOut = 1;
  template <class M, int V>
  __device__ __forceinline__ void operator()(M, const float (&in)[2][V], float (&out)[1][V]) const {
#pragma unroll
    for (int i = 0; i < V; ++i) out[0][i] = in[0][i] + in[1][i];
  }
};

Streams<2, 1> streams(const AddArgs& a) { return {{{&a.a}, {&a.b}}, {{&a.y}}, a.lead, a.dim}; }

const char* why_not_vec(const AddArgs& a, const Device&) { return map_why_not_vec(streams(a)); }

ek_status add_cuda_vec(const AddArgs& a, const Launch& l) { return map_cuda_vec(l, streams(a), Map()); }

ek_status add_cuda(const AddArgs& a, const Launch& l) { return map_cuda(l, streams(a), Map()); }

}  // namespace

const Kernel<AddArgs> kAddCuda[] = {
    {"add_cuda_vec", sm(75), why_not_vec, add_cuda_vec},
    {"add_cuda", sm(75), nullptr, add_cuda},
    {},
};

}  // namespace ek
