// SPDX-License-Identifier: Apache-2.0
// How attention_decode_sm80 is launched: workers, workspace, and the slabs of sequences that both limit.
#pragma once

#include "dispatch/kernel.h"
#include "ops/attention/attention_decode_plan.h"

namespace ek {

// The kernel's width for a call.
inline int decode_dim(const AttentionCall& c) {
  const int64_t dim = c.head_dim > c.v_dim ? c.head_dim : c.v_dim;
  return dim <= 64 ? 64 : dim <= 128 ? 128 : dim <= 256 ? 256 : 512;
}
inline int decode_keys(const AttentionCall& c) { return decode_dim(c) * dtype_bytes(c.K) >= 256 ? 16 : 32; }

struct DecodeSizes {
  AttentionSplit split;
  int64_t slab;   // sequences of a launch
  int64_t slots;  // of a launch, slot_rows each
  int32_t rows, slot_rows, row_blocks;
  size_t bytes(const AttentionCall& c) const { return static_cast<size_t>(slots * slot_rows) * (c.v_dim * 4 + 8); }
};

// Where the split is fixed every unit has a slot: longer batches are cut into slabs that take so much.
constexpr int64_t kDecodeSlabBytes = 32 << 20;

inline DecodeSizes decode_sizes(const AttentionCall& c, const Device& device, bool batch_invariant) {
  DecodeSizes s = {};
  const int64_t group = c.heads / c.kv_heads, tile = decode_keys(c), window = c.mask.window_left;
  s.rows = static_cast<int32_t>(group * c.seqs.q_len);
  s.slot_rows = s.rows < kDecodeRows ? s.rows : kDecodeRows;
  s.row_blocks = (s.rows + kDecodeRows - 1) / kDecodeRows;
  s.split = attention_split(device.processors, c.kv_heads * s.row_blocks, tile, batch_invariant);
  int64_t keys = c.seqs.max_kv;
  if (window >= 0 && window + c.seqs.q_len + tile < keys) keys = window + c.seqs.q_len + tile;
  const int64_t tiles = (keys + tile - 1) / tile + 1;
  s.slab = kDecodeBatch;
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

// Groups of warps that the device has shared memory for; 0: not even for one.
inline int decode_groups(const AttentionCall& c, const Device& device) {
  const auto groups = [&](auto element) {
    using K = decltype(element);
    const int dim = decode_dim(c), smem = device.smem_per_block;
    if (dim == 64) return DecodePlan<K, K, 64, 16>::groups(smem);
    if (dim == 128) return DecodePlan<K, K, 128, 16>::groups(smem);
    return dim == 256 ? DecodePlan<K, K, 256, 16>::groups(smem) : DecodePlan<K, K, 512, 16>::groups(smem);
  };
  return dtype_bytes(c.K) == 1 ? groups(int8_t()) : groups(int16_t());
}

// One file for each dtype of the cache.
ek_status attention_decode_sm80_bf16(const AttentionCall& call, const Launch& l);
ek_status attention_decode_sm80_f16(const AttentionCall& call, const Launch& l);
ek_status attention_decode_sm80_e4m3(const AttentionCall& call, const Launch& l);
ek_status attention_decode_sm80_i8(const AttentionCall& call, const Launch& l);

}  // namespace ek
