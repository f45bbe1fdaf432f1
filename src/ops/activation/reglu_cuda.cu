// SPDX-License-Identifier: Apache-2.0
// y = relu(gate) * up.
// _vec: 16-byte accesses on dense tensors or aligned rows; the other row takes any alignment.
#include "ops/activation/activation.cuh"

namespace ek {
namespace {

const char* why_not_vec(const RegluArgs& a, const Device&) { return map_why_not_vec(gated_streams(a)); }

ek_status reglu_cuda_vec(const RegluArgs& a, const Launch& l) {
  return map_cuda_vec(l, gated_streams(a), GatedMap<Gate, Relu>());
}

ek_status reglu_cuda(const RegluArgs& a, const Launch& l) {
  return map_cuda(l, gated_streams(a), GatedMap<Gate, Relu>());
}

}  // namespace

const Kernel<RegluArgs> kRegluCuda[] = {
    {"reglu_cuda_vec", sm(75), why_not_vec, reglu_cuda_vec},
    {"reglu_cuda", sm(75), nullptr, reglu_cuda},
    {},
};

}  // namespace ek
