// SPDX-License-Identifier: Apache-2.0
// Plans of the Hopper products of few rows (gemm_sm90_skinny, gemm_sm90_narrow): all columns and all of k belong to a block, nobody
// has nothing to do, and shared memory is not asked for beyond what there is.
#include <cstdint>

#include "check.h"
#include "gemm_calls.h"
#include "ops/gemm/gemm_config.h"
#include "ops/gemm/gemm_sm90_narrow_config.h"
#include "ops/gemm/gemm_sm90_skinny_config.h"

using namespace ek;

namespace {

// Any n: from 2^32 - 15 on a sum of 32 bits would wrap, and end in no block at all.
void skinny_blocks() {
  const Device device = h200();
  const auto blocks = [&](int64_t n) { return gemm_skinny_blocks(linear(1, n, 8), device, 16, 2); };
  CHECK_EQ(blocks(1), 1);
  CHECK_EQ(blocks(17), 2);
  CHECK_EQ(blocks(16 * 264), 264);
  for (int power = 31; power <= 40; ++power)
    for (int64_t off = -16; off <= 16; ++off) CHECK_EQ(blocks((int64_t{1} << power) + off), 264);
}

// gemm_sm90_skinny: blocks for all columns, no more than have work, and none much longer than the others.
void sm90_skinny_plans() {
  const Device device = h200();
  for (const int64_t k : {8, 1024, 1536, 1544, 4096, 65536})
    for (int64_t n = 1; n <= 70000; n += n < 200 ? 1 : 97)
      for (const int64_t batch : {1, 2, 65535}) {
        GemmCall c = linear(4, n, k);
        c.batch = batch;
        const GemmSm90SkinnyPlan plan = gemm_sm90_skinny_plan(c, device);
        const int64_t sets = gemm_ceil(n, 16);
        CHECK(plan.resident == 2 || plan.resident == 3);
        CHECK(plan.blocks >= 1 && plan.blocks <= sets);
        if (plan.blocks < sets) CHECK(batch == 1 && sets * 10 >= gemm_ceil(sets, plan.blocks) * plan.blocks * 9);
        CHECK_EQ(plan.late, sets * batch * 2 <= device.processors);
      }
}

// gemm_sm90_narrow: every step of k in one part of it, each of which has some; all rows with one block; room for all of
// it in shared memory, and for so many blocks in an SM.
void narrow_plans() {
  for (const int processors : {1, 7, 78, 132}) {
    Device device = h200();
    device.processors = processors;
    for (const int64_t m : {1, 8, 9, 16, 17, 32, 33, 64, 65, 128})
      for (int64_t k = 64; k <= 70000; k += k < 4096 ? 64 : 4160)
        for (int64_t n = 1; n <= 70000; n += n < 300 ? 13 : 2111)
          for (const bool constant : {false, true})
            for (const int64_t batch : {1, 3}) {
              GemmCall c = linear(m, n, k);
              c.batch = batch;
              c.constant_b = constant;
              const GemmNarrowPlan p = gemm_narrow_plan(c, device);
              const int64_t steps = gemm_ceil(k, kGemmNarrowK);
              CHECK(p.a_rows * p.row_tiles >= m && p.a_rows * (p.row_tiles - 1) < m);
              CHECK(p.a_rows % 8 == 0 && p.a_rows <= p.rows && (p.rows == 8 || p.rows < 2 * p.a_rows));
              CHECK(p.split >= 1 && p.split <= kGemmMaxSplit && (p.split == 1 || p.split * 2 <= steps));
              CHECK(p.stages >= 2 && p.a_stages >= 2);
              CHECK(p.cols % 8 == 0 && p.cols >= kGemmNarrowLeastCols && p.cols <= kGemmNarrowCols);
              CHECK(p.rows * (kGemmNarrowCols + 4) * 4 <= gemm_narrow_places(p).sums);  // its results, in the rings
              CHECK(p.each * p.split >= p.rows / 8);
              CHECK(gemm_narrow_places(p).end <= p.smem);
              CHECK((p.smem + 1024) * p.resident <= kGemmNarrowSmem);
              CHECK(p.split == 1 || p.split <= processors * p.resident);
            }
  }
}

// As large a b as a call can have.
void huge_narrow_plans() {
  for (const int64_t n : {100000, 2147483647})
    for (const int64_t k : {100032, 2147483584})
      for (const int64_t batch : {1, 65535})
        for (const int64_t m : {1, 64})
          for (const bool constant : {false, true}) {
            GemmCall c = linear(m, n, k);
            c.batch = batch, c.b.batch = 8;
            c.constant_b = constant;
            const GemmNarrowPlan p = gemm_narrow_plan(c, h200());
            CHECK(p.split >= 1 && p.cols >= kGemmNarrowLeastCols && p.stages >= 2);
          }
}

}  // namespace

int main() {
  skinny_blocks();
  sm90_skinny_plans();
  narrow_plans();
  huge_narrow_plans();
  return check::report("gemm_few_rows_config");
}
