// SPDX-License-Identifier: Apache-2.0
// y = x * sigmoid(x).
// _vec: 16-byte accesses on dense tensors or aligned rows; the other row takes any alignment.
#include "ops/activation/activation.cuh"

namespace ek {
namespace {

const char* why_not_vec(const SiluArgs& a, const Device&) { return map_why_not_vec(unary_streams(a)); }

ek_status silu_cuda_vec(const SiluArgs& a, const Launch& l) {
  return map_cuda_vec(l, unary_streams(a), UnaryMap<Silu>());
}

ek_status silu_cuda(const SiluArgs& a, const Launch& l) { return map_cuda(l, unary_streams(a), UnaryMap<Silu>()); }

}  // namespace

const Kernel<SiluArgs> kSiluCuda[] = {
    {"silu_cuda_vec", sm(75), why_not_vec, silu_cuda_vec},
    {"silu_cuda", sm(75), nullptr, silu_cuda},
    {},
};

}  // namespace ek
