// SPDX-License-Identifier: Apache-2.0
// The rows of attention on CUDA.
#include "ops/attention/attention_cuda.cuh"

namespace ek {

ek_status attention_run_simt_float(const AttentionCall& call, const Launch& l) {
  return with_float(call.K, [&](auto type) { return attention_run_simt<typename decltype(type)::type>(call, l); });
}

static ek_status attention_cuda(const AttentionArgs& a, const Launch& l) {
  return attention_run_simt_float(attention_call(a), l);
}

const Kernel<AttentionArgs> kAttentionCuda[] = {
    {"attention_cuda", sm(75), nullptr, attention_cuda},
    {},
};

}  // namespace ek
