// SPDX-License-Identifier: Apache-2.0
// y = gelu(gate) * up.
// _vec: 16-byte accesses on dense tensors or aligned rows; the other row takes any alignment.
#include "ops/activation/activation.cuh"

namespace ek {
namespace {

using Geglu = FormMap<GatedMap<Gate, GeluErf>, GatedMap<Gate, GeluTanh>>;

const char* why_not_vec(const GegluArgs& a, const Device&) { return map_why_not_vec(gated_streams(a)); }

ek_status geglu_cuda_vec(const GegluArgs& a, const Launch& l) {
  return map_cuda_vec(l, gated_streams(a), Geglu(a.form));
}

ek_status geglu_cuda(const GegluArgs& a, const Launch& l) { return map_cuda(l, gated_streams(a), Geglu(a.form)); }

}  // namespace

const Kernel<GegluArgs> kGegluCuda[] = {
    {"geglu_cuda_vec", sm(75), why_not_vec, geglu_cuda_vec},
    {"geglu_cuda", sm(75), nullptr, geglu_cuda},
    {},
};

}  // namespace ek
