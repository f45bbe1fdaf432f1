// SPDX-License-Identifier: Apache-2.0
// Ops that treat every element alone: y = f(x) and y = f(a, b) over "T[..., dim]", f on f32.
#pragma once

#include "cpu/rows.h"

namespace ek::EK_CPU_NS {

// Tiles go through buffers of our own, so that y may be x.
template <class F>
ek_status map_unary(ek_dtype dtype, int32_t lead, int64_t dim, const Tensor& x, const Tensor& y, const F& f) {
  with_float(dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    for_elements<2>(lead, {&x, &y}, dim, [&](const int64_t* at, int64_t column, int64_t n) {
      float v[kTile];
      load(data_of<const T>(x) + at[0] + column, n, v);
      for (int64_t i = 0; i < padded(n); ++i) v[i] = f(v[i]);
      store(v, n, data_of<T>(y) + at[1] + column);
    });
  });
  return EK_STATUS_OK;
}

template <class F>
ek_status map_binary(ek_dtype dtype, int32_t lead, int64_t dim, const Tensor& a, const Tensor& b, const Tensor& y,
                     const F& f) {
  with_float(dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    for_elements<3>(lead, {&a, &b, &y}, dim, [&](const int64_t* at, int64_t column, int64_t n) {
      float v[kTile], w[kTile];
      load(data_of<const T>(a) + at[0] + column, n, v);
      load(data_of<const T>(b) + at[1] + column, n, w);
      for (int64_t i = 0; i < padded(n); ++i) v[i] = f(v[i], w[i]);
      store(v, n, data_of<T>(y) + at[2] + column);
    });
  });
  return EK_STATUS_OK;
}

}  // namespace ek::EK_CPU_NS
