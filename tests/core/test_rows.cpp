// SPDX-License-Identifier: Apache-2.0
// make_rows and Rows::offset against the definition: row r of a tensor is element r of its leading dims in row-major
// order.
#include <cstdint>
#include <random>
#include <vector>

#include "check.h"
#include "core/tensor.h"

using ek::make_rows;
using ek::Rows;
using ek::Tensor;

namespace {

Tensor tensor(const std::vector<int64_t>& shape, const std::vector<int64_t>& stride, void* data = &check::g_checks) {
  Tensor t;
  t.data = data;
  t.dtype = EK_DTYPE_BF16;
  t.ndim = static_cast<int32_t>(shape.size());
  for (size_t i = 0; i < shape.size(); ++i) {
    t.shape[i] = shape[i];
    t.stride[i] = stride[i];
  }
  return t;
}

std::vector<int64_t> dense(const std::vector<int64_t>& shape) {
  std::vector<int64_t> stride(shape.size(), 1);
  for (size_t i = shape.size() - 1; i-- > 0;) stride[i] = stride[i + 1] * shape[i + 1];
  return stride;
}

// The definition.
int64_t plain_offset(const Tensor& t, int lead, int64_t r) {
  int64_t at = 0;
  for (int d = lead - 1; d >= 0; --d) {
    at += r % t.shape[d] * t.stride[d];
    r /= t.shape[d];
  }
  return at;
}

template <int N>
bool same(const Rows<N>& rows, int lead, const Tensor* const (&tensors)[N]) {
  for (int64_t r = 0; r < rows.count; ++r)
    for (int t = 0; t < N; ++t)
      if (rows.offset(t, r) != (*tensors[t] ? plain_offset(*tensors[t], lead, r) : 0)) return false;
  return true;
}

void test_merging() {
  const std::vector<int64_t> shape = {2, 3, 4, 64};
  const Tensor x = tensor(shape, dense(shape)), y = tensor(shape, {4 * 3 * 80, 4 * 80, 80, 1});
  auto rows = make_rows<2>(3, {&x, &y});
  CHECK_EQ(rows.count, int64_t{24});
  CHECK_EQ(rows.ndim, 1);  // both step evenly, though y has padded rows
  CHECK_EQ(rows.stride[1][0], int64_t{80});

  // q of a packed [tokens, 3, heads, head_dim]: two dims stay for q alone, and for the pair.
  const std::vector<int64_t> heads = {5, 8, 64};
  const Tensor q = tensor(heads, {3 * 8 * 64, 64, 1}), out = tensor(heads, dense(heads));
  rows = make_rows<2>(2, {&q, &out});
  CHECK_EQ(rows.ndim, 2);
  CHECK_EQ(rows.size[0], int64_t{8});
  CHECK_EQ(rows.stride[0][1], int64_t{3 * 8 * 64});
  CHECK(same<2>(rows, 2, {&q, &out}));

  // Broadcast: stride 0 in the outer dim keeps the dims apart, in all dims it merges them.
  const Tensor outer = tensor(shape, {0, 256, 64, 1}), all = tensor(shape, {0, 0, 0, 1});
  rows = make_rows<2>(3, {&x, &outer});
  CHECK_EQ(rows.ndim, 2);
  CHECK(same<2>(rows, 3, {&x, &outer}));
  rows = make_rows<2>(3, {&all, &all});
  CHECK_EQ(rows.ndim, 1);
  CHECK_EQ(rows.stride[0][0], int64_t{0});
}

void test_edges() {
  const Tensor one = tensor({64}, {1}), absent = tensor({}, {}, nullptr);
  auto rows = make_rows<2>(0, {&one, &absent});
  CHECK_EQ(rows.count, int64_t{1});
  CHECK_EQ(rows.ndim, 1);
  CHECK_EQ(rows.offset(0, 0), int64_t{0});

  // Dims of size 1 have no say, whatever their stride.
  const Tensor x = tensor({1, 7, 1, 64}, {12345, 64, 999, 1});
  rows = make_rows<2>(3, {&x, &absent});
  CHECK_EQ(rows.count, int64_t{7});
  CHECK_EQ(rows.ndim, 1);
  CHECK_EQ(rows.stride[0][0], int64_t{64});
  CHECK_EQ(rows.offset(1, 5), int64_t{0});

  const Tensor empty = tensor({3, 0, 64}, {0, 64, 1});
  CHECK_EQ(make_rows<1>(2, {&empty}).count, int64_t{0});

  // Beyond 32 bits in the row index, in a size, in the offset.
  const int64_t big = int64_t{1} << 33;
  const Tensor tall = tensor({3, big, 2, 8}, {5 * big * 16, 16, 0, 1});
  const auto wide = make_rows<1>(3, {&tall});
  CHECK_EQ(wide.count, 6 * big);
  for (int64_t r : {int64_t{0}, int64_t{1}, 2 * big - 1, 2 * big, 3 * big + 5, 6 * big - 1})
    CHECK_EQ(wide.offset(0, r), plain_offset(tall, 3, r));
}

// Random shapes and strides of up to seven leading dims; one tensor in eight is absent.
void test_random() {
  std::mt19937 random(20240607);
  const auto below = [&random](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  for (int round = 0; round < 3000; ++round) {
    const int lead = below(8);
    std::vector<int64_t> shape;
    for (int d = 0; d < lead; ++d) shape.push_back(1 + below(lead > 4 ? 3 : 6));
    shape.push_back(8);
    Tensor t[3];
    for (Tensor& each : t) {
      std::vector<int64_t> stride = dense(shape);
      for (int d = 0; d < lead; ++d) {
        const int kind = below(8);
        if (kind == 0) stride[d] = 0;
        if (kind == 1) stride[d] = 8 * below(1000);
        if (kind == 2)
          for (int e = 0; e <= d; ++e) stride[e] *= 2;  // padding from here outwards
      }
      each = tensor(shape, stride, below(8) ? static_cast<void*>(&check::g_checks) : nullptr);
    }
    if (!t[0] && !t[1] && !t[2]) continue;
    const auto rows = make_rows<3>(lead, {&t[0], &t[1], &t[2]});
    int64_t count = 1;
    for (int d = 0; d < lead; ++d) count *= shape[d];
    if (!CHECK_EQ(rows.count, count) || !CHECK(same<3>(rows, lead, {&t[0], &t[1], &t[2]}))) {
      std::fprintf(stderr, "  round %d, %d leading dims\n", round, lead);
      return;
    }
  }
}

void test_alignment() {
  alignas(256) static char memory[512];
  const Tensor x = tensor({3, 4, 64}, {1024, 64, 1}, memory);
  CHECK(ek::rows_aligned(x, 2, 16));
  CHECK(!ek::rows_aligned(tensor({3, 4, 64}, {1024, 63, 1}, memory), 2, 16));
  CHECK(ek::rows_aligned(tensor({3, 1, 64}, {1024, 63, 1}, memory), 2, 16));  // a stride that is never taken
  CHECK(!ek::rows_aligned(tensor({3, 4, 64}, {1024, 64, 1}, memory + 2), 2, 16));
  CHECK(ek::rows_aligned(tensor({3, 4, 64}, {1024, 64, 1}, memory + 16), 2, 16));
  CHECK(ek::rows_aligned(tensor({3}, {1}, nullptr), 1, 16));
}

}  // namespace

int main() {
  test_merging();
  test_edges();
  test_random();
  test_alignment();
  return check::report("test_rows");
}
