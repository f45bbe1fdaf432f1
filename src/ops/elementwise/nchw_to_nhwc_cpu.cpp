// SPDX-License-Identifier: Apache-2.0
// nchw_to_nhwc on the CPU: each image is a [channels, pixels] matrix to transpose; where rows of pixels have gaps, each
// (image, row) is a [channels, width] one.
#include "dispatch/ops_gen.h"
#include "ops/elementwise/transpose_cpu.h"

namespace ek::EK_CPU_NS {

static ek_status nchw_to_nhwc_cpu(const NchwToNhwcArgs& a, const Launch&) {
  const Tensor &x = a.x, &y = a.y;
  const bool joined = x.stride[2] == a.width && y.stride[1] == a.width * y.stride[2];
  RowWalk<2> images;
  if (!joined) images.add_dim(a.height, {x.stride[2], y.stride[1]});
  images.add_dim(a.batch, {x.stride[0], y.stride[0]});
  return transpose_all(images, a.channels, joined ? a.height * a.width : a.width, x, x.stride[1], y, y.stride[2]);
}

const Kernel<NchwToNhwcArgs> kNchwToNhwcCpu[] = {
    {EK_CPU_ROW("nchw_to_nhwc_cpu"), kCpuTarget, nullptr, nchw_to_nhwc_cpu}, {}};

}  // namespace ek::EK_CPU_NS
