// SPDX-License-Identifier: Apache-2.0
// Which calls attention_cuda_tile takes, and the tile that a call gets. Blocks, their number and their order are those of
// attention_sm80. No CUDA.
#pragma once

#include "ops/attention/attention_sm80_config.h"

namespace ek {

struct CudaTile : Sm80Tile {
  int blocks;  // the most on an SM
};
// 128 rows have the most multiplications for each load from shared memory, 64 fill GPUs with less of it and last waves, 16 are
// for a handful. The sixth, with keys and values in the same place, is for the 64 KB of sm_75.
constexpr CudaTile kCudaTiles[] = {
    {{64, 64, 128, 66240}, 2},   {{64, 64, 64, 41408}, 3},   {{64, 64, 16, 22784}, 4},   {{128, 128, 128, 115392}, 2},
    {{128, 128, 64, 74176}, 3},  {{128, 128, 64, 57792}, 3}, {{128, 128, 16, 43264}, 4}, {{192, 128, 64, 98752}, 2},
    {{256, 256, 64, 139712}, 1}, {{256, 256, 16, 84224}, 2},
};
constexpr int kCudaTileCount = sizeof(kCudaTiles) / sizeof(CudaTile);

// What an SM takes for `blocks` that it holds at once, in units of what 64 rows more cost it: a block's own waits, and its work.
// From times of every tile on the H200 (docs/measured-facts.md), where head dims of 64 and 128 gave the same.
inline double cuda_tile_wave(const CudaTile& t, int64_t blocks) {
  if (blocks == 0) return 0;
  return t.rows == 128 ? 0.56 + 1.95 * blocks : t.rows == 64 ? 0.44 + 1.0 * blocks : 0.30 + 0.47 * blocks;
}
// For `blocks` of which it holds only some at once.
inline double cuda_tile_waves(const CudaTile& t, int64_t blocks, const Device& device) {
  const int64_t fit = (device.smem_per_block + 1024) / (t.smem + 1024);
  const int64_t room = fit < 1 ? 1 : fit < t.blocks ? fit : t.blocks;
  return static_cast<double>(blocks / room) * cuda_tile_wave(t, room) + cuda_tile_wave(t, blocks % room);
}

// Keys that a block goes over, of sequences with q queries on average. Along the edge of a mask a block goes as far as its
// last query, and looks at every score.
inline double cuda_tile_keys(const AttentionCall& c, const CudaTile& t, int64_t q) {
  const int64_t kv = c.seqs.max_kv, window = c.mask.window_left;
  if (!c.mask.causal) return static_cast<double>(kv);
  const int64_t mean = kv - (q < kv ? q : kv) / 2, seen = window >= 0 && window < mean ? window + 1 : mean;
  return static_cast<double>(seen) + static_cast<double>(t.rows) * c.kv_heads / c.heads;
}

// The tile whose last SM ends first, -1: none. All go over the keys in the same steps, so the choice changes no bits.
inline int cuda_tile(const AttentionCall& c, const Device& device) {
  int best = -1;
  double least = 0;
  for (int i = 0; i < kCudaTileCount; ++i) {
    const CudaTile& t = kCudaTiles[i];
    if (c.head_dim > t.head_dim || t.smem > device.smem_per_block) continue;
    const int64_t blocks = (sm80_blocks(c, t) + device.processors - 1) / device.processors;
    // A product of keys ends where head_dim does
    const double cost = cuda_tile_waves(t, blocks, device) * cuda_tile_keys(c, t, c.tokens / (c.batch ? c.batch : 1)) *
                        static_cast<double>(c.head_dim + t.v_dim);
    if (best < 0 || cost < least) best = i, least = cost;
  }
  return best;
}

inline const char* cuda_tile_why_not(const AttentionArgs& a, const Device& device) {
  if (a.T != EK_DTYPE_F32) return "the inputs are not f32";
  if (a.head_dim % 4 || a.v_dim % 4) return "head_dim or v_dim is not a multiple of 4";
  if (const char* why = sm80_not_aligned(a)) return why;
  const AttentionCall c = attention_call(a);
  const int tile = cuda_tile(c, device);
  if (tile < 0) return "head_dim is more than 256, or the GPU has too little shared memory for it";
  return sm80_too_large(a, c, kCudaTiles[tile]);
}

// attention_cuda_tile.cu
ek_status attention_cuda_tile_run(const AttentionCall& c, const Launch& l);

}  // namespace ek
