// SPDX-License-Identifier: Apache-2.0
// The Hopper kernels, by dtype, layout and finish. Declared here and built one layout and dtype to a file, because each
// tile takes the compiler several seconds.
#pragma once

#include "ops/gemm/gemm_config.h"

namespace ek {

// kTransA, kTransB: a is contiguous along m, b along n, instead of k.
template <class T, bool kTransA, bool kTransB, GemmFinish kFinish>
ek_status gemm_sm90_run(const GemmCall& c, const GemmPlan& plan, const Launch& l);

// b, whose columns stand in for the rows of a, in either layout; a is contiguous along k.
template <class T, bool kTransB>
ek_status gemm_sm90_run_swap(const GemmCall& c, const GemmPlan& plan, const Launch& l);

}  // namespace ek
