// SPDX-License-Identifier: Apache-2.0
// rms_norm_backward on CUDA, with g = dy * (weight + weight_offset) and xhat = x * rstd:
// dx = rstd * (g - xhat * mean(g * xhat)), dweight = sum over rows of dy * xhat. Sums in f32, in a fixed order.
// bulk: rows come to shared memory by bulk copies. vec: through registers; shorter rows. The last takes anything.
#include "dispatch/ops_gen.h"
#include "ops/norm/norm_backward_launch.cuh"

namespace ek {

static NormBackwardCall rms_norm_backward_call(const RmsNormBackwardArgs& a) {
  NormBackwardCall c;
  c.dy = &a.dy;
  c.x = &a.x;
  c.dx = &a.dx;
  c.weight = &a.weight;
  c.rstd = &a.rstd;
  c.dweight = &a.dweight;
  c.dtype = a.T;
  c.lead = a.lead;
  c.rows = a.rows;
  c.dim = a.dim;
  c.eps = a.eps;
  c.weight_offset = a.weight_offset;
  return c;
}

using RmsNormBackward = NormBackwardKernels<RmsNormBackwardArgs, rms_norm_backward_call, /*kCentre=*/false>;

// The split of the rows over blocks, and so the last bits of dweight, depends on how many rows there are.
const Kernel<RmsNormBackwardArgs> kRmsNormBackwardCuda[] = {
    {"rms_norm_backward_cuda_bulk", sm(90), RmsNormBackward::why_not_bulk, RmsNormBackward::bulk,
     RmsNormBackward::bulk_workspace, kDeterministic},
    {"rms_norm_backward_cuda_vec", sm(75), RmsNormBackward::why_not_vec, RmsNormBackward::vec,
     RmsNormBackward::vec_workspace, kDeterministic},
    {"rms_norm_backward_cuda", sm(75), nullptr, RmsNormBackward::any, RmsNormBackward::any_workspace, kDeterministic},
    {},
};

}  // namespace ek
