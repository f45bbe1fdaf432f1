// SPDX-License-Identifier: Apache-2.0
// The leading dims ("...") of several tensors walked together, by whole rows or by tiles of rows.
#pragma once

#include "cpu/convert.h"
#include "cpu/parallel.h"

namespace ek::EK_CPU_NS {

// Rows of N tensors; dims are added from the innermost outwards and merged where every tensor steps evenly.
template <int N>
struct RowWalk {
  int64_t count = 1;
  int32_t ndim = 0;
  int64_t size[kMaxDims];
  int64_t stride[N][kMaxDims];

  void add_dim(int64_t n, const int64_t (&step)[N]) {
    count *= n;
    if (n == 1) return;
    bool even = ndim > 0;
    for (int t = 0; t < N && even; ++t) even = step[t] == stride[t][ndim - 1] * size[ndim - 1];
    if (even) {
      size[ndim - 1] *= n;
      return;
    }
    size[ndim] = n;
    for (int t = 0; t < N; ++t) stride[t][ndim] = step[t];
    ++ndim;
  }

  // Offset in elements of row r in each tensor.
  void offsets(int64_t r, int64_t (&at)[N]) const {
    for (int t = 0; t < N; ++t) at[t] = 0;
    for (int d = 0; d < ndim; ++d) {
      const int64_t i = d + 1 < ndim ? r % size[d] : r;
      for (int t = 0; t < N; ++t) at[t] += i * stride[t][d];
      if (d + 1 < ndim) r /= size[d];
    }
  }
};

// The first `lead` dims of the tensors, the first of which is present. An absent one has only strides of 0.
template <int N>
RowWalk<N> rows_of(int32_t lead, const Tensor* const (&tensors)[N]) {
  RowWalk<N> rows;
  for (int d = lead - 1; d >= 0; --d) {
    int64_t step[N];
    for (int t = 0; t < N; ++t) step[t] = tensors[t]->data ? tensors[t]->stride[d] : 0;
    rows.add_dim(tensors[0]->shape[d], step);
  }
  return rows;
}

// body(at, row): `at` holds the offset of the row in each tensor.
template <int N, class Body>
void for_rows(const RowWalk<N>& rows, int64_t dim, const Body& body) {
  parallel_for(rows.count, grain_of(dim), [&](int64_t begin, int64_t end) {
    int64_t at[N];
    for (int64_t r = begin; r < end; ++r) {
      rows.offsets(r, at);
      body(at, r);
    }
  });
}

// body(at, column, n): columns [column, column + n) of a row, n <= kTile. For ops that treat every element alone.
template <int N, class Body>
void for_tiles(const RowWalk<N>& rows, int64_t dim, const Body& body) {
  const int64_t tiles = ceil_div(dim, kTile);
  if (tiles == 0) return;
  parallel_for(rows.count * tiles, grain_of(min_of(dim, kTile)), [&](int64_t begin, int64_t end) {
    int64_t at[N];
    for (int64_t unit = begin; unit < end;) {
      int64_t tile = unit % tiles;
      rows.offsets(unit / tiles, at);
      for (; tile < tiles && unit < end; ++tile, ++unit) body(at, tile * kTile, min_of(kTile, dim - tile * kTile));
    }
  });
}

// for_tiles over "T[..., w]" tensors whose elements go one to one (w = dim) or in runs (w a multiple of dim). Where all
// of them are dense, the whole is one long row, so that narrow rows cost nothing.
template <int N, class Body>
void for_elements(int32_t lead, const Tensor* const (&tensors)[N], int64_t dim, const Body& body) {
  RowWalk<N> rows = rows_of(lead, tensors);
  bool dense = rows.ndim == 1;
  for (int t = 0; t < N && dense; ++t)
    if (tensors[t]->data) dense = rows.stride[t][0] == tensors[t]->shape[lead];
  if (!dense) return for_tiles(rows, dim, body);
  const int64_t total = rows.count * dim;
  rows.count = 1;
  rows.ndim = 0;
  for_tiles(rows, total, body);
}

// columns [0, dim) in tiles: body(column, n)
template <class Body>
EK_INLINE void each_tile(int64_t dim, const Body& body) {
  for (int64_t at = 0; at < dim; at += kTile) body(at, min_of(kTile, dim - at));
}

}  // namespace ek::EK_CPU_NS
