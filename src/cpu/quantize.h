// SPDX-License-Identifier: Apache-2.0
// Rows of f32 values to e4m3 or i8 with a scale for each group of columns: value = q * scale.
#pragma once

#include "cpu/reduce.h"
#include "cpu/rows.h"

namespace ek::EK_CPU_NS {

EK_INLINE float quant_limit(Type<e4m3>) { return 448.f; }
EK_INLINE float quant_limit(Type<i8>) { return 127.f; }

// value(column, n, v) sets v to the values of columns [column, column + n), n <= kTile. group 0: the row is one group.
// A NaN makes the scale NaN, and with it the group: nothing wrong looks right.
template <class Q, class Value>
void quantize_row(int64_t dim, int64_t group, const Value& value, Q* y, float* scale, int64_t scale_stride) {
  const int64_t groups = group > 0 ? ceil_div(dim, group) : 1;
  if (group == 0) group = dim;
  float v[kTile];
  for (int64_t g = 0; g < groups; ++g) {
    const int64_t begin = g * group, length = min_of(group, dim - begin);
    uint32_t most = 0;
    each_tile(length, [&](int64_t at, int64_t n) {
      value(begin + at, n, v);
      most = max_of(most, max_magnitude(v, n));
    });
    const float amax = float_of(most);
    const float s = (amax < 1e-20f ? 1e-20f : amax) / quant_limit(Type<Q>());
    scale[g * scale_stride] = s;
    each_tile(length, [&](int64_t at, int64_t n) {
      if (length > kTile) value(begin + at, n, v);  // a short group is still in v
      for (int64_t i = 0; i < n; ++i) v[i] /= s;
      store(v, n, y + begin + at);
    });
  }
}

}  // namespace ek::EK_CPU_NS
