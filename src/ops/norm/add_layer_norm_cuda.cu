// SPDX-License-Identifier: Apache-2.0
// add_layer_norm on CUDA: residual = T(residual + x); y = (residual - mean) * rstd * weight + bias. Sums in f32.
// vec: the row in the registers of a warp or block, read once. cluster: the widest rows. The last takes anything.
#include "dispatch/ops_gen.h"
#include "ops/norm/norm_launch.cuh"

namespace ek {

static NormCall add_layer_norm_call(const AddLayerNormArgs& a) {
  NormCall c;
  c.x = &a.x;
  c.other = &a.residual;
  c.weight = &a.weight;
  c.bias = &a.bias;
  c.y = &a.y;
  c.dtype = c.out = a.T;
  c.lead = a.lead;
  c.dim = a.dim;
  c.eps = a.eps;
  return c;
}

using AddLayerNorm = NormKernels<AddLayerNormArgs, add_layer_norm_call, NormInput::kAdd, /*kCentre=*/true>;

const Kernel<AddLayerNormArgs> kAddLayerNormCuda[] = {
    {"add_layer_norm_cuda_cluster", sm(90), AddLayerNorm::why_not_cluster, AddLayerNorm::cluster},
    {"add_layer_norm_cuda_vec", sm(75), AddLayerNorm::why_not_vec, AddLayerNorm::vec},
    {"add_layer_norm_cuda", sm(75), nullptr, AddLayerNorm::any},
    {},
};

}  // namespace ek
