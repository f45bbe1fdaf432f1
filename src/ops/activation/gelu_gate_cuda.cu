// SPDX-License-Identifier: Apache-2.0
// y = gelu(gate) * (up + 1).
// _vec: 16-byte accesses on dense tensors or aligned rows; the other row takes any alignment.
#include "ops/activation/activation.cuh"

namespace ek {
namespace {

using GeluGate = FormMap<GatedMap<GatePlusOne, GeluErf>, GatedMap<GatePlusOne, GeluTanh>>;

const char* why_not_vec(const GeluGateArgs& a, const Device&) { return map_why_not_vec(gated_streams(a)); }

ek_status gelu_gate_cuda_vec(const GeluGateArgs& a, const Launch& l) {
  return map_cuda_vec(l, gated_streams(a), GeluGate(a.form));
}

ek_status gelu_gate_cuda(const GeluGateArgs& a, const Launch& l) {
  return map_cuda(l, gated_streams(a), GeluGate(a.form));
}

}  // namespace

const Kernel<GeluGateArgs> kGeluGateCuda[] = {
    {"gelu_gate_cuda_vec", sm(75), why_not_vec, gelu_gate_cuda_vec},
    {"gelu_gate_cuda", sm(75), nullptr, gelu_gate_cuda},
    {},
};

}  // namespace ek
