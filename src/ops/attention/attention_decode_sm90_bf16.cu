// SPDX-License-Identifier: Apache-2.0
// attention_decode_sm90 for caches in bf16.
#include "ops/attention/attention_decode_sm90.cuh"

namespace ek {

ek_status attention_decode_sm90_bf16(const AttentionCall& call, const Launch& l) {
  return decode_run_sm90<bf16, bf16>(call, l);
}

}  // namespace ek
