// SPDX-License-Identifier: Apache-2.0
// gemm_epilogue on the CPU: y = residual + out_scale * act(a b + bias), or of a gated pair. gemm_cpu.cpp has the product.
#include "ops/gemm/gemm_cpu.h"

namespace ek::EK_CPU_NS {

using Row = GemmCpuRow<GemmEpilogueArgs, gemm_epilogue_call>;
const Kernel<GemmEpilogueArgs> kGemmEpilogueCpu[] = {
    {EK_CPU_ROW("gemm_epilogue_cpu"), kCpuTarget, nullptr, Row::run},
    {},
};

}  // namespace ek::EK_CPU_NS
