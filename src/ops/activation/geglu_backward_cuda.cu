// SPDX-License-Identifier: Apache-2.0
// Gradients of gelu(gate) * up, in the layout of x.
// _vec: 16-byte accesses on dense tensors or aligned rows; the other row takes any alignment.
#include "ops/activation/activation.cuh"

namespace ek {
namespace {

using GegluBackward = FormMap<GatedBackwardMap<GeluErf>, GatedBackwardMap<GeluTanh>>;

const char* why_not_vec(const GegluBackwardArgs& a, const Device&) {
  return map_why_not_vec(gated_backward_streams(a));
}

ek_status geglu_backward_cuda_vec(const GegluBackwardArgs& a, const Launch& l) {
  return map_cuda_vec(l, gated_backward_streams(a), GegluBackward(a.form));
}

ek_status geglu_backward_cuda(const GegluBackwardArgs& a, const Launch& l) {
  return map_cuda(l, gated_backward_streams(a), GegluBackward(a.form));
}

}  // namespace

const Kernel<GegluBackwardArgs> kGegluBackwardCuda[] = {
    {"geglu_backward_cuda_vec", sm(75), why_not_vec, geglu_backward_cuda_vec},
    {"geglu_backward_cuda", sm(75), nullptr, geglu_backward_cuda},
    {},
};

}  // namespace ek
