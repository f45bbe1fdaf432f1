// SPDX-License-Identifier: Apache-2.0
// attention and attention_decode as one call: what the kernels of both have in common. Tokens of q, y and lse are counted
// through all sequences; for attention_decode token = sequence * q_len + i.
#pragma once

#include "dispatch/ops_gen.h"
#include "ops/attention/attention_mask.h"

namespace ek {

// K or V: [pages, page_size, kv_heads, dim], its last dim contiguous; scale: [pages, page_size, kv_heads], or absent.
struct KvCache {
  const void* data;
  const float* scale;
  int64_t page, slot, head;  // strides
  int64_t scale_page, scale_slot, scale_head;
};

// What a kernel needs first is last, beside its own parameters: each line of parameters that it touches is a wait.
struct AttentionCall {
  Tensor q, y, lse;  // lse: no data if it is not asked for
  int32_t lead;      // dims of q and y before heads; lse has the same
  ek_dtype T, K;
  KvCache k, v;
  const float *sinks, *alibi;  // [heads], or null
  float softcap, scale;        // softcap 0: off
  int64_t tokens, pages, heads, kv_heads, head_dim, v_dim, batch;
  Mask mask;
  Sequences seqs;
};

inline KvCache kv_cache(const Tensor& t, const Tensor& scale) {
  return {t.data,      scale.ptr<const float>(), t.stride[0],     t.stride[1],
          t.stride[2], scale.stride[0],          scale.stride[1], scale.stride[2]};
}

inline float attention_scale(float scale, int64_t head_dim) {
  return scale > 0.f ? scale : static_cast<float>(1.0 / __builtin_sqrt(static_cast<double>(head_dim)));
}

inline AttentionCall attention_call(const AttentionArgs& a) {
  AttentionCall c = {};
  c.q = a.q, c.y = a.y, c.lse = a.lse, c.lead = a.lead;
  c.tokens = a.rows, c.batch = a.batch, c.heads = a.heads, c.kv_heads = a.kv_heads;
  c.head_dim = a.head_dim, c.v_dim = a.v_dim, c.pages = a.pages;
  c.k = kv_cache(a.k, Tensor()), c.v = kv_cache(a.v, Tensor());
  c.seqs = {a.cu_q.ptr<const int32_t>(),
            a.cu_kv.ptr<const int32_t>(),
            a.kv_len.ptr<const int32_t>(),
            a.prefix_len.ptr<const int32_t>(),
            a.page_table.ptr<const int32_t>(),
            a.page_table.stride[0],
            a.q_len,
            a.page_size,
            a.max_kv};
  c.mask = {a.causal, a.window_left, a.window_right};
  c.sinks = a.sinks.ptr<const float>(), c.alibi = a.alibi.ptr<const float>();
  c.softcap = a.softcap, c.scale = attention_scale(a.scale, a.head_dim);
  c.T = c.K = a.T;
  return c;
}

inline AttentionCall attention_call(const AttentionDecodeArgs& a) {
  AttentionCall c = {};
  c.q = a.q, c.y = a.y, c.lse = a.lse, c.lead = 2;
  c.tokens = a.batch * a.q_len, c.batch = a.batch, c.heads = a.heads, c.kv_heads = a.kv_heads;
  c.head_dim = a.head_dim, c.v_dim = a.v_dim, c.pages = a.pages;
  c.k = kv_cache(a.k, a.k_scale), c.v = kv_cache(a.v, a.v_scale);
  c.seqs = {nullptr,
            nullptr,
            a.kv_len.ptr<const int32_t>(),
            a.prefix_len.ptr<const int32_t>(),
            a.page_table.ptr<const int32_t>(),
            a.page_table.stride[0],
            a.q_len,
            a.page_size,
            a.max_kv};
  c.mask = {a.causal, a.window_left, a.window_right};
  c.sinks = a.sinks.ptr<const float>(), c.alibi = a.alibi.ptr<const float>();
  c.softcap = a.softcap, c.scale = attention_scale(a.scale, a.head_dim);
  c.T = a.T, c.K = a.K;
  return c;
}

}  // namespace ek
