// SPDX-License-Identifier: Apache-2.0
// y = max(x, 0)^2.
// _vec: 16-byte accesses on dense tensors or aligned rows; the other row takes any alignment.
#include "ops/activation/activation.cuh"

namespace ek {
namespace {

const char* why_not_vec(const Relu2Args& a, const Device&) { return map_why_not_vec(unary_streams(a)); }

ek_status relu2_cuda_vec(const Relu2Args& a, const Launch& l) {
  return map_cuda_vec(l, unary_streams(a), UnaryMap<Relu2>());
}

ek_status relu2_cuda(const Relu2Args& a, const Launch& l) { return map_cuda(l, unary_streams(a), UnaryMap<Relu2>()); }

}  // namespace

const Kernel<Relu2Args> kRelu2Cuda[] = {
    {"relu2_cuda_vec", sm(75), why_not_vec, relu2_cuda_vec},
    {"relu2_cuda", sm(75), nullptr, relu2_cuda},
    {},
};

}  // namespace ek
