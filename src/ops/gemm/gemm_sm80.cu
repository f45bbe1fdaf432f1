// SPDX-License-Identifier: Apache-2.0
// Products on sm_80 and newer: mma.sync fed by cp.async. f16 and bf16; with EK_FLAG_TF32 also f32.
// 128 x 256 for large products (4 stages of 24 KB: fits the 99 KB of sm_86 and sm_89), 128 x 128 with two blocks to an
// SM, 64 x 64 where the others would leave SMs without work.
#include "ops/gemm/gemm_mma.cuh"
#include "ops/gemm/gemm_rows.h"

namespace ek {

template <class T>
static ek_status gemm_sm80_run(const GemmCall& call, const Launch& l) {
  const int tile = gemm_mma_tile(call, l.device, 0);
  return with_gemm_layouts(call, [&](auto a, auto b) {
    constexpr bool kA = decltype(a)::value, kB = decltype(b)::value;
    if (tile == 0) return gemm_mma_launch<MmaPlan<T, 128, 256, 64, 64, 4, true, kA, kB>>(call, l);
    if (tile == 1) return gemm_mma_launch<MmaPlan<T, 128, 128, 64, 64, 4, true, kA, kB>>(call, l);
    return gemm_mma_launch<MmaPlan<T, 64, 64, 32, 32, 5, true, kA, kB>>(call, l);
  });
}

static const char* gemm_sm80_why_not(const GemmCall& call, const Device&) {
  if (call.in == EK_DTYPE_F32) return "the inputs are f32";
  return gemm_mma_why_not(call);
}

static ek_status gemm_sm80(const GemmCall& call, const Launch& l) {
  return call.in == EK_DTYPE_F16 ? gemm_sm80_run<half>(call, l) : gemm_sm80_run<bf16>(call, l);
}

static const char* gemm_sm80_tf32_why_not(const GemmCall& call, const Device&) {
  if (call.in != EK_DTYPE_F32) return "the inputs are not f32";
  return gemm_mma_why_not(call);
}

const GemmKernel kGemmSm80 = {sm(80), gemm_sm80_why_not, gemm_sm80, nullptr, kDeterministic | kBatchInvariant, 0};
const GemmKernel kGemmSm80Tf32 = {sm(80),  gemm_sm80_tf32_why_not,           gemm_sm80_run<float>,
                                  nullptr, kDeterministic | kBatchInvariant, EK_FLAG_TF32};

}  // namespace ek
