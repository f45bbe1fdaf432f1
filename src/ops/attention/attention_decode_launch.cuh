// SPDX-License-Identifier: Apache-2.0
// From an AttentionCall to the parameters of a launch of a tensor-core decode kernel.
#pragma once

#include "ops/attention/attention_decode_sm80.h"

namespace ek {

// The same call for `count` sequences from `first` on.
inline AttentionCall decode_slab(AttentionCall c, int64_t first, int64_t count) {
  const auto shift = [first](Tensor& t) {
    if (t.data) t.data = static_cast<char*>(t.data) + first * t.stride[0] * dtype_bytes(t.dtype);
  };
  shift(c.q), shift(c.y), shift(c.lse);
  c.batch = count;
  c.seqs.kv_len += first;
  if (c.seqs.prefix_len) c.seqs.prefix_len += first;
  if (c.seqs.page_table) {
    c.seqs.page_table += first * c.seqs.table_stride;
  } else {  // a page for each sequence
    c.pages -= first;
    for (KvCache* cache : {&c.k, &c.v}) {
      cache->data = static_cast<const char*>(cache->data) + first * cache->page * dtype_bytes(c.K);
      if (cache->scale) cache->scale += first * cache->scale_page;
    }
  }
  return c;
}

// What is fetched to L2 at the start: small page tables, and queries that are one run of memory. 128 bytes a thread, of at least
// four warps but for the first one.
inline void decode_fetch_ahead(DecodeParams* p) {
  const AttentionCall& c = p->c;
  constexpr int64_t kMostLines = 16384;
  const int64_t threads = p->split.workers * 96, most = threads < kMostLines ? threads : kMostLines;
  const int64_t pages = c.seqs.max_kv / (c.seqs.page_size < 1 ? 1 : c.seqs.page_size), lines = (pages + 31) / 32;
  if (c.seqs.page_table && lines * c.batch <= most) p->table_lines = static_cast<int32_t>(lines);
  const int64_t row = c.heads * c.head_dim, q_lines = (c.batch * c.seqs.q_len * row * 2 + 127) / 128;
  if (c.q.stride[2] == c.head_dim && c.q.stride[1] == row && c.q.stride[0] == row * c.seqs.q_len && q_lines <= most)
    p->q_lines = static_cast<int32_t>(q_lines);
}

// The parameters for the slab of sequences that begins at `first`.
inline DecodeParams decode_params(const AttentionCall& call, const DecodeSizes& sizes, int64_t first, const Launch& l) {
  const auto by_token = [](const KvCache& cache) { return cache.scale && (cache.scale_page || cache.scale_slot); };
  DecodeParams p = {};
  p.c = decode_slab(call, first, call.batch - first < sizes.slab ? call.batch - first : sizes.slab);
  p.split = sizes.split;
  p.group = static_cast<int32_t>(call.heads / call.kv_heads);
  p.rows = sizes.rows, p.row_blocks = sizes.row_blocks, p.slot_rows = sizes.slot_rows;
  p.cluster = Divider(sizes.clusters.blocks), p.teams = static_cast<int32_t>(sizes.clusters.count);
  p.clusters = static_cast<int32_t>(sizes.split.workers / sizes.clusters.blocks);
  p.workers = Divider(split_workers(sizes.split)), p.heads = Divider(sizes.split.heads);
  p.parts = Divider(sizes.clusters.count * sizes.clusters.blocks);
  p.columns = Divider(call.v_dim < 4 ? 1 : call.v_dim / 4);
  p.late = sizes.late;
  p.k_tokens = by_token(call.k), p.v_tokens = by_token(call.v);
  p.special = call.softcap > 0.f || call.alibi;
  p.factor = call.scale * (call.softcap > 0.f ? 1.f / call.softcap : kLog2e);
  p.states = static_cast<float*>(l.workspace);
  p.bases = reinterpret_cast<float2*>(p.states + sizes.slots * sizes.slot_rows * call.v_dim);
  // A page that is longer than all sequences is never left.
  p.page_size =
      Divider(call.seqs.page_size < 0x7fffffff ? (call.seqs.page_size < 1 ? 1 : call.seqs.page_size) : 0x7fffffff);
  p.counters = l.counters;
  p.out = decode_out(p.c);
  decode_fetch_ahead(&p);
  return p;
}

}  // namespace ek
