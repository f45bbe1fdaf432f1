// SPDX-License-Identifier: Apache-2.0
// attention_decode_cuda_split: how a call is cut into blocks and warps, and where that is expected to win. Pure functions of
// what the host knows; the lengths, which a graph may replay with others, are read on the device.
//   An item is one sequence and kv head. Its keys go to `parts` blocks, a cluster, of `warps` warps each, in turns: a step
//   of a warp is kKeys keys one after the other, and the next warp's begins behind it.
#pragma once

#include "dispatch/kernel.h"
#include "ops/attention/attention_call.h"
#include "ops/attention/attention_split.h"

namespace ek {

constexpr int kCoreRows = 4;  // the most that share a kv head: queries times heads of a group
// A window that is as good as none where there are fewer keys: sums of positions and windows stay below 2^31.
constexpr int32_t kCoreNoWindow = 1 << 29;

// K: the dtype of the cache. kDim: at least head_dim and v_dim. kRows: 1 or kCoreRows.
template <class K_, int kDim_, int kRows_>
struct DecodeCorePlan {
  using K = K_;
  static constexpr int kDim = kDim_, kRows = kRows_;
  static constexpr bool kNarrow = sizeof(K) == 1;
  // Columns of a lane: 16 bytes of a key. With several rows 16 columns would take too many registers.
  static constexpr int kVec = kNarrow && kRows == 1 ? 16 : 8;
  static constexpr int kLanes = kDim / kVec;       // that share a key
  static constexpr int kGroups = 32 / kLanes;      // of a warp
  static constexpr int kAtOnce = 4;                // keys of a group
  static constexpr int kKeys = kGroups * kAtOnce;  // of a warp's step
  // K and V of kRing steps, and scales, are on the way together, in shared memory. More steps were slower.
  static constexpr int kRing = 2, kWordBytes = kVec * static_cast<int>(sizeof(K));
  static constexpr int kStageBytes = 2 * kAtOnce * 32 * kWordBytes + (kNarrow ? 256 : 0);
  static constexpr int kSumBytes = kRows * kDim * 4;  // at the end, in the same place
  static constexpr int kRingBytes = kRing * kStageBytes > kSumBytes ? kRing * kStageBytes : kSumBytes;
  // The most of a block. More are no faster, and a Turing's shared memory has room for seven.
  static constexpr int kWarps = 8;
  static int warps(int smem_per_block) {
    const int fit = (smem_per_block - kRows * kDim * 12 - 1024) / (kRingBytes + kRows * 8);
    return fit < kWarps ? fit : kWarps;
  }
};

// What the choice of blocks knows of a plan and a GPU.
struct DecodeCoreRoom {
  int keys, warps;        // of a warp's step; the most of a block
  int processors, parts;  // parts: the most blocks of a cluster; 1: no clusters
};

// steps: those of every warp, for sequences as long as they may be.
struct DecodeCores {
  int parts, warps;
  int64_t steps;
};

// Warps of an SM, of all its blocks: with more, all of their keys come late and at once, and multiplying is not hidden.
constexpr int kCoreWarps = 8;
// With fewer warps a block of a cluster is not worth its part in a merge.
constexpr int kCoreLeastWarps = 2;
// Of batch-invariant calls, whatever their lengths: a page table may be wider in a larger batch.
constexpr int kCoreFixedParts = 4, kCoreFixedWarps = 4;

// Blocks for all SMs where items are few, as many warps as an SM can use, and two steps of each, which are on the way
// together, where there are keys for them.
inline DecodeCores decode_cores(int64_t items, int64_t keys, const DecodeCoreRoom& room, bool batch_invariant) {
  const auto divide_up = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
  const auto most = [](int64_t a, int64_t b) { return a > b ? a : b; };
  const auto least = [](int64_t a, int64_t b) { return a < b ? a : b; };
  const int64_t steps = most(divide_up(keys, room.keys), 1);
  int64_t parts = 1, warps = kCoreFixedWarps;
  if (batch_invariant) {
    parts = least(kCoreFixedParts, room.parts);
  } else {
    items = most(items, 1);
    const int64_t each = least(divide_up(steps, 2), most(int64_t{room.processors} * kCoreWarps / items, 1));
    const AttentionRoom clusters = {room.processors, 2, room.parts};  // two blocks fit on an SM
    while (2 * parts <= room.parts && items * 2 * parts <= room.processors && each >= 2 * parts * kCoreLeastWarps &&
           items <= clusters.at_once(2 * parts))
      parts *= 2;
    warps = least(divide_up(each, parts), room.warps);
    warps = divide_up(steps, parts * divide_up(steps, parts * warps));  // all steps are full then, or nearly
  }
  return {static_cast<int>(parts), static_cast<int>(warps), divide_up(steps, parts * warps)};
}

// The kernel's width for a call.
inline int decode_core_dim(const AttentionCall& c) {
  const int64_t dim = c.head_dim > c.v_dim ? c.head_dim : c.v_dim;
  return dim <= 64 ? 64 : dim <= 128 ? 128 : 256;
}

// Calls f with the plan for a call.
template <class K, class F>
auto with_core_plan(const AttentionCall& c, const F& f) {
  const bool one = c.heads / c.kv_heads * c.seqs.q_len == 1;
  switch (decode_core_dim(c)) {
    case 64: return one ? f(DecodeCorePlan<K, 64, 1>()) : f(DecodeCorePlan<K, 64, kCoreRows>());
    case 128: return one ? f(DecodeCorePlan<K, 128, 1>()) : f(DecodeCorePlan<K, 128, kCoreRows>());
    default: return one ? f(DecodeCorePlan<K, 256, 1>()) : f(DecodeCorePlan<K, 256, kCoreRows>());
  }
}

// The most keys that a query sees.
inline int64_t decode_core_keys(const AttentionCall& c) {
  const int64_t window = c.mask.window_left, most = window + c.seqs.q_len;
  return window >= 0 && most < c.seqs.max_kv ? most : c.seqs.max_kv;
}

inline DecodeCores decode_cores(const AttentionCall& c, const Device& device, bool batch_invariant) {
  const auto cores = [&](auto plan) {
    using Plan = decltype(plan);
    return decode_cores(
        c.batch * c.kv_heads, decode_core_keys(c),
        {Plan::kKeys, Plan::warps(device.smem_per_block), device.processors, device.target >= 90 ? 8 : 1},
        batch_invariant);
  };
  return dtype_bytes(c.K) == 1 ? with_core_plan<int8_t>(c, cores) : with_core_plan<int16_t>(c, cores);
}

// Little work, where a call is a chain of latencies: at most so many bytes of K and V, and so many steps of a warp. More is
// streamed better by the rows for tensor cores.
constexpr int64_t kCoreBytes = 20 << 20, kCoreSteps = 4;

inline bool decode_cores_win(const AttentionCall& c, const Device& device) {
  const int64_t row = c.kv_heads * (c.head_dim + c.v_dim) * dtype_bytes(c.K), keys = decode_core_keys(c);
  return keys <= kCoreBytes / row && c.batch * keys <= kCoreBytes / row &&
         decode_cores(c, device, false).steps <= kCoreSteps;
}

// One file for each width of the cache's dtypes.
ek_status attention_decode_cuda_split_wide(const AttentionCall& call, const Launch& l);
ek_status attention_decode_cuda_split_narrow(const AttentionCall& call, const Launch& l);

}  // namespace ek
