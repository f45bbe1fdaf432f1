// SPDX-License-Identifier: Apache-2.0
// dx = dy * gelu'(x).
// _vec: 16-byte accesses on dense tensors or aligned rows; the other row takes any alignment.
#include "ops/activation/activation.cuh"

namespace ek {
namespace {

using GeluBackward = FormMap<UnaryBackwardMap<GeluErf>, UnaryBackwardMap<GeluTanh>>;

const char* why_not_vec(const GeluBackwardArgs& a, const Device&) { return map_why_not_vec(unary_backward_streams(a)); }

ek_status gelu_backward_cuda_vec(const GeluBackwardArgs& a, const Launch& l) {
  return map_cuda_vec(l, unary_backward_streams(a), GeluBackward(a.form));
}

ek_status gelu_backward_cuda(const GeluBackwardArgs& a, const Launch& l) {
  return map_cuda(l, unary_backward_streams(a), GeluBackward(a.form));
}

}  // namespace

const Kernel<GeluBackwardArgs> kGeluBackwardCuda[] = {
    {"gelu_backward_cuda_vec", sm(75), why_not_vec, gelu_backward_cuda_vec},
    {"gelu_backward_cuda", sm(75), nullptr, gelu_backward_cuda},
    {},
};

}  // namespace ek
