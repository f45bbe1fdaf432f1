// SPDX-License-Identifier: Apache-2.0
// rms_norm_quant on CUDA: y * scale = x * rstd * (weight + weight_offset), y in e4m3 or i8, a scale for each row or group.
// The row stays in registers through both reductions, the sum of squares and the largest magnitude. Sums in f32.
// vec: in the registers of a warp or block. cluster: the widest rows. The last takes anything.
#include "dispatch/ops_gen.h"
#include "ops/norm/norm_launch.cuh"

namespace ek {

static NormCall rms_norm_quant_call(const RmsNormQuantArgs& a) {
  NormCall c;
  c.x = &a.x;
  c.weight = &a.weight;
  c.y = &a.y;
  c.scale = &a.scale;
  c.dtype = a.T;
  c.out = a.Q;
  c.lead = a.lead;
  c.dim = a.dim;
  c.eps = a.eps;
  c.weight_offset = a.weight_offset;
  c.group = a.group;
  return c;
}

using RmsNormQuant =
    NormKernels<RmsNormQuantArgs, rms_norm_quant_call, NormInput::kPlain, /*kCentre=*/false, /*kQuant=*/true>;

const Kernel<RmsNormQuantArgs> kRmsNormQuantCuda[] = {
    {"rms_norm_quant_cuda_cluster", sm(90), RmsNormQuant::why_not_cluster, RmsNormQuant::cluster},
    {"rms_norm_quant_cuda_vec", sm(75), RmsNormQuant::why_not_vec, RmsNormQuant::vec},
    {"rms_norm_quant_cuda", sm(75), nullptr, RmsNormQuant::any},
    {},
};

}  // namespace ek
