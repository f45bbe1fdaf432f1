// SPDX-License-Identifier: Apache-2.0
// y = x * Phi(x), or its tanh approximation.
// _vec: 16-byte accesses on dense tensors or aligned rows; the other row takes any alignment.
#include "ops/activation/activation.cuh"

namespace ek {
namespace {

using Gelu = FormMap<UnaryMap<GeluErf>, UnaryMap<GeluTanh>>;

const char* why_not_vec(const GeluArgs& a, const Device&) { return map_why_not_vec(unary_streams(a)); }

ek_status gelu_cuda_vec(const GeluArgs& a, const Launch& l) { return map_cuda_vec(l, unary_streams(a), Gelu(a.form)); }

ek_status gelu_cuda(const GeluArgs& a, const Launch& l) { return map_cuda(l, unary_streams(a), Gelu(a.form)); }

}  // namespace

const Kernel<GeluArgs> kGeluCuda[] = {
    {"gelu_cuda_vec", sm(75), why_not_vec, gelu_cuda_vec},
    {"gelu_cuda", sm(75), nullptr, gelu_cuda},
    {},
};

}  // namespace ek
