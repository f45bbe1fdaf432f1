// SPDX-License-Identifier: Apache-2.0
// gemm_sm90 for f16, b contiguous along n.
#include "ops/gemm/gemm_sm90_tiles.cuh"

namespace ek {

template ek_status gemm_sm90_run<half, false, true, GemmFinish::kFull>(const GemmCall&, const GemmPlan&, const Launch&);

}  // namespace ek
