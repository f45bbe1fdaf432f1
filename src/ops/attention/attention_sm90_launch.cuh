// SPDX-License-Identifier: Apache-2.0
// From an AttentionCall to a launch of attention_sm90<Tile>.
#pragma once

#include "cuda/tensor_map.h"
#include "ops/attention/attention_sm90.cuh"
#include "ops/attention/attention_sm90_run.h"

namespace ek {

template <class Tile>
ek_status attention_sm90_launch(const AttentionCall& c, const Launch& l) {
  const Sequences& s = c.seqs;
  TokenStrides q = {}, y = {}, lse = {};
  attention_token_strides(c, c.q, &q);
  attention_token_strides(c, c.y, &y);
  if (c.lse.data) attention_token_strides(c, c.lse, &lse);

  AttentionSm90Params p = {};
  p.seqs = s, p.mask = c.mask;
  constexpr int32_t kNoWindow = 1 << 30;  // as good as none, and sums stay below 2^31
  if (p.mask.window_left > kNoWindow) p.mask.window_left = kNoWindow;
  if (p.mask.window_right > kNoWindow) p.mask.window_right = kNoWindow;
  p.y = c.y.data, p.y_seq = y.seq, p.y_token = y.token, p.y_head = c.y.stride[c.lead];
  p.lse = c.lse.ptr<float>(), p.lse_seq = lse.seq, p.lse_token = lse.token;
  p.lse_head = c.lse.data ? c.lse.stride[c.lead] : 0;
  p.sinks = c.sinks, p.alibi = c.alibi;
  p.batch = static_cast<int32_t>(c.batch), p.heads = static_cast<int32_t>(c.heads);
  p.kv_heads = static_cast<int32_t>(c.kv_heads), p.v_dim = static_cast<int32_t>(c.v_dim);
  p.group = p.heads / p.kv_heads;
  p.scale_log2 = Tile::kScores ? 1.f : c.scale * kLog2e;
  p.score_scale = c.softcap > 0.f ? c.scale / c.softcap : c.scale * kLog2e;
  p.softcap_log2 = c.softcap * kLog2e;
  p.counters = l.counters;

  // K and V of a section in a quarter of the L2 cache: its two halves hold the same where SMs of both read it, and queries
  // and results pass through it too.
  const int64_t kept = l.device.l2_bytes / 4 / (2 * (c.head_dim + c.v_dim));  // keys
  const int64_t q_len = s.cu_q ? c.tokens : s.q_len, blocks = (s.q_len + Tile::kQueries - 1) / Tile::kQueries;
  const int64_t units = c.batch * c.kv_heads, fit = kept / (s.max_kv > 0 ? s.max_kv : 1);
  p.q_blocks = static_cast<int32_t>(blocks);
  p.section = static_cast<int32_t>(s.cu_q ? kept : fit < 1 ? 1 : fit < units ? fit : units);
  const int64_t in_block = s.cu_q ? 1 : p.section * p.group;
  p.by_block = Divider(in_block), p.by_section = Divider(in_block * (blocks > 0 ? blocks : 1));
  p.by_heads = Divider(p.heads), p.by_group = Divider(p.group);
  // With cu_q every sequence may have a last block that is not full.
  const int64_t work = c.heads * (s.cu_q ? c.tokens / Tile::kQueries + c.batch : blocks * c.batch);

  int64_t box = Tile::kKeys;
  if (s.page_table)  // the largest number of keys that divides a page and a block
    for (int64_t rest = s.page_size; rest;) {
      const int64_t next = box % rest;
      box = rest, rest = next;
    }
  p.box = static_cast<int32_t>(box);
  p.runs = Tile::kKeys / p.box;
  p.page_runs = Divider(s.page_table ? s.page_size / box : 1);
  const auto map_kv = [&](const KvCache& x, int64_t dim, CUtensorMap* map) {
    return make_tensor_map({x.data, c.T, dim, s.page_size, c.kv_heads, x.slot, x.head, 64, p.box, c.pages, x.page},
                           map);
  };
  if (!make_tensor_map({c.q.data, c.T, c.head_dim, q_len, c.heads, q.token, c.q.stride[c.lead], 64, Tile::kQueries,
                        s.cu_q ? 1 : c.batch, q.seq},
                       &p.q) ||
      !map_kv(c.k, c.head_dim, &p.k) || !map_kv(c.v, c.v_dim, &p.v))
    return fail(l.context, EK_STATUS_CUDA, "attention_sm90: the driver refused a tensor map");

  Grid grid;
  grid.blocks = dim3(static_cast<unsigned>(work < l.device.processors ? work : l.device.processors));
  grid.threads = dim3(Tile::kThreads);
  grid.smem = Tile::kSmemBytes;
  return launch(l, attention_sm90<Tile>, grid, p);
}

// Keys of a sequence, as many as there is room for or on average, up to which the next piece of work comes early (Tile::kEarly):
// it ends short ones up to 5 % sooner, up to 8 % in pages. Twice as many cost 1 % more with it where calls are causal, and so do
// 4096 in all calls.
constexpr int64_t kAttentionEarly = 2048, kAttentionEarlyMasked = 1024;

// Tiles by the dims of a head; the wider block of keys is for calls without masks.
template <class T, bool kScores>
ek_status attention_sm90_run_tile(const AttentionCall& c, const Launch& l) {
  const bool masked = c.mask.causal || c.mask.window_left >= 0 || c.mask.window_right >= 0 || c.seqs.page_table;
  if (c.head_dim <= 64 && c.v_dim <= 64)
    return attention_sm90_launch<AttentionTile<T, 64, 64, 128, 3, true, kScores>>(c, l);
  if (c.head_dim <= 128 && c.v_dim <= 128) {
    if constexpr (!kScores) {
      const bool early = c.seqs.max_kv <= (masked ? kAttentionEarlyMasked : kAttentionEarly);
      if (masked && early) return attention_sm90_launch<AttentionTile<T, 128, 128, 128, 2, true, false, true>>(c, l);
      if (early) return attention_sm90_launch<AttentionTile<T, 128, 128, 176, 2, true, false, true>>(c, l);
      if (!masked) return attention_sm90_launch<AttentionTile<T, 128, 128, 176, 2, true>>(c, l);
    }
    return attention_sm90_launch<AttentionTile<T, 128, 128, 128, 2, true, kScores>>(c, l);
  }
  if (c.head_dim <= 192 && c.v_dim <= 128)
    return attention_sm90_launch<AttentionTile<T, 192, 128, 128, 2, true, kScores>>(c, l);
  return attention_sm90_launch<AttentionTile<T, 256, 256, 80, 2, false, kScores>>(c, l);
}

template <class T>
ek_status attention_sm90_run(const AttentionCall& c, const Launch& l) {
  return c.softcap > 0.f || c.alibi ? attention_sm90_run_tile<T, true>(c, l) : attention_sm90_run_tile<T, false>(c, l);
}

}  // namespace ek
