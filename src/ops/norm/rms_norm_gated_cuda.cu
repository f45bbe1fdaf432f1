// SPDX-License-Identifier: Apache-2.0
// rms_norm_gated on CUDA: y = rms_norm(x * silu(z)), or rms_norm(x) * silu(z) with norm_before_gate, over each group of a
// row. A group is a row of its own here, with its own part of weight. Everything in f32 up to the one rounding of y.
// vec: the row in the registers of a warp or block, read once. cluster: the widest rows. The last takes anything.
#include "dispatch/ops_gen.h"
#include "ops/norm/norm_launch.cuh"

namespace ek {

static NormCall rms_norm_gated_call(const RmsNormGatedArgs& a) {
  NormCall c;
  c.x = &a.x;
  c.other = &a.z;
  c.weight = &a.weight;
  c.y = &a.y;
  c.dtype = c.out = a.T;
  c.lead = a.lead;
  c.dim = a.group > 0 ? a.group : a.dim;
  c.parts = a.group > 0 ? a.dim / a.group : 1;
  c.eps = a.eps;
  c.gate_last = a.norm_before_gate;
  return c;
}

using RmsNormGated = NormKernels<RmsNormGatedArgs, rms_norm_gated_call, NormInput::kGateFirst, /*kCentre=*/false>;

const Kernel<RmsNormGatedArgs> kRmsNormGatedCuda[] = {
    {"rms_norm_gated_cuda_cluster", sm(90), RmsNormGated::why_not_cluster, RmsNormGated::cluster},
    {"rms_norm_gated_cuda_vec", sm(75), RmsNormGated::why_not_vec, RmsNormGated::vec},
    {"rms_norm_gated_cuda", sm(75), nullptr, RmsNormGated::any},
    {},
};

}  // namespace ek
