// SPDX-License-Identifier: Apache-2.0
// attention_decode_cuda_split for caches in bf16 and f16.
#include "ops/attention/attention_decode_cuda_split.cuh"

namespace ek {

ek_status attention_decode_cuda_split_wide(const AttentionCall& call, const Launch& l) {
  return call.K == EK_DTYPE_F16 ? decode_core_run<half>(call, l) : decode_core_run<bf16>(call, l);
}

}  // namespace ek
