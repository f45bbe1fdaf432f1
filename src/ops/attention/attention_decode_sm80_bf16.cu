// SPDX-License-Identifier: Apache-2.0
// attention_decode_sm80 for caches in bf16.
#include "ops/attention/attention_decode_sm80.cuh"

namespace ek {

ek_status attention_decode_sm80_bf16(const AttentionCall& call, const Launch& l) {
  return decode_run<bf16, bf16>(call, l);
}

}  // namespace ek
