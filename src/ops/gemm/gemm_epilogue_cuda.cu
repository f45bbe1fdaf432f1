// SPDX-License-Identifier: Apache-2.0
// gemm_epilogue on CUDA: y = residual + out_scale * act(a b + bias), or with a gate. gemm_rows.h says which kernel is in which file.
#include "ops/gemm/gemm_rows.h"

namespace ek {

template <const GemmKernel& kKernel>
using Row = GemmRow<GemmEpilogueArgs, gemm_epilogue_call, kKernel>;

const Kernel<GemmEpilogueArgs> kGemmEpilogueCuda[] = {
    Row<kGemmSm90Narrow>::named("gemm_epilogue_sm90_narrow"),
    Row<kGemmSm90Swap>::named("gemm_epilogue_sm90_swap"),
    Row<kGemmSm90Split>::named("gemm_epilogue_sm90_split"),
    Row<kGemmSm90>::named("gemm_epilogue_sm90"),
    Row<kGemmSm90Skinny>::named("gemm_epilogue_sm90_skinny"),
    Row<kGemmSkinny>::named("gemm_epilogue_sm80_skinny"),
    Row<kGemmGemv>::named("gemm_epilogue_gemv"),
    Row<kGemmCublaslt>::named("gemm_epilogue_cublaslt"),
    Row<kGemmSm80>::named("gemm_epilogue_sm80"),
    Row<kGemmSm80Tf32>::named("gemm_epilogue_sm80_tf32"),
    Row<kGemmSm75>::named("gemm_epilogue_sm75"),
    Row<kGemmSimt>::named("gemm_epilogue_cuda"),
    {},
};

}  // namespace ek
