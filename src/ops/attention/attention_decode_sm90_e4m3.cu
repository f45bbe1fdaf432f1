// SPDX-License-Identifier: Apache-2.0
// attention_decode_sm90 for caches in e4m3, multiplied in f16.
#include "ops/attention/attention_decode_sm90.cuh"

namespace ek {

ek_status attention_decode_sm90_e4m3(const AttentionCall& call, const Launch& l) {
  return decode_run_sm90<half, e4m3>(call, l);
}

}  // namespace ek
