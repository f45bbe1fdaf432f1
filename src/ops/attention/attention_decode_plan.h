// SPDX-License-Identifier: Apache-2.0
// Shapes and parameters of the tensor-core decode kernels (attention_decode_mma.cuh has the picture): what host and device
// both need to know. DecodePlan is attention_decode_sm80's; attention_decode_sm90.h has the other.
#pragma once

#include "cuda/rows.cuh"
#include "ops/attention/attention_call.h"
#include "ops/attention/attention_split.h"

namespace ek {

constexpr int kDecodeRows = 16;    // the most that an item has: queries times heads of a group
constexpr int kDecodeBatch = 256;  // sequences of a launch, whose ranges a block keeps

// M: what the tensor cores multiply. K: the dtype of the cache. kDim: at least head_dim and v_dim. kRows: 8 or 16.
template <class M_, class K_, int kDim_, int kRows_>
struct DecodePlan {
  using M = M_;
  using K = K_;
  using I = int64_t;  // counts units of a launch, and keys
  static constexpr int kDim = kDim_, kRows = kRows_;
  static constexpr bool kNarrow = sizeof(K) == 1;  // 8 bits, converted to f16 in registers
  static constexpr int kRowBytes = kDim * static_cast<int>(sizeof(K)), kChunks = kRowBytes / 16;
  static constexpr int kKeys = kRowBytes >= 256 ? 16 : 32;          // of a tile: short rows are taken together
  static constexpr int kOwn = kKeys;                                // of a group's tile, its warps'
  static constexpr int kPitch = kRowBytes < 128 ? kRowBytes : 128;  // between rows of a panel, in a tile
  static constexpr int kTileBytes = kKeys * kRowBytes, kScaleBytes = kNarrow ? kKeys * 4 : 0;
  static constexpr int kStageBytes = 2 * (kTileBytes + kScaleBytes);
  // Warps that share keys, each with a slice of the values: a stage of 512 columns is 32 KB, too much for each warp.
  static constexpr int kSlices = kDim > 256 ? 2 : 1, kSlice = kDim / kSlices;
  static constexpr bool kSlicedScores = false;  // each of them multiplies a slice of q and k as well
  // One block to an SM, of groups of kSlices warps, each with a ring of its own: 192 KB for all. Conversions take time that
  // more warps hide, where registers allow them.
  static constexpr bool kMore = kNarrow && kRows == 8 && kDim <= 128;
  // Wide rows: two stages at least, so that GPUs of 99 KB have room for a group, too.
  static constexpr int kLeastStages = kMore || kRowBytes >= 512 ? 2 : 3;
  static constexpr int kRings = 196608 / (kLeastStages * 2 * kTileBytes), kWanted = (kMore ? 12 : 8) / kSlices;
  static constexpr int kMostGroups = kRings < kWanted ? kRings : kWanted, kWarps = kMostGroups * kSlices;
  static constexpr int kFit = 196608 / kMostGroups / (2 * kTileBytes), kStages = kFit < 8 ? kFit : 8;
  static constexpr bool kKeepQ = kDim * kRows <= 256 * 8;  // in registers: 32 at most
  static constexpr int kMergeRows = kDim > 256 || kWarps > 8 ? 2 : 4;
  static constexpr int kMergeStride = kDim + 4;  // floats; + 4: no bank conflicts
  static constexpr int kLoadWarps = 0;           // of a block, that only load
  static constexpr int kCopyRows = kKeys;        // of a warp, at a time
  static constexpr int kMostCluster = 1;         // blocks
  static constexpr bool kAlone = false;          // as in DecodePlan90
  static constexpr int kStatesAtOnce = 8;        // on the way, in a merge

  // Shared memory of a block, and of each of its groups of kSlices warps.
  static constexpr int kGroupBytes =
      kStages * kStageBytes + kMergeRows * kMergeStride * 4 + kRows * 8;  // ring, sums, maxima and totals
  static constexpr int kBlockBytes = kRows * kDim * 2 + kRows * 32 + (kDecodeBatch + 1) * 8 + kDecodeBatch * 8 +
                                     64;  // q, rows, first units, sequences, notes

  static EK_RULE int ring_bytes(int groups) { return groups * kStages * kStageBytes; }
  static int groups(int smem_per_block) {
    const int fit = (smem_per_block - kBlockBytes) / kGroupBytes;
    return fit < kMostGroups ? fit : kMostGroups;
  }
};

// Where results go.
struct DecodeOut {
  void* y;
  float* lse;                          // or null
  const float* sinks;                  // [heads], or null
  ek_dtype dtype;                      // of y
  int64_t y_stride[3], lse_stride[3];  // sequence, query, head
};
EK_RULE DecodeOut decode_out(const AttentionCall& c) {
  return {c.y.data,
          static_cast<float*>(c.lse.data),
          c.sinks,
          c.T,
          {c.y.stride[0], c.y.stride[1], c.y.stride[2]},
          {c.lse.stride[0], c.lse.stride[1], c.lse.stride[2]}};
}

// In the order in which they are needed.
struct DecodeParams {
  AttentionCall c;
  int32_t table_lines;      // of 128 bytes, in a sequence's line of the page table; 0: not worth fetching ahead
  int32_t q_lines;          // of all of q
  bool late;                // the next kernel is let in at the end: large clusters would have to share SMs with its own
  bool k_tokens, v_tokens;  // scales for each token; else one for all tokens of a head
  bool special;             // softcap or ALiBi
  int32_t clusters, teams;  // of the grid, and of every item
  AttentionSplit split;     // its heads: kv heads times blocks of 16 rows
  Divider workers, heads;   // of a line, and the split's
  Divider cluster, parts;   // blocks of a cluster (1: there are none), and of all clusters of an item
  Divider page_size;
  int32_t row_blocks;   // of 16 rows, of a kv head
  int32_t group, rows;  // heads of a kv head, and times q_len; row = query * group + head
  int32_t slot_rows;    // rows of a state
  float factor;         // of a product of q and k, to a power of two's exponent (softcap: to the tanh's argument)
  Divider columns;      // of y, in fours
  float* states;        // [slots, slot_rows, v_dim]: sums of values, not yet divided
  float2* bases;        // [slots, slot_rows]: maximum (a power of two's exponent) and total
  uint32_t* counters;   // [workers], or [items] where the split is fixed, or [items, cluster]
  DecodeOut out;
};

}  // namespace ek
