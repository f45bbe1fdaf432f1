// SPDX-License-Identifier: Apache-2.0
// y[b, c, h, w] = x[b, h, w, c].
// Each image is a matrix to transpose, [pixels, channels]; where the rows of pixels have gaps, each row of an image is one.
// _narrow: images of 2, 3 or 4 channels. _vec: 16-byte accesses on both sides; the other row takes any alignment, with vectors on the side that allows them.
#include "dispatch/ops_gen.h"
#include "ops/elementwise/narrow.cuh"
#include "ops/elementwise/transpose.cuh"

namespace ek {
namespace {

Transpose problem(const NhwcToNchwArgs& a) {
  const Tensor &x = a.x, &y = a.y;
  const bool joined = y.stride[2] == a.width && x.stride[1] == a.width * x.stride[2];
  Rows<2> images;
  if (!joined) add_dim(&images, a.height, {x.stride[1], y.stride[2]});
  add_dim(&images, a.batch, {x.stride[0], y.stride[0]});
  return {x.data, y.data, joined ? a.height * a.width : a.width, a.channels, x.stride[2], y.stride[1], images};
}

const char* why_not_narrow(const NhwcToNchwArgs& a, const Device&) {
  return narrow_why_not<true>(problem(a), dtype_bytes(a.T));
}

ek_status nhwc_to_nchw_cuda_narrow(const NhwcToNchwArgs& a, const Launch& l) {
  return narrow_cuda<true>(l, problem(a), dtype_bytes(a.T));
}

const char* why_not_vec(const NhwcToNchwArgs& a, const Device&) {
  return transpose_why_not_vec(problem(a), dtype_bytes(a.T));
}

ek_status nhwc_to_nchw_cuda_vec(const NhwcToNchwArgs& a, const Launch& l) {
  return transpose_cuda_vec(l, problem(a), dtype_bytes(a.T));
}

ek_status nhwc_to_nchw_cuda(const NhwcToNchwArgs& a, const Launch& l) {
  return transpose_cuda(l, problem(a), dtype_bytes(a.T));
}

}  // namespace

const Kernel<NhwcToNchwArgs> kNhwcToNchwCuda[] = {
    {"nhwc_to_nchw_cuda_narrow", sm(75), why_not_narrow, nhwc_to_nchw_cuda_narrow},
    {"nhwc_to_nchw_cuda_vec", sm(75), why_not_vec, nhwc_to_nchw_cuda_vec},
    {"nhwc_to_nchw_cuda", sm(75), nullptr, nhwc_to_nchw_cuda},
    {},
};

}  // namespace ek
