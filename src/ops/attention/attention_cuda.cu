// SPDX-License-Identifier: Apache-2.0
// The rows of attention on CUDA.
#include "ops/attention/attention_cuda.cuh"
#include "ops/attention/attention_cuda_tile.h"
#include "ops/attention/attention_rows.h"
#include "ops/attention/attention_sm80_config.h"

namespace ek {

ek_status attention_run_simt_float(const AttentionCall& call, const Launch& l) {
  return with_float(call.K, [&](auto type) { return attention_run_simt<typename decltype(type)::type>(call, l); });
}

static ek_status attention_cuda(const AttentionArgs& a, const Launch& l) {
  return attention_run_simt_float(attention_call(a), l);
}

static ek_status attention_cuda_tile(const AttentionArgs& a, const Launch& l) {
  return attention_cuda_tile_run(attention_call(a), l);
}

static const char* why_not_sm90(const AttentionArgs& a, const Device& device) {
  return attention_sm90_why_not(attention_call(a), device);
}
static ek_status run_sm90(const AttentionArgs& a, const Launch& l) { return attention_sm90(attention_call(a), l); }
// The counters of the scheduler come with a workspace.
static size_t sm90_workspace(const AttentionArgs&, const Device&) { return 256; }

static ek_status attention_sm80(const AttentionArgs& a, const Launch& l) {
  const AttentionCall call = attention_call(a);
  return a.T == EK_DTYPE_BF16 ? attention_sm80_run<bf16>(call, l) : attention_sm80_run<half>(call, l);
}

const Kernel<AttentionArgs> kAttentionCuda[] = {
    {"attention_sm90", sm(90), why_not_sm90, run_sm90, sm90_workspace},  // TMA and wgmma, 16 bits, dims up to 256
    {"attention_sm80", sm(80), sm80_why_not, attention_sm80},            // mma.sync: 16-bit rows on 16-byte boundaries
    {"attention_cuda_tile", sm(75), cuda_tile_why_not,
     attention_cuda_tile},  // CUDA cores: f32 rows on 16-byte boundaries
    {"attention_cuda", sm(75), nullptr, attention_cuda},
    {},
};

}  // namespace ek
