// SPDX-License-Identifier: Apache-2.0
// The rows of attention_decode on CUDA.
#include "ops/attention/attention_cuda.cuh"

namespace ek {

static ek_status attention_decode_cuda(const AttentionDecodeArgs& a, const Launch& l) {
  const AttentionCall call = attention_call(a);
  if (a.K == EK_DTYPE_E4M3) return attention_run_simt<e4m3>(call, l);
  if (a.K == EK_DTYPE_I8) return attention_run_simt<int8_t>(call, l);
  return attention_run_simt_float(call, l);
}

const Kernel<AttentionDecodeArgs> kAttentionDecodeCuda[] = {
    {"attention_decode_cuda", sm(75), nullptr, attention_decode_cuda},
    {},
};

}  // namespace ek
