// SPDX-License-Identifier: Apache-2.0
// upsample_nearest_2x on the CPU: bit patterns are copied, a row of x at a time.
// nchw: each element twice, and the row twice; nhwc: each pixel's channels four times.
#include "cpu/rows.h"
#include "dispatch/ops_gen.h"

namespace ek::EK_CPU_NS {

// x [batch, channels, height, width]
template <class U>
static void upsample_nchw(const UpsampleNearest2xArgs& a) {
  const Tensor &x = a.x, &y = a.y;
  const int64_t height = a.d2, width = a.d3;
  RowWalk<2> rows;
  rows.add_dim(height, {x.stride[2], 2 * y.stride[2]});
  rows.add_dim(a.d1, {x.stride[1], y.stride[1]});
  rows.add_dim(a.batch, {x.stride[0], y.stride[0]});
  for_rows(rows, 4 * width, [&](const int64_t* at, int64_t) {
    const U* src = data_of<const U>(x) + at[0];
    U* __restrict dst = data_of<U>(y) + at[1];
    for (int64_t i = 0; i < width; ++i) dst[2 * i] = dst[2 * i + 1] = src[i];
    __builtin_memcpy(dst + y.stride[2], dst, 2 * width * sizeof(U));
  });
}

// x [batch, height, width, channels]
template <class U>
static void upsample_nhwc(const UpsampleNearest2xArgs& a) {
  const Tensor &x = a.x, &y = a.y;
  const int64_t height = a.d1, width = a.d2, channels = a.d3;
  RowWalk<2> rows;
  rows.add_dim(height, {x.stride[1], 2 * y.stride[1]});
  rows.add_dim(a.batch, {x.stride[0], y.stride[0]});
  for_rows(rows, 4 * width * channels, [&](const int64_t* at, int64_t) {
    const U* src = data_of<const U>(x) + at[0];
    U* dst = data_of<U>(y) + at[1];
    for (int64_t below = 0; below < 2; ++below)
      for (int64_t i = 0; i < 2 * width; ++i)
        __builtin_memcpy(dst + below * y.stride[1] + i * y.stride[2], src + i / 2 * x.stride[2], channels * sizeof(U));
  });
}

static ek_status upsample_nearest_2x_cpu(const UpsampleNearest2xArgs& a, const Launch&) {
  const bool wide = a.T == EK_DTYPE_F32;
  if (a.layout == EK_IMAGE_LAYOUT_NCHW)
    wide ? upsample_nchw<uint32_t>(a) : upsample_nchw<uint16_t>(a);
  else
    wide ? upsample_nhwc<uint32_t>(a) : upsample_nhwc<uint16_t>(a);
  return EK_STATUS_OK;
}

const Kernel<UpsampleNearest2xArgs> kUpsampleNearest2xCpu[] = {
    {EK_CPU_ROW("upsample_nearest_2x_cpu"), kCpuTarget, nullptr, upsample_nearest_2x_cpu}, {}};

}  // namespace ek::EK_CPU_NS
