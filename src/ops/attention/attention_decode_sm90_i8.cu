// SPDX-License-Identifier: Apache-2.0
// attention_decode_sm90 for caches in i8, multiplied in f16.
#include "ops/attention/attention_decode_sm90.cuh"

namespace ek {

ek_status attention_decode_sm90_i8(const AttentionCall& call, const Launch& l) {
  return decode_run_sm90<half, int8_t>(call, l);
}

}  // namespace ek
