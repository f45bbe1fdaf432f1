// SPDX-License-Identifier: Apache-2.0
// gemm_sm90 for bf16, a contiguous along m, b along k.
#include "ops/gemm/gemm_sm90_tiles.cuh"

namespace ek {

template ek_status gemm_sm90_run<bf16, true, false, GemmFinish::kFull>(const GemmCall&, const GemmPlan&, const Launch&);

}  // namespace ek
