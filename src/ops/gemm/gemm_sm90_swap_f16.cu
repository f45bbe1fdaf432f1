// SPDX-License-Identifier: Apache-2.0
// gemm_sm90_swap for f16.
#include "ops/gemm/gemm_sm90_tiles.cuh"

namespace ek {

template ek_status gemm_sm90_run_swap<half, false>(const GemmCall&, const GemmPlan&, const Launch&);
template ek_status gemm_sm90_run_swap<half, true>(const GemmCall&, const GemmPlan&, const Launch&);

}  // namespace ek
