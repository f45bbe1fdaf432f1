// SPDX-License-Identifier: Apache-2.0
// layer_norm on CUDA: y = (x - mean) * rstd * weight + bias. The mean first, then the variance around it, both from the
// row in registers, in f32.
// vec: the row in the registers of a warp or block, read once. cluster: the widest rows. The last takes anything.
#include "dispatch/ops_gen.h"
#include "ops/norm/norm_launch.cuh"

namespace ek {

static NormCall layer_norm_call(const LayerNormArgs& a) {
  NormCall c;
  c.x = &a.x;
  c.weight = &a.weight;
  c.bias = &a.bias;
  c.y = &a.y;
  c.mean = &a.mean;
  c.rstd = &a.rstd;
  c.dtype = c.out = a.T;
  c.lead = a.lead;
  c.dim = a.dim;
  c.eps = a.eps;
  return c;
}

using LayerNorm = NormKernels<LayerNormArgs, layer_norm_call, NormInput::kPlain, /*kCentre=*/true>;

const Kernel<LayerNormArgs> kLayerNormCuda[] = {
    {"layer_norm_cuda_cluster", sm(90), LayerNorm::why_not_cluster, LayerNorm::cluster},
    {"layer_norm_cuda_vec", sm(75), LayerNorm::why_not_vec, LayerNorm::vec},
    {"layer_norm_cuda", sm(75), nullptr, LayerNorm::any},
    {},
};

}  // namespace ek
