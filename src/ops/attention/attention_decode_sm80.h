// SPDX-License-Identifier: Apache-2.0
// How the tensor-core decode kernels are launched: workers, workspace, and the slabs of sequences that both limit; and
// attention_decode_sm80's numbers.
#pragma once

#include "dispatch/kernel.h"
#include "ops/attention/attention_decode_plan.h"

namespace ek {

// The kernel's width for a call.
inline int decode_dim(const AttentionCall& c) {
  const int64_t dim = c.head_dim > c.v_dim ? c.head_dim : c.v_dim;
  return dim <= 64 ? 64 : dim <= 128 ? 128 : dim <= 256 ? 256 : 512;
}
// What a kernel makes of a call. blocks: of the grid; groups: of warps, that a block has shared memory for; lines: it can have
// heads side by side.
struct DecodeShape {
  int keys, blocks, groups;
  AttentionRoom room = {0, 1, 1};
  bool lines = false;
};

struct DecodeSizes {
  AttentionSplit split;
  int64_t slab;   // sequences of a launch
  int64_t slots;  // of a launch, slot_rows each
  int32_t rows, slot_rows, row_blocks;
  AttentionClusters clusters;
  bool late;  // two such launches do not have room at once
  size_t bytes(const AttentionCall& c) const { return static_cast<size_t>(slots * slot_rows) * (c.v_dim * 4 + 8); }
};

// Where the split is fixed every unit has a slot: longer batches are cut into slabs that take so much.
constexpr int64_t kDecodeSlabBytes = 32 << 20;

inline DecodeSizes decode_sizes(const AttentionCall& c, const DecodeShape& shape, bool batch_invariant) {
  DecodeSizes s = {};
  const int64_t group = c.heads / c.kv_heads, tile = shape.keys, window = c.mask.window_left;
  s.rows = static_cast<int32_t>(group * c.seqs.q_len);
  s.slot_rows = s.rows < kDecodeRows ? s.rows : kDecodeRows;
  s.row_blocks = (s.rows + kDecodeRows - 1) / kDecodeRows;
  // At least one: a call without heads can still be asked what would run.
  const int64_t items = c.kv_heads * s.row_blocks;
  s.split = attention_split(shape.blocks, items < 1 ? 1 : items, tile, batch_invariant);
  int64_t keys = c.seqs.max_kv;
  if (window >= 0 && window + c.seqs.q_len + tile < keys) keys = window + c.seqs.q_len + tile;
  const int64_t whole = (keys + tile - 1) / tile, tiles = whole + 1;
  s.slab = kDecodeBatch;
  s.clusters = {1, 1};
  if (c.batch <= s.slab) s.clusters = split_clusters(s.split, shape.room, c.batch, whole, c.seqs.page_size);
  if (s.clusters.blocks > 1) {
    const int64_t clusters = c.batch * s.split.heads * s.clusters.count;
    s.split.workers = clusters * s.clusters.blocks;
    s.late = s.clusters.blocks > 2 &&
             (2 * s.split.workers > shape.room.processors || 2 * clusters > shape.room.at_once(s.clusters.blocks));
  } else if (shape.lines) {
    s.split.lines = split_lines(s.split, c.batch < s.slab ? c.batch : s.slab);
  }
  if (batch_invariant) {
    const int64_t one = split_slots(s.split, 1, tiles) * s.slot_rows * (c.v_dim * 4 + 8);
    const int64_t fit = kDecodeSlabBytes / (one < 1 ? 1 : one), counted = kCounters / s.split.heads;
    s.slab = fit < s.slab ? fit : s.slab;
    s.slab = counted < s.slab ? counted : s.slab;
    s.slab = s.slab < 1 ? 1 : s.slab;
  }
  s.slots = split_slots(s.split, s.slab < c.batch ? s.slab : c.batch, tiles);
  return s;
}

// What the workspace holds, whatever the context asks for.
inline size_t decode_workspace(const AttentionCall& c, const DecodeShape& shape) {
  const size_t balanced = decode_sizes(c, shape, false).bytes(c), fixed = decode_sizes(c, shape, true).bytes(c);
  return balanced > fixed ? balanced : fixed;
}

// Calls f with the plan for a call, Plan<M, K, kDim, kRows>; M and K only name sizes here.
template <template <class, class, int, int> class Plan, class K, class F>
auto with_decode_plan(const AttentionCall& c, const F& f) {
  const bool few = c.heads / c.kv_heads * c.seqs.q_len <= 8;
  switch (decode_dim(c)) {
    case 64: return few ? f(Plan<K, K, 64, 8>()) : f(Plan<K, K, 64, 16>());
    case 128: return few ? f(Plan<K, K, 128, 8>()) : f(Plan<K, K, 128, 16>());
    case 256: return few ? f(Plan<K, K, 256, 8>()) : f(Plan<K, K, 256, 16>());
    default: return few ? f(Plan<K, K, 512, 8>()) : f(Plan<K, K, 512, 16>());
  }
}

inline DecodeShape decode_shape_sm80(const AttentionCall& c, const Device& device) {
  const auto shape = [&](auto plan) {
    using Plan = decltype(plan);
    return DecodeShape{Plan::kKeys, device.processors, Plan::groups(device.smem_per_block)};
  };
  return dtype_bytes(c.K) == 1 ? with_decode_plan<DecodePlan, int8_t>(c, shape)
                               : with_decode_plan<DecodePlan, int16_t>(c, shape);
}

// One file for each dtype of the cache.
ek_status attention_decode_sm80_bf16(const AttentionCall& call, const Launch& l);
ek_status attention_decode_sm80_f16(const AttentionCall& call, const Launch& l);
ek_status attention_decode_sm80_e4m3(const AttentionCall& call, const Launch& l);
ek_status attention_decode_sm80_i8(const AttentionCall& call, const Launch& l);

}  // namespace ek
