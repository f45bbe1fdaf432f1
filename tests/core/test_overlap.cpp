// SPDX-License-Identifier: Apache-2.0
// Overlap of strided tensors against every address of both: never a missed overlap, and slices of packed tensors told
// apart.
#include <cstdint>
#include <random>
#include <set>
#include <vector>

#include "check.h"
#include "dispatch/overlap.h"

using namespace ek;

namespace {

alignas(64) char g_memory[1 << 16];

Tensor tensor(int64_t offset, const std::vector<int64_t>& shape, const std::vector<int64_t>& stride,
              ek_dtype dtype = EK_DTYPE_BF16) {
  Tensor t;
  t.data = g_memory + offset * dtype_bytes(dtype);
  t.dtype = dtype;
  t.ndim = static_cast<int32_t>(shape.size());
  for (size_t i = 0; i < shape.size(); ++i) t.shape[i] = shape[i], t.stride[i] = stride[i];
  return t;
}

// Every byte of the tensor; *twice: some element has two indices.
std::set<uintptr_t> bytes_of(const Tensor& t, bool* twice = nullptr) {
  std::set<uintptr_t> found;
  const int bytes = dtype_bytes(t.dtype);
  for (int64_t i = 0; i < t.numel(); ++i) {
    int64_t at = 0, rest = i;
    for (int d = t.ndim - 1; d >= 0; --d) {
      at += rest % t.shape[d] * t.stride[d];
      rest /= t.shape[d];
    }
    const auto first = reinterpret_cast<uintptr_t>(t.data) + static_cast<uintptr_t>(at * bytes);
    if (twice && found.count(first)) *twice = true;
    for (int b = 0; b < bytes; ++b) found.insert(first + static_cast<uintptr_t>(b));
  }
  return found;
}

bool share(const Tensor& a, const Tensor& b) {
  const std::set<uintptr_t> x = bytes_of(a);
  for (uintptr_t p : bytes_of(b))
    if (x.count(p)) return true;
  return false;
}

void test_packed() {
  // [tokens = 5, 3, heads = 4, dim = 8] packed: q, k and v lie in each other's range and share nothing.
  const std::vector<int64_t> shape = {5, 4, 8}, stride = {96, 8, 1};
  const Tensor q = tensor(0, shape, stride), k = tensor(32, shape, stride), v = tensor(64, shape, stride);
  CHECK(ranges_touch(q, k) && !may_overlap(q, k));
  CHECK(ranges_touch(q, v) && !may_overlap(q, v) && !may_overlap(v, k));
  CHECK(may_overlap(q, tensor(31, shape, stride)));
  CHECK(same_elements(q, q) && !same_elements(q, k));
  // gate and up of one row, halves and interleaved
  CHECK(!may_overlap(tensor(0, {6, 16}, {32, 1}), tensor(16, {6, 16}, {32, 1})));
  CHECK(!may_overlap(tensor(0, {6, 16}, {32, 2}), tensor(1, {6, 16}, {32, 2})));
  // One after the other
  CHECK(!ranges_touch(tensor(0, {8}, {1}), tensor(8, {8}, {1})));
  CHECK(!ranges_touch(tensor(0, {0}, {1}), tensor(0, {8}, {1})));
}

void test_random() {
  std::mt19937 random(7);
  const auto draw = [&](int64_t low, int64_t high) { return low + static_cast<int64_t>(random() % (high - low + 1)); };
  int told_apart = 0;
  for (int i = 0; i < 3000; ++i) {
    Tensor t[2];
    const int64_t pitch = draw(4, 40);
    for (Tensor& one : t) {
      std::vector<int64_t> shape, stride;
      for (int64_t d = draw(1, 3); d > 0; --d) {
        shape.push_back(draw(1, 4));
        stride.push_back(draw(0, 3) ? draw(0, 2) * pitch + draw(0, 1) * draw(0, 9) : draw(0, 50));
      }
      one = tensor(draw(0, 60), shape, stride, draw(0, 1) ? EK_DTYPE_BF16 : EK_DTYPE_F32);
    }
    const bool shared = share(t[0], t[1]);
    CHECK(!shared || (ranges_touch(t[0], t[1]) && may_overlap(t[0], t[1])));
    told_apart += !shared && ranges_touch(t[0], t[1]) && !may_overlap(t[0], t[1]);
    bool twice = false;
    bytes_of(t[0], &twice);
    CHECK(!twice || overlaps_itself(t[0]));
  }
  CHECK(told_apart > 20);  // it does more than compare ranges
  CHECK(!overlaps_itself(tensor(0, {3, 4, 8}, {96, 8, 1})) && !overlaps_itself(tensor(0, {4, 3}, {1, 4})));
  CHECK(overlaps_itself(tensor(0, {3, 8}, {0, 1})) && overlaps_itself(tensor(0, {3, 8}, {7, 1})));
}

}  // namespace

int main() {
  test_packed();
  test_random();
  return check::report("test_overlap");
}
