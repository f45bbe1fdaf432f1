// SPDX-License-Identifier: Apache-2.0
// gemm_batched on the CPU: d[i] = alpha * a[i] b[i] + beta * c[i]. gemm_cpu.cpp has the product.
#include "ops/gemm/gemm_cpu.h"

namespace ek::EK_CPU_NS {

using Row = GemmCpuRow<GemmBatchedArgs, gemm_batched_call>;
const Kernel<GemmBatchedArgs> kGemmBatchedCpu[] = {
    {EK_CPU_ROW("gemm_batched_cpu_blas"), kCpuTarget, Row::blas_why_not, Row::blas_run, nullptr, 0},
    {EK_CPU_ROW("gemm_batched_cpu"), kCpuTarget, nullptr, Row::run},
    {},
};

}  // namespace ek::EK_CPU_NS
