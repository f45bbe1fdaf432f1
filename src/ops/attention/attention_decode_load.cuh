// SPDX-License-Identifier: Apache-2.0
// The way of K and V into shared memory: the layout of a tile, the walk through the tiles of a block's stretch without a
// stop between items, copies of rows, and the loader of attention_decode_sm80: each group of warps fills a ring of its own,
// some tiles ahead of the products, and fetches page numbers one tile before they are needed. Keys outside the visible
// range are not read, nor is their page number: their rows become zeros.
#pragma once

#include "cuda/copy.cuh"
#include "cuda/mma.cuh"
#include "ops/attention/attention_decode_plan.h"

namespace ek {

// What a sequence is to the kernel.
struct DecodeSequence {
  int begin, end;  // the keys that any query sees
};

// What a block knows of its launch.
template <class I>
struct DecodeBlock {
  AttentionSplitOf<I> split;
  int batch;
  const I* first;                   // [batch + 1], shared memory: units before each sequence
  const DecodeSequence* sequences;  // [batch], shared memory
  I share, begin, end;              // units: of every stretch, and this one
  bool alone = false;           // this warp has found its only item by itself; then there are no first and sequences,
  DecodeSequence own = {0, 0};  // but this

  __device__ __forceinline__ int tiles(int sequence) const {
    return static_cast<int>(split_tiles(split, {sequences[sequence].begin, sequences[sequence].end}));
  }
  __device__ __forceinline__ DecodeSequence keys(int sequence) const { return alone ? own : sequences[sequence]; }
  __device__ __forceinline__ AttentionPieceOf<I> piece() const {
    const I b = split_find(first, batch, begin);
    return split_piece(split, first, b, tiles(static_cast<int>(b)), blockIdx.x, begin, end);
  }
  // The piece after `piece`, which begins at `unit`.
  __device__ __forceinline__ AttentionPieceOf<I> next(const AttentionPieceOf<I>& piece, I unit) const {
    return split_next(split, piece, blockIdx.x, unit, end - unit, [this](int b) { return tiles(b); });
  }
};

// A tile of K and V in shared memory, and the scales of its keys.
struct DecodeStage {
  uint32_t tiles, scales;
};

// Where a 16-byte chunk of a row is in a tile of kTileRows rows: panels of 128 bytes of every row, turned as the copy
// engine turns them (rows of 64 bytes: by its other rule). Eight rows of one chunk are in different banks.
template <int kChunks, int kTileRows>
__device__ __forceinline__ uint32_t decode_chunk(int row, int chunk) {
  static_assert(kChunks == 4 || kChunks % 8 == 0, "rows of 64 bytes, or of panels");
  if constexpr (kChunks < 8) return static_cast<uint32_t>(row * kChunks + (chunk ^ (row >> 1 & 3))) * 16;
  return static_cast<uint32_t>((chunk / 8 * kTileRows + row) * 8 + ((chunk ^ row) & 7)) * 16;
}
// The same place `chunk` chunks on, for a constant that has no bit in common with the first chunk's number.
template <int kChunks, int kTileRows>
__device__ __forceinline__ uint32_t decode_chunk_on(uint32_t at, int chunk) {
  constexpr int kTurn = kChunks >= 8 ? 7 : 3;
  return (at ^ static_cast<uint32_t>((chunk & kTurn) * 16)) + static_cast<uint32_t>(chunk / 8 * kTileRows * 128);
}

// The tiles of a block's stretch, one after another: every `step`th of each piece, from the piece's tile `first` on.
template <class Plan>
class DecodeWalk {
 public:
  using I = typename Plan::I;
  __device__ __forceinline__ DecodeWalk(const DecodeParams& p, const DecodeBlock<I>& block,
                                        const AttentionPieceOf<I>& piece, int first, int step)
      : p_(p), block_(block), first_(first), step_(step), piece_(piece), unit_(block.begin) {
    open();
    settle();
  }
  __device__ __forceinline__ bool there() const { return there_; }
  __device__ __forceinline__ int sequence() const { return piece_.sequence; }
  __device__ __forceinline__ int head() const { return head_; }
  __device__ __forceinline__ int key() const { return base_ + tile_ * Plan::kKeys; }  // the tile's first
  __device__ __forceinline__ int begin() const { return begin_; }                     // of the visible keys
  __device__ __forceinline__ int end() const { return end_; }
  __device__ __forceinline__ int left() const { return piece_.tile_end - tile_; }  // tiles of the piece, for steps of 1
  __device__ __forceinline__ void next(int tiles = 1) {
    tile_ += tiles * step_;
    settle();
  }

 private:
  // From a tile that may be beyond the end of the piece to one that exists.
  __device__ __forceinline__ void settle() {
    while (tile_ >= piece_.tile_end) {
      there_ = unit_ < block_.end;
      if (!there_) return;
      piece_ = block_.next(piece_, unit_);
      open();
    }
  }
  __device__ __forceinline__ void open() {
    unit_ += piece_.units;
    head_ = p_.row_blocks == 1 ? piece_.head : piece_.head / p_.row_blocks;
    tile_ = piece_.tile_begin + first_;
    const DecodeSequence keys = block_.keys(piece_.sequence);
    begin_ = keys.begin, end_ = keys.end;
    base_ = begin_ / Plan::kKeys * Plan::kKeys;
  }

  const DecodeParams& p_;
  const DecodeBlock<I>& block_;
  const int first_, step_;
  AttentionPieceOf<I> piece_;
  I unit_;  // where the next piece begins
  int head_, tile_, base_, begin_, end_;
  bool there_ = true;
};

// Copies of rows of K or V by kThreads threads, side by side along the rows, 16 bytes each.
template <class Plan, int kThreads>
class DecodeCopy {
 public:
  static constexpr int kRows = Plan::kCopyRows;  // of one call

  DecodeCopy() = default;
  __device__ __forceinline__ DecodeCopy(const DecodeParams& p, int thread) {
    const int chunk = thread % kAcross;
    row_ = thread / kAcross, column_ = chunk * 16;
    place_ = decode_chunk<Plan::kChunks, Plan::kKeys>(row_, chunk);
    k_left_ = static_cast<int>(p.c.head_dim * sizeof(K)) - column_;
    v_left_ = static_cast<int>(p.c.v_dim * sizeof(K)) - column_;
  }

  // kRows rows of K and V from row `first` of the tiles on, of which those in `rows` are read and the others become zeros.
  // k_own, v_own: the row of this lane.
  __device__ __forceinline__ void rows(uint32_t tiles, int first, const char* k_own, const char* v_own,
                                       uint32_t rows) const {
    constexpr uint32_t kAll = kRows == 32 ? 0xffffffffu : (1u << kRows % 32) - 1;
    const uint32_t to = tiles + place_ + first * Plan::kPitch;
    if ((rows & kAll) == kAll) {
      copy<true>(to, k_own, k_left_, rows);
      copy<true>(to + Plan::kTileBytes, v_own, v_left_, rows);
    } else {
      copy<false>(to, k_own, k_left_, rows);
      copy<false>(to + Plan::kTileBytes, v_own, v_left_, rows);
    }
  }

  // The same where all rows are read, all of their columns, and K and V are alike: half of the instructions. own: where this
  // lane's row is in both, in 16 bytes. keep: how long L2 keeps them.
  __device__ __forceinline__ void alike(uint32_t tiles, int first, const char* k, const char* v, uint32_t own,
                                        uint64_t keep) const {
    const uint32_t to = tiles + place_ + first * Plan::kPitch;
#pragma unroll
    for (int i = 0; i < kRows; i += kStep) {
      const int64_t row = int64_t{__shfl_sync(0xffffffffu, own, i + row_)} * 16 + column_;
      const uint32_t at = (to ^ static_cast<uint32_t>((i & kTurn) * 16)) + i * Plan::kPitch;
#pragma unroll
      for (int j = 0; j < kTimes; ++j) {
        copy_async_by(at + j * kAcross / 8 * Plan::kKeys * 128, k + row + j * kAcross * 16, keep);
        copy_async_by(at + Plan::kTileBytes + j * kAcross / 8 * Plan::kKeys * 128, v + row + j * kAcross * 16, keep);
      }
    }
  }

 private:
  using K = typename Plan::K;
  static constexpr int kAcross = Plan::kChunks < kThreads ? Plan::kChunks : kThreads;  // threads along a row
  static constexpr int kStep = kThreads / kAcross, kTimes = Plan::kChunks / kAcross;
  static constexpr int kTurn = Plan::kChunks >= 8 ? 7 : 0;
  static_assert(kTimes == 1 || kAcross % 8 == 0, "whole panels");

  template <bool kAll>
  __device__ __forceinline__ void copy(uint32_t to, const char* own, int left, uint32_t rows) const {
#pragma unroll
    for (int i = 0; i < kRows; i += kStep) {
      const int64_t row = __shfl_sync(0xffffffffu, reinterpret_cast<int64_t>(own), i + row_);
      const bool there = kAll || (rows >> (i + row_) & 1);
#pragma unroll
      for (int j = 0; j < kTimes; ++j) {
        const int rest = there ? left - j * kAcross * 16 : 0, bytes = rest < 0 ? 0 : rest < 16 ? rest : 16;
        const uint32_t at = (to ^ static_cast<uint32_t>((i & kTurn) * 16)) + i * Plan::kPitch;
        copy_async(at + j * kAcross / 8 * Plan::kKeys * 128,
                   reinterpret_cast<const char*>(row) + (bytes ? column_ + j * kAcross * 16 : 0), bytes);
      }
    }
  }

  int row_, column_, k_left_, v_left_;  // left: bytes of a row from this thread's column on
  uint32_t place_;
};

// The loader of one group of warps with a ring of its own.
template <class Plan>
class DecodeLoader {
 public:
  using I = typename Plan::I;
  __device__ __forceinline__ DecodeLoader(const DecodeParams& p, const DecodeBlock<I>& block,
                                          const AttentionPieceOf<I>& piece, int group, int groups, int slice)
      : p_(p), walk_(p, block, piece, group, groups), copy_(p, slice * 32 + threadIdx.x % 32) {
    scales_ = Plan::kNarrow && slice * 32 + static_cast<int>(threadIdx.x) % 32 < Plan::kKeys;
    look();
  }

  // Copies the tile whose page numbers are here to `stage`, and asks for those of the next one.
  __device__ __forceinline__ void issue(uint32_t stage) {
    const KvCache &k = p_.c.k, &v = p_.c.v;
    const int64_t page = page_ < 0 ? 0 : page_, slot = page_ < 0 ? 0 : slot_, head = walk_.head();
    const bool there = page_ >= 0;
    const uint32_t rows = __ballot_sync(0xffffffffu, there);
    const char *k_data = static_cast<const char*>(k.data), *v_data = static_cast<const char*>(v.data);
    const char* k_row = there ? k_data + (head * k.head + page * k.page + slot * k.slot) * sizeof(K) : k_data;
    const char* v_row = there ? v_data + (head * v.head + page * v.page + slot * v.slot) * sizeof(K) : v_data;
    if (rows != 0) copy_.rows(stage, 0, k_row, v_row, rows);
    if constexpr (Plan::kNarrow) {
      if (scales_) {
        const uint32_t scales = stage + 2 * Plan::kTileBytes + threadIdx.x % 32 * 4;
        if (p_.k_tokens)
          copy_async_word(scales, k.scale + page * k.scale_page + slot * k.scale_slot + head * k.scale_head, there);
        if (p_.v_tokens)
          copy_async_word(scales + Plan::kScaleBytes,
                          v.scale + page * v.scale_page + slot * v.scale_slot + head * v.scale_head, there);
      }
    }
    copy_commit();
    if (walk_.there()) walk_.next();
    look();
  }

 private:
  using K = typename Plan::K;

  // The page number of this lane's key.
  __device__ __forceinline__ void look() {
    page_ = -1;
    if (!walk_.there()) return;
    const int key = walk_.key() + static_cast<int>(threadIdx.x) % Plan::kKeys;
    if (key < walk_.begin() || key >= walk_.end()) return;
    if (p_.c.seqs.page_table) {
      const int index = static_cast<int>(p_.page_size.divide(static_cast<uint32_t>(key)));
      page_ = p_.c.seqs.page_table[walk_.sequence() * p_.c.seqs.table_stride + index];
      slot_ = key - index * static_cast<int>(p_.page_size.divisor);
    } else {
      page_ = walk_.sequence(), slot_ = key;
    }
  }

  const DecodeParams& p_;
  DecodeWalk<Plan> walk_;
  DecodeCopy<Plan, 32 * Plan::kSlices> copy_;
  bool scales_;
  int page_ = -1, slot_ = 0;  // of this lane's key in the tile; page -1: not read
};

}  // namespace ek
