// SPDX-License-Identifier: Apache-2.0
// attention_sm90 for f16.
#include "ops/attention/attention_sm90_launch.cuh"

namespace ek {

template ek_status attention_sm90_run<half>(const AttentionCall&, const Launch&);

}  // namespace ek
