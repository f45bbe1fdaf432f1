// SPDX-License-Identifier: Apache-2.0
// attention_decode_sm80 for caches in f16.
#include "ops/attention/attention_decode_sm80.cuh"

namespace ek {

ek_status attention_decode_sm80_f16(const AttentionCall& call, const Launch& l) {
  return decode_run<half, half>(call, l);
}

}  // namespace ek
