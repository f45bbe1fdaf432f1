// SPDX-License-Identifier: Apache-2.0
// rms_norm on CUDA: y = x * rstd * (weight + weight_offset), rstd = 1 / sqrt(mean(x^2) + eps). Sums in f32.
// vec: the row in the registers of a warp or block, read once. cluster: the widest rows. The last takes anything.
#include "dispatch/ops_gen.h"
#include "ops/norm/norm_launch.cuh"

namespace ek {

static NormCall rms_norm_call(const RmsNormArgs& a) {
  NormCall c;
  c.x = &a.x;
  c.weight = &a.weight;
  c.y = &a.y;
  c.rstd = &a.rstd;
  c.dtype = c.out = a.T;
  c.lead = a.lead;
  c.dim = a.dim;
  c.eps = a.eps;
  c.weight_offset = a.weight_offset;
  return c;
}

using RmsNorm = NormKernels<RmsNormArgs, rms_norm_call, NormInput::kPlain, /*kCentre=*/false>;

const Kernel<RmsNormArgs> kRmsNormCuda[] = {
    {"rms_norm_cuda_cluster", sm(90), RmsNorm::why_not_cluster, RmsNorm::cluster},
    {"rms_norm_cuda_vec", sm(75), RmsNorm::why_not_vec, RmsNorm::vec},
    {"rms_norm_cuda", sm(75), nullptr, RmsNorm::any},
    {},
};

}  // namespace ek
