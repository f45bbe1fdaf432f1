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

// Of sizes that no test can go through item by item: slabs come one after the other, none is longer than its numbers allow, and
// together they have as many items as there are.
void check_large(const std::vector<int64_t>& sizes, int64_t per_row) {
  Rows<1> rows;
  rows.count = 1;
  for (int64_t size : sizes) {
    rows.size[rows.ndim] = size;
    rows.stride[0][rows.ndim++] = rows.count * per_row;  // dense, so that an item's offset is its number
    rows.count *= size;
  }
  const int64_t step[1] = {1};
  int64_t items = 0, next = 0, slabs = 0;
  const bool divided = per_row > kMaxItems;  // rows in parts: the parts of all rows one after the other
  for_each_slab(rows, per_row, step, [&](const RowItems<1>& slab, const int64_t (&base)[1]) {
    CHECK(slab.count > 0 && slab.count <= kMaxItems);
    CHECK(slab.first == 0 || divided);
    if (!divided) CHECK_EQ(base[0], next);
    // The offset of the last item, as a kernel finds it, is that of the first and as many as lie between.
    uint32_t row = (slab.count - 1) / slab.per_row.divisor;
    int64_t last = base[0] + (slab.ndim ? (slab.count - 1) % slab.per_row.divisor : slab.count - 1);
    for (int d = 0; d < slab.ndim; ++d) {
      const bool inner = d + 1 < slab.ndim;
      last += (inner ? row % slab.size[d].divisor : row) * slab.stride[0][d];
      row = inner ? row / slab.size[d].divisor : 0;
    }
    if (!divided) CHECK_EQ(last, next + slab.count - 1);
    next += slab.count;
    items += slab.count;
    ++slabs;
    return EK_STATUS_OK;
  });
  CHECK_EQ(items, rows.count * per_row);
  CHECK(slabs >= items / kMaxItems);
}

}  // namespace

int main() {
  const int64_t most = kMaxItems, many = (int64_t{1} << 31) + 127;
  for (int64_t per_row : {int64_t{1}, int64_t{3}, most - 1, most, most + 1, 3 * most + 5}) {
    check_large({1}, per_row);
    check_large({7}, per_row);
    check_large({3, 5}, per_row);
  }
  for (int64_t per_row : {1, 5}) {
    check_large({most}, per_row);
    check_large({many}, per_row);
    check_large({4 * many}, per_row);
    check_large({1000, many / 1000}, per_row);
    check_large({many, 3}, per_row);
    check_large({3, 70000, 5, 40000}, per_row);
  }
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
