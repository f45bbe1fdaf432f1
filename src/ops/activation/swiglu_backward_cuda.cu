// SPDX-License-Identifier: Apache-2.0
// Gradients of silu(gate) * up, in the layout of x.
// _vec: 16-byte accesses on dense tensors or aligned rows; the other row takes any alignment.
#include "ops/activation/activation.cuh"

namespace ek {
namespace {

const char* why_not_vec(const SwigluBackwardArgs& a, const Device&) {
  return map_why_not_vec(gated_backward_streams(a));
}

ek_status swiglu_backward_cuda_vec(const SwigluBackwardArgs& a, const Launch& l) {
  return map_cuda_vec(l, gated_backward_streams(a), GatedBackwardMap<Silu>());
}

ek_status swiglu_backward_cuda(const SwigluBackwardArgs& a, const Launch& l) {
  return map_cuda(l, gated_backward_streams(a), GatedBackwardMap<Silu>());
}

}  // namespace

const Kernel<SwigluBackwardArgs> kSwigluBackwardCuda[] = {
    {"swiglu_backward_cuda_vec", sm(75), why_not_vec, swiglu_backward_cuda_vec},
    {"swiglu_backward_cuda", sm(75), nullptr, swiglu_backward_cuda},
    {},
};

}  // namespace ek
