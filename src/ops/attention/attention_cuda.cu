// SPDX-License-Identifier: Apache-2.0
// The rows of attention on CUDA.
#include "ops/attention/attention_cuda.cuh"
#include "ops/attention/attention_rows.h"

namespace ek {

ek_status attention_run_simt_float(const AttentionCall& call, const Launch& l) {
  return with_float(call.K, [&](auto type) { return attention_run_simt<typename decltype(type)::type>(call, l); });
}

static ek_status attention_cuda(const AttentionArgs& a, const Launch& l) {
  return attention_run_simt_float(attention_call(a), l);
}

static const char* why_not_sm90(const AttentionArgs& a, const Device& device) {
  return attention_sm90_why_not(attention_call(a), device);
}
static ek_status run_sm90(const AttentionArgs& a, const Launch& l) { return attention_sm90(attention_call(a), l); }
// The counters of the scheduler come with a workspace.
static size_t sm90_workspace(const AttentionArgs&, const Device&) { return 256; }

const Kernel<AttentionArgs> kAttentionCuda[] = {
    {"attention_sm90", sm(90), why_not_sm90, run_sm90, sm90_workspace},
    {"attention_cuda", sm(75), nullptr, attention_cuda},
    {},
};

}  // namespace ek
