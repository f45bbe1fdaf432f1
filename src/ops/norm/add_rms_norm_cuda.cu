// SPDX-License-Identifier: Apache-2.0
// add_rms_norm on CUDA: residual = T(residual + x); y = residual * rstd * (weight + weight_offset). Sums in f32.
// vec: the row in the registers of a warp or block, read once. cluster: the widest rows. The last takes anything.
#include "dispatch/ops_gen.h"
#include "ops/norm/norm_launch.cuh"

namespace ek {

static NormCall add_rms_norm_call(const AddRmsNormArgs& a) {
  NormCall c;
  c.x = &a.x;
  c.other = &a.residual;
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

using AddRmsNorm = NormKernels<AddRmsNormArgs, add_rms_norm_call, NormInput::kAdd, /*kCentre=*/false>;

const Kernel<AddRmsNormArgs> kAddRmsNormCuda[] = {
    {"add_rms_norm_cuda_cluster", sm(90), AddRmsNorm::why_not_cluster, AddRmsNorm::cluster},
    {"add_rms_norm_cuda_vec", sm(75), AddRmsNorm::why_not_vec, AddRmsNorm::vec},
    {"add_rms_norm_cuda", sm(75), nullptr, AddRmsNorm::any},
    {},
};

}  // namespace ek
