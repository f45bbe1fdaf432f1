// SPDX-License-Identifier: Apache-2.0
// Rows of several tensors cut into items (vectors, elements, groups, tiles), numbered row after row in 32 bits, so that
// a thread finds its row and column with multiplications only. The host splits what does not fit into slabs and moves
// the base pointers, so sizes are not limited.
#pragma once

#include "core/divider.h"
#include "core/tensor.h"

namespace ek {

// Adds the next dim outwards to rows that are built dim by dim (Rows<N>() at first), merged where that can be.
template <int N>
void add_dim(Rows<N>* rows, int64_t size, const int64_t (&stride)[N]) {
  const int last = rows->ndim - 1;
  rows->count = (last < 0 ? 1 : rows->count) * size;
  bool merges = last >= 0;
  for (int t = 0; t < N && merges; ++t)
    merges = rows->size[last] == 1 || size == 1 || stride[t] == rows->stride[t][last] * rows->size[last];
  if (merges) {
    if (rows->size[last] == 1)
      for (int t = 0; t < N; ++t) rows->stride[t][last] = stride[t];
    rows->size[last] *= size;
    return;
  }
  for (int t = 0; t < N; ++t) rows->stride[t][last + 1] = stride[t];
  rows->size[last + 1] = size;
  ++rows->ndim;
}

// The most items of a slab: rounded up to whole blocks they still have numbers below 2^31.
constexpr int64_t kMaxItems = (int64_t(1) << 31) - (int64_t(1) << 16);

// The most dims of a slab's rows: after merging two is much already, and every kernel carries them as arguments. Rows with
// more dims become several slabs.
constexpr int kItemDims = 3;

template <int N>
struct RowItems {
  int64_t first = 0;   // the number in its row of the first item; 0 but in rows of more than kMaxItems
  uint32_t count = 0;  // items of the slab
  int32_t ndim = 0;    // of the rows; 0: a single row (locate), which offset() takes as one dim of size 1
  Divider per_row;     // items in a row
  Divider size[kItemDims];
  int64_t stride[N][kItemDims];

#ifdef __CUDACC__
  // Sets at[t] to the offset of the item's row in tensor t, in elements, and returns its number in the row, from `first`
  // on.
  __device__ __forceinline__ uint32_t locate(uint32_t item, int64_t (&at)[N]) const {
#pragma unroll
    for (int t = 0; t < N; ++t) at[t] = 0;
    if (ndim == 0) return item;
    uint32_t row = per_row.divide(item);
    const uint32_t column = item - row * per_row.divisor;
#pragma unroll 1
    for (int d = 0; d < ndim - 1; ++d) {
      const uint32_t outer = size[d].divide(row), inner = row - outer * size[d].divisor;
#pragma unroll
      for (int t = 0; t < N; ++t) at[t] += inner * stride[t][d];
      row = outer;
    }
#pragma unroll
    for (int t = 0; t < N; ++t) at[t] += row * stride[t][ndim - 1];
    return column;
  }

  // Where row `row` of tensor t begins: for items that are whole rows, one tensor at a time.
  __device__ __forceinline__ int64_t offset(int t, uint32_t row) const {
    int64_t at = 0;
#pragma unroll 1
    for (int d = 0; d < ndim - 1; ++d) {
      const uint32_t outer = size[d].divide(row);
      at += (row - outer * size[d].divisor) * stride[t][d];
      row = outer;
    }
    return at + row * stride[t][ndim - 1];
  }
#endif
};

namespace slabs {

// The first `ndim` dims of `rows`, from the base offsets `at` on.
template <int N, class F>
ek_status walk(const Rows<N>& rows, int ndim, int64_t first, int64_t per_row, const int64_t (&at)[N], F& run) {
  const int last = ndim - 1;
  int64_t inner = 1;
  for (int d = 0; d < last; ++d) inner *= rows.size[d];
  const int64_t items = inner * (per_row < 1 ? 1 : per_row);
  const bool descend = items > kMaxItems || ndim > kItemDims;  // then last > 0, as a single row always fits
  const int64_t chunk = descend ? 1 : kMaxItems / items;
  for (int64_t o = 0; o < rows.size[last]; o += chunk) {
    const int64_t size = chunk < rows.size[last] - o ? chunk : rows.size[last] - o;
    int64_t base[N];
    for (int t = 0; t < N; ++t) base[t] = at[t] + o * rows.stride[t][last];
    ek_status status;
    if (descend) {
      status = walk(rows, last, first, per_row, base, run);
    } else {
      RowItems<N> slab;
      slab.first = first;
      slab.count = static_cast<uint32_t>(inner * size * per_row);
      slab.ndim = inner * size == 1 ? 0 : ndim;
      slab.per_row = Divider(per_row < 1 ? 1 : per_row);
      for (int d = 0; d < slab.ndim; ++d) {
        slab.size[d] = Divider(d < last ? rows.size[d] : size);
        for (int t = 0; t < N; ++t) slab.stride[t][d] = rows.stride[t][d];
      }
      status = run(slab, base);
    }
    if (status != EK_STATUS_OK) return status;
  }
  return EK_STATUS_OK;
}

}  // namespace slabs

// Calls run(const RowItems<N>&, const int64_t (&at)[N]) for slabs that together hold every item; `at` is to be added to
// the tensors' base pointers. Rows have `per_row` items, each step[t] elements of tensor t. Nearly always one call.
template <int N, class F>
ek_status for_each_slab(const Rows<N>& rows, int64_t per_row, const int64_t (&step)[N], F&& run) {
  int64_t done = 0;
  do {
    const int64_t items = per_row - done < kMaxItems ? per_row - done : kMaxItems;
    int64_t at[N];
    for (int t = 0; t < N; ++t) at[t] = done * step[t];
    if (const ek_status status = slabs::walk(rows, rows.ndim, done, items, at, run)) return status;
    done += items;
  } while (done < per_row);
  return EK_STATUS_OK;
}

}  // namespace ek
