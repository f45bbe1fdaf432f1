// SPDX-License-Identifier: Apache-2.0
// gemm_sm90 for bf16, a and b contiguous along k: the layout of PyTorch's linear layers.
#include "ops/gemm/gemm_sm90_tiles.cuh"

namespace ek {

template ek_status gemm_sm90_run<bf16, false, false, GemmFinish::kPlain>(const GemmCall&, const GemmPlan&,
                                                                         const Launch&);
template ek_status gemm_sm90_run<bf16, false, false, GemmFinish::kFull>(const GemmCall&, const GemmPlan&,
                                                                        const Launch&);

}  // namespace ek
