// SPDX-License-Identifier: Apache-2.0
// Which calls attention_sm80 takes, the tile that a call gets, how many blocks that makes, and in which order. No CUDA.
#pragma once

#include "dispatch/kernel.h"
#include "ops/attention/attention_call.h"

namespace ek {

struct Sm80Tile {
  int head_dim, v_dim;  // at most; more values become more blocks
  int rows;             // of a block: queries times heads of a group
  int smem;             // bytes
};
// attention_sm80_run.cuh has the rest of each. All but the widest fit the 99 KB of sm_86, 89 and 120.
constexpr Sm80Tile kSm80Tiles[] = {
    {64, 64, 128, 41600},  {128, 128, 128, 82560},  {128, 128, 64, 65920}, {192, 128, 128, 98944},
    {256, 256, 64, 98688}, {512, 256, 128, 197248}, {512, 256, 64, 98688},
};
constexpr int kSm80TileCount = sizeof(kSm80Tiles) / sizeof(Sm80Tile);

inline int64_t sm80_parts(const AttentionCall& c, const Sm80Tile& t) {
  return c.v_dim <= t.v_dim ? 1 : (c.v_dim + t.v_dim - 1) / t.v_dim;
}

// Tiles of queries: of one sequence, or with cu_q, whose lengths only the device knows, the most that all together have.
inline int64_t sm80_query_tiles(const AttentionCall& c, const Sm80Tile& t) {
  const int64_t group = c.heads / c.kv_heads;
  if (c.seqs.cu_q) return c.tokens * group / t.rows + c.batch;
  return (c.seqs.q_len * group + t.rows - 1) / t.rows;
}

inline int64_t sm80_blocks(const AttentionCall& c, const Sm80Tile& t) {
  return sm80_query_tiles(c, t) * (c.seqs.cu_q ? 1 : c.batch) * c.kv_heads * sm80_parts(c, t);
}

// The tile that multiplies the least with padding, -1: none. Which one it is depends on the dims and the device alone; but
// 64 rows in place of 128, which go over the keys in the same steps and so give the same bits.
inline int sm80_tile(const AttentionCall& c, const Device& device) {
  int best = -1;
  int64_t least = 0;
  for (int i = 0; i < kSm80TileCount; ++i) {
    const Sm80Tile& t = kSm80Tiles[i];
    if (c.head_dim > t.head_dim || t.smem > device.smem_per_block) continue;
    const int64_t cost = sm80_parts(c, t) * (t.head_dim + t.v_dim);
    if (best < 0 || cost < least) best = i, least = cost;
  }
  if (best != 1) return best;
  const bool few = c.tokens * (c.heads / c.kv_heads) <= kSm80Tiles[2].rows * c.batch;
  return few || sm80_blocks(c, kSm80Tiles[1]) <= device.processors ? 2 : 1;
}

// kv heads whose keys and values fill half of L2.
inline int64_t sm80_section(const AttentionCall& c, const Device& device) {
  const int64_t bytes = (c.seqs.max_kv < 1 ? 1 : c.seqs.max_kv) * (c.head_dim + c.v_dim) * dtype_bytes(c.K);
  const int64_t section = device.l2_bytes / 2 / bytes;
  return section < 1 ? 1 : section > c.kv_heads ? c.kv_heads : section;
}

// How a sequence's blocks follow each other: section by section, so that keys and values stay in L2 while all queries pass
// over them; late queries first, which see more keys under a causal mask.
struct Sm80Unit {
  uint32_t tile, kv_head, part;
};
EK_RULE Sm80Unit sm80_unit(uint32_t block, uint32_t tiles, uint32_t kv_heads, uint32_t parts, uint32_t section) {
  const uint32_t part = block % parts, unit = block / parts;
  const uint32_t head = unit / (tiles * section) * section, inside = unit - head * tiles;
  const uint32_t heads = kv_heads - head < section ? kv_heads - head : section;
  return {tiles - 1 - inside / heads, head + inside % heads, part};
}

inline const char* sm80_not_aligned(const AttentionArgs& a) {
  const bool aligned = rows_aligned(a.q, a.lead + 1, 16) && rows_aligned(a.k, 3, 16) && rows_aligned(a.v, 3, 16) &&
                       rows_aligned(a.y, a.lead + 1, 16);
  return aligned ? nullptr : "rows of q, k, v or y are not on 16-byte boundaries";
}
// What a grid of tiles can't count.
inline const char* sm80_too_large(const AttentionArgs& a, const AttentionCall& c, const Sm80Tile& tile) {
  const int64_t most = (int64_t{1} << 31) - 1024;
  if (a.rows * (a.heads / a.kv_heads) > most || a.max_kv > most || (a.cu_kv && a.page_size > most))
    return "2^31 or more keys or queries of a kv head";
  return sm80_blocks(c, tile) > most ? "more blocks than a grid has" : nullptr;
}

inline const char* sm80_why_not(const AttentionArgs& a, const Device& device) {
  if (a.T == EK_DTYPE_F32) return "the inputs are f32";
  if (a.head_dim % 8 || a.v_dim % 8) return "head_dim or v_dim is not a multiple of 8";
  if (const char* why = sm80_not_aligned(a)) return why;
  const AttentionCall c = attention_call(a);
  const int tile = sm80_tile(c, device);
  if (tile < 0) return "head_dim is more than 512, or the GPU has too little shared memory for it";
  return sm80_too_large(a, c, kSm80Tiles[tile]);
}

// The kernel for q, k, v and y of type T: attention_sm80_bf16.cu, attention_sm80_f16.cu.
template <class T>
ek_status attention_sm80_run(const AttentionCall& c, const Launch& l);

}  // namespace ek
