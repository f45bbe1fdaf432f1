// SPDX-License-Identifier: Apache-2.0
// nhwc_to_nchw on the CPU: each image is a [pixels, channels] matrix to transpose; where rows of pixels have gaps, each
// (image, row) is a [width, channels] one.
#include "dispatch/ops_gen.h"
#include "ops/elementwise/transpose_cpu.h"

namespace ek::EK_CPU_NS {

static ek_status nhwc_to_nchw_cpu(const NhwcToNchwArgs& a, const Launch&) {
  const Tensor &x = a.x, &y = a.y;
  const bool joined = x.stride[1] == a.width * x.stride[2] && y.stride[2] == a.width;
  RowWalk<2> images;
  if (!joined) images.add_dim(a.height, {x.stride[1], y.stride[2]});
  images.add_dim(a.batch, {x.stride[0], y.stride[0]});
  return transpose_all(images, joined ? a.height * a.width : a.width, a.channels, x, x.stride[2], y, y.stride[1]);
}

const Kernel<NhwcToNchwArgs> kNhwcToNchwCpu[] = {
    {EK_CPU_ROW("nhwc_to_nchw_cpu"), kCpuTarget, nullptr, nhwc_to_nchw_cpu}, {}};

}  // namespace ek::EK_CPU_NS
