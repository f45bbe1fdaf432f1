// SPDX-License-Identifier: Apache-2.0
// attention_decode_sm80 for caches in e4m3, multiplied in f16.
#include "ops/attention/attention_decode_sm80.cuh"

namespace ek {

ek_status attention_decode_sm80_e4m3(const AttentionCall& call, const Launch& l) {
  return decode_run<half, e4m3>(call, l);
}

}  // namespace ek
