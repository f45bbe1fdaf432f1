// SPDX-License-Identifier: Apache-2.0
// attention_decode_sm90's shapes: what host and device both need to know.
#pragma once

#include "ops/attention/attention_decode_sm80.h"

namespace ek {

// As DecodePlan; here every tile is shared by all groups, kOwn keys each, in one ring that warps of their own fill.
template <class M_, class K_, int kDim_, int kRows_>
struct DecodePlan90 {
  using M = M_;
  using K = K_;
  using I = int;  // decode_counts says whether that is enough
  static constexpr int kDim = kDim_, kRows = kRows_;
  static constexpr bool kNarrow = sizeof(K) == 1;
  static constexpr int kRowBytes = kDim * static_cast<int>(sizeof(K)), kChunks = kRowBytes / 16;
  static constexpr int kPitch = kRowBytes < 128 ? kRowBytes : 128, kPanels = kRowBytes / kPitch;
  // Four warps, or eight for one block of long rows; beyond 128 columns two or four share keys, each with a slice of the values.
  static constexpr int kWarps = kDim > 256 && kRows == 8 ? 8 : 4;
  static constexpr int kSlices = kDim > 128 ? kWarps / 2 : 1, kSlice = kDim / kSlices;
  static constexpr int kMostGroups = kWarps / kSlices;
  // 8-bit keys are taken in 32s, which makes tiles of 32 KB as well and fewer steps; but short rows would lack registers.
  static constexpr int kOwn = kNarrow && kDim > 64 && kDim <= 256 ? 32 : 16, kKeys = kOwn * kMostGroups;
  static constexpr int kTileBytes = kKeys * kRowBytes, kScaleBytes = kNarrow ? kKeys * 4 : 0;
  static constexpr int kStageBytes = 2 * kTileBytes;
  // Blocks of an SM: while one adds up its warps' states, or begins, the others stream. Shared memory is the limit, and for
  // rows of 64 bytes, whose items are small, registers.
  static constexpr bool kWide = kDim > 256 || (kDim == 256 && kRows > 8);
  static constexpr int kBlocks = kWide ? 1 : kRowBytes > 64 ? 2 : kRows == 8 ? 4 : 3;
  // Warps that load, at most: two where that costs no registers; and rows that one copies at a time.
  static constexpr int kLoadWarps = kBlocks <= 2 ? 2 : 1;
  static constexpr int kCopyRows = kKeys / kLoadWarps < 32 ? kKeys / kLoadWarps : 32;
  // Loading warps of clusters find their keys by themselves, not when the first warp has: 1 % of 67 MB with heads of 512. Where an
  // SM has several blocks it is from 2 % less to 3 % more.
  static constexpr bool kAlone = kWide;
  static_assert(kCopyRows % kOwn == 0, "rows that are all unseen are not copied: nobody shares them who sees others");
  // Rows that are added up at a time: where four would cost a stage of the ring, two.
  static constexpr int kMergeRows = (kWide ? kDim * kRows <= 4096 : kRows == 8 && kDim <= (kNarrow ? 64 : 128)) ? 4 : 2;
  static constexpr int kMergeStride = kDim + 4;
  // Warps that share keys multiply a slice of q and k each, so that K is read once, and add up their scores in the memory of
  // the sums, where those of two tiles have room.
  static constexpr int kScores = 2 * kWarps * (kOwn * kRows), kSums = kMostGroups * kMergeRows * kMergeStride;
  static constexpr bool kSlicedScores = kSlices > 1 && kScores <= kSums;
  // q in registers: of these there are 168 at two blocks (three warps to a scheduler), 128 at three, 96 at four.
  static constexpr bool kKeepQ = kBlocks <= 2 && (kSlicedScores ? kSlice : kDim) * kRows <= (kRows == 8 ? 2048 : 1024);
  static constexpr int kStatesAtOnce = kBlocks > 2 ? 4 : 12;  // on the way, in a merge: six registers each
  // A lane copies one box at most. Boxes are keys that follow one another in a page, eight at least: the turns repeat then.
  static constexpr int kLeastBox = kKeys * kPanels / 16 > 8 ? kKeys * kPanels / 16 : 8;
  // Boxes of a tile that are left to one warp. Of 4 it is as fast as two; of 16 two are 2 to 5 % faster.
  static constexpr int kFewBoxes = 8;

  // Shared memory. An SM has 228 KB, of which every block takes one more than it asks for.
  //   of each stage: K and V; scales; loading warps' notes of what the tile is, and its page numbers; two barriers. And one
  //   barrier more
  //   of the block: q, sums, maxima and totals, sequences, first units, rows, notes
  static constexpr int kNoteBytes = kLoadWarps * 16 + kKeys * 4;
  static constexpr int kEachBytes = 2 * kScaleBytes + kNoteBytes + 16;
  static constexpr int kBlockBytes = kRows * kDim * 2 + kMostGroups * (kMergeRows * kMergeStride * 4 + kRows * 8) +
                                     kDecodeBatch * 8 + (kDecodeBatch + 1) * 4 + kRows * 20 + 32;
  static constexpr int kRoom = 228 * 1024 / kBlocks - 1024 - kBlockBytes - 127 - 8;
  static constexpr int kFit = kRoom / (kStageBytes + kEachBytes), kStages = kFit < 8 ? kFit : 8;
  static constexpr int kRingBytes = kStages * kStageBytes + (kStages * kEachBytes + 8 + 127) / 128 * 128;
  static constexpr int kSmemBytes = kRingBytes + kBlockBytes;
  static EK_RULE int ring_bytes(int) { return kRingBytes; }
  static_assert(kStages >= 2, "a tile on the way while another is used");
  static constexpr int kMostCluster = 8;  // blocks; 16 were slower wherever they were tried
  static_assert(
      kStages * kStageBytes >=
              2 * (kRows * kDim / 4) * 16 + kMostCluster * kRows * 8 + kMostGroups * kRows * kMergeStride * 4 &&
          kRows * kDim / 4 >= kMostCluster,
      "the states of an item fit in the ring, in slices that are rounded up to powers of two, and its groups' sums");
};

// Where items are few and long, each is cut into so many parts that the merge, by one block, takes longer than a second
// block to an SM gains: then not more than about this many. (Keys of 8 bits that are copied one by one need both.)
constexpr int64_t kDecodeStates = 16;

inline DecodeShape decode_shape_sm90(const AttentionCall& c, const Device& device) {
  const auto shape = [&](auto plan) {
    using Plan = decltype(plan);
    const int64_t items =
        c.batch * c.kv_heads * ((c.heads / c.kv_heads * c.seqs.q_len + kDecodeRows - 1) / kDecodeRows);
    const bool by_key = Plan::kNarrow && c.seqs.page_table && c.seqs.page_size < Plan::kLeastBox;
    const int64_t merged = by_key ? Plan::kBlocks : items * kDecodeStates / device.processors;
    const int blocks = merged < 1 ? 1 : merged < Plan::kBlocks ? static_cast<int>(merged) : Plan::kBlocks;
    const bool fits = Plan::kSmemBytes <= device.smem_per_block;
    return DecodeShape{
        Plan::kKeys,
        device.processors * blocks,
        fits ? Plan::kMostGroups : 0,
        {device.processors, Plan::kBlocks, Plan::kMostCluster, Plan::kLeastBox, Plan::kLoadWarps, Plan::kNarrow},
        true};
  };
  return dtype_bytes(c.K) == 1 ? with_decode_plan<DecodePlan90, int8_t>(c, shape)
                               : with_decode_plan<DecodePlan90, int16_t>(c, shape);
}

// Whether 32 bits hold the units of any launch, and sums of positions and windows (which are cut at 2^29).
inline bool decode_counts(const AttentionCall& c, const Device& device) {
  const DecodeSizes s = decode_sizes(c, decode_shape_sm90(c, device), false);
  const int64_t batch = c.batch < kDecodeBatch ? c.batch : kDecodeBatch, most = int64_t{1} << 30;
  return c.seqs.max_kv < most && batch * s.split.heads * (c.seqs.max_kv / s.split.tile + 2) < most;
}

// One file for each dtype of the cache.
ek_status attention_decode_sm90_bf16(const AttentionCall& call, const Launch& l);
ek_status attention_decode_sm90_f16(const AttentionCall& call, const Launch& l);
ek_status attention_decode_sm90_e4m3(const AttentionCall& call, const Launch& l);
ek_status attention_decode_sm90_i8(const AttentionCall& call, const Launch& l);

}  // namespace ek
