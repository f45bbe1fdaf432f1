// SPDX-License-Identifier: Apache-2.0
// dx = dy * silu'(x).
// _vec: 16-byte accesses on dense tensors or aligned rows; the other row takes any alignment.
#include "ops/activation/activation.cuh"

namespace ek {
namespace {

const char* why_not_vec(const SiluBackwardArgs& a, const Device&) { return map_why_not_vec(unary_backward_streams(a)); }

ek_status silu_backward_cuda_vec(const SiluBackwardArgs& a, const Launch& l) {
  return map_cuda_vec(l, unary_backward_streams(a), UnaryBackwardMap<Silu>());
}

ek_status silu_backward_cuda(const SiluBackwardArgs& a, const Launch& l) {
  return map_cuda(l, unary_backward_streams(a), UnaryBackwardMap<Silu>());
}

}  // namespace

const Kernel<SiluBackwardArgs> kSiluBackwardCuda[] = {
    {"silu_backward_cuda_vec", sm(75), why_not_vec, silu_backward_cuda_vec},
    {"silu_backward_cuda", sm(75), nullptr, silu_backward_cuda},
    {},
};

}  // namespace ek
