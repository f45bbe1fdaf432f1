// SPDX-License-Identifier: Apache-2.0
// y = max(x, 0).
// _vec: 16-byte accesses on dense tensors or aligned rows; the other row takes any alignment.
#include "ops/activation/activation.cuh"

namespace ek {
namespace {

const char* why_not_vec(const ReluArgs& a, const Device&) { return map_why_not_vec(unary_streams(a)); }

ek_status relu_cuda_vec(const ReluArgs& a, const Launch& l) {
  return map_cuda_vec(l, unary_streams(a), UnaryMap<Relu>());
}

ek_status relu_cuda(const ReluArgs& a, const Launch& l) { return map_cuda(l, unary_streams(a), UnaryMap<Relu>()); }

}  // namespace

const Kernel<ReluArgs> kReluCuda[] = {
    {"relu_cuda_vec", sm(75), why_not_vec, relu_cuda_vec},
    {"relu_cuda", sm(75), nullptr, relu_cuda},
    {},
};

}  // namespace ek
