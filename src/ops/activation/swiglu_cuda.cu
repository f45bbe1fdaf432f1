// SPDX-License-Identifier: Apache-2.0
// y = silu(gate) * up.
// _vec: 16-byte accesses on dense tensors or aligned rows; the other row takes any alignment.
#include "ops/activation/activation.cuh"

namespace ek {
namespace {

const char* why_not_vec(const SwigluArgs& a, const Device&) { return map_why_not_vec(gated_streams(a)); }

ek_status swiglu_cuda_vec(const SwigluArgs& a, const Launch& l) {
  return map_cuda_vec(l, gated_streams(a), GatedMap<Gate, Silu>());
}

ek_status swiglu_cuda(const SwigluArgs& a, const Launch& l) {
  return map_cuda(l, gated_streams(a), GatedMap<Gate, Silu>());
}

}  // namespace

const Kernel<SwigluArgs> kSwigluCuda[] = {
    {"swiglu_cuda_vec", sm(75), why_not_vec, swiglu_cuda_vec},
    {"swiglu_cuda", sm(75), nullptr, swiglu_cuda},
    {},
};

}  // namespace ek
