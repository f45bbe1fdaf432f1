// SPDX-License-Identifier: Apache-2.0
// layer_norm_backward on CUDA, with g = dy * weight and xhat = (x - mean) * rstd:
// dx = rstd * (g - mean(g) - xhat * mean(g * xhat)), dweight = sum over rows of dy * xhat, dbias = sum over rows of dy.
// Sums in f32, in a fixed order.
// bulk: rows come to shared memory by bulk copies. vec: through registers; shorter rows. The last takes anything.
#include "dispatch/ops_gen.h"
#include "ops/norm/norm_backward_launch.cuh"

namespace ek {

static NormBackwardCall layer_norm_backward_call(const LayerNormBackwardArgs& a) {
  NormBackwardCall c;
  c.dy = &a.dy;
  c.x = &a.x;
  c.dx = &a.dx;
  c.weight = &a.weight;
  c.mean = &a.mean;
  c.rstd = &a.rstd;
  c.dweight = &a.dweight;
  c.dbias = &a.dbias;
  c.dtype = a.T;
  c.lead = a.lead;
  c.rows = a.rows;
  c.dim = a.dim;
  c.eps = a.eps;
  return c;
}

using LayerNormBackward = NormBackwardKernels<LayerNormBackwardArgs, layer_norm_backward_call, /*kCentre=*/true>;

// The split of the rows over blocks, and so the last bits of dweight, depends on how many rows there are.
const Kernel<LayerNormBackwardArgs> kLayerNormBackwardCuda[] = {
    {"layer_norm_backward_cuda_bulk", sm(90), LayerNormBackward::why_not_bulk, LayerNormBackward::bulk,
     LayerNormBackward::bulk_workspace, kDeterministic},
    {"layer_norm_backward_cuda_vec", sm(75), LayerNormBackward::why_not_vec, LayerNormBackward::vec,
     LayerNormBackward::vec_workspace, kDeterministic},
    {"layer_norm_backward_cuda", sm(75), nullptr, LayerNormBackward::any, LayerNormBackward::any_workspace,
     kDeterministic},
    {},
};

}  // namespace ek
