// SPDX-License-Identifier: Apache-2.0
// y[b, h, w, c] = x[b, c, h, w].
// Each image is a matrix to transpose, [channels, pixels]; where the rows of pixels have gaps, each row of an image is one.
// _narrow: images of 2, 3 or 4 channels. _vec: 16-byte accesses on both sides; the other row takes any alignment, with vectors on the side that allows them.
#include "dispatch/ops_gen.h"
#include "ops/elementwise/narrow.cuh"
#include "ops/elementwise/transpose.cuh"

namespace ek {
namespace {

Transpose problem(const NchwToNhwcArgs& a) {
  const Tensor &x = a.x, &y = a.y;
  const bool joined = x.stride[2] == a.width && y.stride[1] == a.width * y.stride[2];
  Rows<2> images;
  if (!joined) add_dim(&images, a.height, {x.stride[2], y.stride[1]});
  add_dim(&images, a.batch, {x.stride[0], y.stride[0]});
  return {x.data, y.data, a.channels, joined ? a.height * a.width : a.width, x.stride[1], y.stride[2], images};
}

const char* why_not_narrow(const NchwToNhwcArgs& a, const Device&) {
  return narrow_why_not<false>(problem(a), dtype_bytes(a.T));
}

ek_status nchw_to_nhwc_cuda_narrow(const NchwToNhwcArgs& a, const Launch& l) {
  return narrow_cuda<false>(l, problem(a), dtype_bytes(a.T));
}

const char* why_not_vec(const NchwToNhwcArgs& a, const Device&) {
  return transpose_why_not_vec(problem(a), dtype_bytes(a.T));
}

ek_status nchw_to_nhwc_cuda_vec(const NchwToNhwcArgs& a, const Launch& l) {
  return transpose_cuda_vec(l, problem(a), dtype_bytes(a.T));
}

ek_status nchw_to_nhwc_cuda(const NchwToNhwcArgs& a, const Launch& l) {
  return transpose_cuda(l, problem(a), dtype_bytes(a.T));
}

}  // namespace

const Kernel<NchwToNhwcArgs> kNchwToNhwcCuda[] = {
    {"nchw_to_nhwc_cuda_narrow", sm(75), why_not_narrow, nchw_to_nhwc_cuda_narrow},
    {"nchw_to_nhwc_cuda_vec", sm(75), why_not_vec, nchw_to_nhwc_cuda_vec},
    {"nchw_to_nhwc_cuda", sm(75), nullptr, nchw_to_nhwc_cuda},
    {},
};

}  // namespace ek
