// SPDX-License-Identifier: Apache-2.0
// add_rms_norm_quant on CUDA: residual = T(residual + x); y * scale = rms_norm(residual), y in e4m3 or i8, a scale for each
// row or group. The row stays in registers through both reductions. Sums in f32.
// vec: in the registers of a warp or block. cluster: the widest rows. The last takes anything.
#include "dispatch/ops_gen.h"
#include "ops/norm/norm_launch.cuh"

namespace ek {

static NormCall add_rms_norm_quant_call(const AddRmsNormQuantArgs& a) {
  NormCall c;
  c.x = &a.x;
  c.other = &a.residual;
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

using AddRmsNormQuant =
    NormKernels<AddRmsNormQuantArgs, add_rms_norm_quant_call, NormInput::kAdd, /*kCentre=*/false, /*kQuant=*/true>;

const Kernel<AddRmsNormQuantArgs> kAddRmsNormQuantCuda[] = {
    {"add_rms_norm_quant_cuda_cluster", sm(90), AddRmsNormQuant::why_not_cluster, AddRmsNormQuant::cluster},
    {"add_rms_norm_quant_cuda_vec", sm(75), AddRmsNormQuant::why_not_vec, AddRmsNormQuant::vec},
    {"add_rms_norm_quant_cuda", sm(75), nullptr, AddRmsNormQuant::any},
    {},
};

}  // namespace ek
