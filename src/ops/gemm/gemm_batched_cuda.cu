// SPDX-License-Identifier: Apache-2.0
// gemm_batched on CUDA: gemm for every matrix of a batch. gemm_rows.h says which kernel is in which file.
#include "ops/gemm/gemm_rows.h"

namespace ek {

template <const GemmKernel& kKernel>
using Row = GemmRow<GemmBatchedArgs, gemm_batched_call, kKernel>;

const Kernel<GemmBatchedArgs> kGemmBatchedCuda[] = {
    Row<kGemmSm90Narrow>::named("gemm_batched_sm90_narrow"),
    Row<kGemmSm90Swap>::named("gemm_batched_sm90_swap"),
    Row<kGemmSm90Split>::named("gemm_batched_sm90_split"),
    Row<kGemmSm90>::named("gemm_batched_sm90"),
    Row<kGemmSm90Skinny>::named("gemm_batched_sm90_skinny"),
    Row<kGemmSkinny>::named("gemm_batched_sm80_skinny"),
    Row<kGemmGemv>::named("gemm_batched_gemv"),
    Row<kGemmCublaslt>::named("gemm_batched_cublaslt"),
    Row<kGemmSm80>::named("gemm_batched_sm80"),
    Row<kGemmSm80Tf32>::named("gemm_batched_sm80_tf32"),
    Row<kGemmSm75>::named("gemm_batched_sm75"),
    Row<kGemmSimt>::named("gemm_batched_cuda"),
    {},
};

}  // namespace ek
