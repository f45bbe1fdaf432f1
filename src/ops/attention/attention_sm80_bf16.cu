// SPDX-License-Identifier: Apache-2.0
#include "ops/attention/attention_sm80_run.cuh"

namespace ek {

template ek_status attention_sm80_run<bf16>(const AttentionCall& c, const Launch& l);

}  // namespace ek
