// SPDX-License-Identifier: Apache-2.0
// The slabs of rows that CUDA kernels walk: together they hold every item once, whatever the number of dims.
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "check.h"
#include "cuda/rows.cuh"

using namespace ek;

namespace {

// (offset in tensor 0, offset in tensor 1, item of its row) -> how often it came
using Items = std::map<std::pair<std::pair<int64_t, int64_t>, int64_t>, int>;

// What RowItems::locate does, with plain divisions.
void add_slab(const RowItems<2>& slab, const int64_t (&base)[2], Items& items) {
  CHECK(slab.ndim <= kItemDims);
  for (uint32_t i = 0; i < slab.count; ++i) {
    int64_t at[2] = {base[0], base[1]};
    uint32_t row = i / slab.per_row.divisor;
    const int64_t column = slab.ndim ? i - row * slab.per_row.divisor : i;
    for (int d = 0; d < slab.ndim; ++d) {
      const uint32_t inner = d + 1 < slab.ndim ? row % slab.size[d].divisor : row;
      row = d + 1 < slab.ndim ? row / slab.size[d].divisor : 0;
      for (int t = 0; t < 2; ++t) at[t] += inner * slab.stride[t][d];
    }
    ++items[{{at[0], at[1]}, slab.first + column}];
  }
}

void check_rows(const std::vector<int64_t>& sizes, int64_t per_row) {
  // Strides with a gap after every dim, different in the two tensors, so that none of the dims merge.
  Rows<2> rows;
  rows.count = 1;
  int64_t stride[2] = {7, 11};
  for (int64_t size : sizes) {
    rows.size[rows.ndim] = size;
    for (int t = 0; t < 2; ++t) {
      rows.stride[t][rows.ndim] = stride[t];
      stride[t] = stride[t] * size + 3 + t;
    }
    ++rows.ndim;
    rows.count *= size;
  }
  Items expected, got;
  for (int64_t r = 0; r < rows.count; ++r)
    for (int64_t i = 0; i < per_row; ++i) ++expected[{{rows.offset(0, r), rows.offset(1, r)}, i}];
  const int64_t step[2] = {1, 1};
  int slabs = 0;
  const ek_status status = for_each_slab(rows, per_row, step, [&](const RowItems<2>& slab, const int64_t (&base)[2]) {
    add_slab(slab, base, got);
    ++slabs;
    return EK_STATUS_OK;
  });
  CHECK_EQ(status, EK_STATUS_OK);
  CHECK(got == expected);
  if (rows.ndim <= kItemDims) CHECK_EQ(slabs, 1);
}

}  // namespace

int main() {
  for (int64_t per_row : {1, 5}) {
    check_rows({1}, per_row);
    check_rows({6}, per_row);
    check_rows({3, 4}, per_row);
    check_rows({2, 3, 4}, per_row);
    check_rows({2, 3, 2, 3}, per_row);
    check_rows({3, 2, 2, 3, 2}, per_row);
    check_rows({2, 2, 3, 2, 2, 2, 2}, per_row);
  }
  // An error ends the walk.
  Rows<2> rows;
  rows.count = 16;
  rows.ndim = 4;
  for (int d = 0; d < 4; ++d) rows.size[d] = 2, rows.stride[0][d] = rows.stride[1][d] = 100 * (d + 1);
  const int64_t step[2] = {0, 0};
  int calls = 0;
  const ek_status status = for_each_slab(rows, 1, step, [&](const RowItems<2>&, const int64_t (&)[2]) {
    ++calls;
    return EK_STATUS_CUDA;
  });
  CHECK_EQ(status, EK_STATUS_CUDA);
  CHECK_EQ(calls, 1);
  return check::report("test_row_items");
}
