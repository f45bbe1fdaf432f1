// SPDX-License-Identifier: Apache-2.0
// attention_decode_cuda_split for caches in e4m3 and i8.
#include "ops/attention/attention_decode_cuda_split.cuh"

namespace ek {

ek_status attention_decode_cuda_split_narrow(const AttentionCall& call, const Launch& l) {
  return call.K == EK_DTYPE_E4M3 ? decode_core_run<e4m3>(call, l) : decode_core_run<int8_t>(call, l);
}

}  // namespace ek
