// SPDX-License-Identifier: Apache-2.0
// Which calls attention_cuda_tile takes, and the tile that a call gets. Blocks, their number and their order are those of
// attention_sm80. No CUDA.
#pragma once

#include "ops/attention/attention_sm80_config.h"

namespace ek {

// 128 rows have the most multiplications for each load from shared memory; 64 are for GPUs with less of that and for fewer
// rows, 16 for a handful. attention_cuda_tile.cu has the rest of each. The sixth, with keys and values in the same place, is
// for the 64 KB of sm_75.
constexpr Sm80Tile kCudaTiles[] = {
    {64, 64, 128, 66240},  {64, 64, 64, 41408},   {64, 64, 16, 22784},   {128, 128, 128, 115392}, {128, 128, 64, 74176},
    {128, 128, 64, 57792}, {128, 128, 16, 43264}, {192, 128, 64, 98752}, {256, 256, 64, 139712},  {256, 256, 16, 84224},
};
constexpr int kCudaTileCount = sizeof(kCudaTiles) / sizeof(Sm80Tile);

inline bool cuda_tile_fits(const AttentionCall& c, const Sm80Tile& t, const Device& device) {
  return c.head_dim <= t.head_dim && t.smem <= device.smem_per_block;
}

// The dims that multiply the least (a product of keys ends where head_dim does), and of their tiles the largest that rows
// fill more than half of and that there are enough of: one for each SM of 128 rows, one for two SMs of 64. -1: none. All go
// over the keys in the same steps, so the choice changes no bits.
inline int cuda_tile(const AttentionCall& c, const Device& device) {
  int best = -1;
  int64_t least = 0;
  for (int i = 0; i < kCudaTileCount; ++i) {
    const Sm80Tile& t = kCudaTiles[i];
    if (!cuda_tile_fits(c, t, device)) continue;
    const int64_t cost = sm80_parts(c, t) * (c.head_dim + t.v_dim);
    if (best < 0 || cost < least) best = i, least = cost;
  }
  for (int i = best; i >= 0 && i < kCudaTileCount && kCudaTiles[i].head_dim == kCudaTiles[best].head_dim; ++i) {
    const Sm80Tile& t = kCudaTiles[i];
    if (!cuda_tile_fits(c, t, device)) continue;
    best = i;
    const bool filled = c.tokens * (c.heads / c.kv_heads) * 2 > t.rows * c.batch;
    if (filled && sm80_blocks(c, t) * 128 > int64_t{t.rows} * device.processors) break;
  }
  return best;
}

inline const char* cuda_tile_why_not(const AttentionArgs& a, const Device& device) {
  if (a.T != EK_DTYPE_F32) return "the inputs are not f32";
  if (a.head_dim % 4 || a.v_dim % 4) return "head_dim or v_dim is not a multiple of 4";
  if (!rows_aligned(a.q, a.lead + 1, 16) || !rows_aligned(a.k, 3, 16) || !rows_aligned(a.v, 3, 16) ||
      !rows_aligned(a.y, a.lead + 1, 16))
    return "rows of q, k, v or y are not on 16-byte boundaries";
  const AttentionCall c = attention_call(a);
  const int tile = cuda_tile(c, device);
  if (tile < 0) return "head_dim is more than 256, or the GPU has too little shared memory for it";
  const int64_t most = (int64_t{1} << 31) - 1024;
  if (a.rows * (a.heads / a.kv_heads) > most || a.max_kv > most || (a.cu_kv && a.page_size > most))
    return "2^31 or more keys or queries of a kv head";
  if (sm80_blocks(c, kCudaTiles[tile]) > most) return "more blocks than a grid has";
  return nullptr;
}

// attention_cuda_tile.cu
ek_status attention_cuda_tile_run(const AttentionCall& c, const Launch& l);

}  // namespace ek
