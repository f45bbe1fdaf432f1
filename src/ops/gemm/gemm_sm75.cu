// SPDX-License-Identifier: Apache-2.0
// Products of f16 on sm_75 and newer: mma.sync, tiles staged through registers.
#include "ops/gemm/gemm_mma.cuh"
#include "ops/gemm/gemm_rows.h"

namespace ek {

static const char* gemm_sm75_why_not(const GemmCall& call, const Device&) {
  if (call.in != EK_DTYPE_F16) return "the inputs are not f16";
  return gemm_mma_why_not(call);
}

static ek_status gemm_sm75(const GemmCall& call, const Launch& l) {
  const int tile = gemm_mma_tile(call, l.device, 1);
  return with_gemm_layouts(call, [&](auto a, auto b) {
    constexpr bool kA = decltype(a)::value, kB = decltype(b)::value;
    // Warps of 64 x 32: those of 64 x 64 would leave no registers for the staged tile.
    if (tile == 1) return gemm_mma_launch<MmaPlan<half, 128, 128, 64, 32, 2, false, kA, kB>>(call, l);
    return gemm_mma_launch<MmaPlan<half, 64, 64, 32, 32, 2, false, kA, kB>>(call, l);
  });
}

const GemmKernel kGemmSm75 = {sm(75), gemm_sm75_why_not, gemm_sm75, nullptr, kDeterministic | kBatchInvariant, 0};

}  // namespace ek
