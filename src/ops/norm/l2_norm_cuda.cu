// SPDX-License-Identifier: Apache-2.0
// l2_norm on CUDA: y = x / sqrt(sum(x^2) + eps). Sums in f32.
// vec: the row in the registers of a warp or block, read once. cluster: the widest rows. The last takes anything.
#include "dispatch/ops_gen.h"
#include "ops/norm/norm_launch.cuh"

namespace ek {

static NormCall l2_norm_call(const L2NormArgs& a) {
  NormCall c;
  c.x = &a.x;
  c.y = &a.y;
  c.dtype = c.out = a.T;
  c.lead = a.lead;
  c.dim = a.dim;
  c.eps = a.eps;
  c.mean_of_squares = false;
  return c;
}

using L2Norm = NormKernels<L2NormArgs, l2_norm_call, NormInput::kPlain, /*kCentre=*/false>;

const Kernel<L2NormArgs> kL2NormCuda[] = {
    {"l2_norm_cuda_cluster", sm(90), L2Norm::why_not_cluster, L2Norm::cluster},
    {"l2_norm_cuda_vec", sm(75), L2Norm::why_not_vec, L2Norm::vec},
    {"l2_norm_cuda", sm(75), nullptr, L2Norm::any},
    {},
};

}  // namespace ek
