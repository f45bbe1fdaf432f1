// SPDX-License-Identifier: Apache-2.0
// How gemm_sm90_skinny shares out the columns of a product. Host code, no CUDA.
#pragma once

#include "ops/gemm/gemm_config.h"

namespace ek {

constexpr int kGemmSm90SkinnyMaxM = 8;

// gemm_sm90_skinny: how many blocks share an SM, and how many there are.
struct GemmSm90SkinnyPlan {
  int resident;
  int64_t blocks;
  bool late;  // the next kernel comes when this one has seen the end of those before
};
// Three to an SM where that makes one wave of them, or k is so short that a block is soon done. Blocks go on to further columns
// if that leaves none of them much longer than the others; else those that are left begin where others have ended.
inline GemmSm90SkinnyPlan gemm_sm90_skinny_plan(const GemmCall& c, const Device& device) {
  const int64_t processors = device.processors, sets = gemm_ceil(c.n, 16), all = sets * c.batch;
  GemmSm90SkinnyPlan plan;
  plan.resident = c.k <= 1536 || (all > 2 * processors && all <= 3 * processors) ? 3 : 2;
  plan.blocks = sets;
  const int64_t room = processors * plan.resident;
  const auto balanced = [&](int64_t blocks) { return sets * 10 >= gemm_ceil(sets, blocks) * blocks * 9; };
  if (c.batch == 1 && sets > room) {
    if (balanced(room))
      plan.blocks = room;
    else if (plan.resident == 2 && balanced(processors))
      plan.blocks = processors;
  }
  // Few blocks: those of several kernels would crowd on some SMs.
  plan.late = all * 2 <= processors;
  return plan;
}

}  // namespace ek
