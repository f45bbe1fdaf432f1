// SPDX-License-Identifier: Apache-2.0
// The way of K and V into shared memory: a group of warps walks through the tiles of its block's stretch, some tiles ahead
// of the products and without a stop between items. Page numbers are fetched one tile before they are needed. Keys outside
// the visible range are not read, nor is their page number: their rows become zeros.
#pragma once

#include "cuda/mma.cuh"
#include "ops/attention/attention_decode_plan.h"

namespace ek {

// What a sequence is to the kernel.
struct DecodeSequence {
  int begin, end, kv_len, prefix;  // begin, end: the keys that any query sees
};

// What a block knows of its launch.
struct DecodeBlock {
  AttentionSplit split;
  int batch;
  const int64_t* first;             // [batch + 1], shared memory: units before each sequence
  const DecodeSequence* sequences;  // [batch], shared memory
  int64_t share, begin, end;        // units: of every stretch, and this one

  __device__ __forceinline__ int tiles(int sequence) const {
    return static_cast<int>(split_tiles(split, {sequences[sequence].begin, sequences[sequence].end}));
  }
  __device__ __forceinline__ AttentionPiece piece() const {
    const int64_t b = split_find(first, batch, begin);
    return split_piece(split, first, b, tiles(static_cast<int>(b)), blockIdx.x, begin, end);
  }
  // The piece after `piece`, which begins at `unit`.
  __device__ __forceinline__ AttentionPiece next(const AttentionPiece& piece, int64_t unit) const {
    return split_next(split, piece, blockIdx.x, unit, end - unit, [this](int b) { return tiles(b); });
  }
};

// Where a 16-byte chunk of a row of a tile is: eight rows of one chunk are in different banks.
template <int kChunks>
__device__ __forceinline__ uint32_t decode_chunk(int row, int chunk) {
  const int swizzle = kChunks >= 8 ? row & 7 : row >> 1 & 3;
  return static_cast<uint32_t>(row * kChunks + (chunk ^ swizzle)) * 16;
}
// The same place `chunk` chunks on, for one that begins at 0 or 1 and an even constant: one instruction at most. Tiles
// begin at multiples of 128 bytes, so that whole addresses can be turned.
template <int kChunks>
__device__ __forceinline__ uint32_t decode_chunk_on(uint32_t at, int chunk) {
  constexpr int kTurn = kChunks >= 8 ? 7 : 3;
  return (at ^ static_cast<uint32_t>((chunk & kTurn) * 16)) + static_cast<uint32_t>((chunk & ~kTurn) * 16);
}

template <class Plan>
class DecodeLoader {
 public:
  __device__ __forceinline__ DecodeLoader(const DecodeParams& p, const DecodeBlock& block, const AttentionPiece& piece,
                                          int group, int groups, int slice)
      : p_(p), block_(block), groups_(groups), group_(group), piece_(piece) {
    const int thread = slice * 32 + threadIdx.x % 32, chunk = thread % Plan::kChunks;
    row_ = thread / Plan::kChunks;
    place_ = decode_chunk<Plan::kChunks>(row_, chunk);
    column_ = chunk * 16;
    const auto count = [chunk](int64_t dim) {
      const int left = static_cast<int>(dim * sizeof(K)) - chunk * 16;
      return left < 0 ? 0 : left < 16 ? left : 16;
    };
    k_count_ = count(p.c.head_dim), v_count_ = count(p.c.v_dim);
    scales_ = Plan::kNarrow && thread < Plan::kKeys;
    unit_ = block.begin;
    open();
    settle();
  }

  // Copies the tile whose page numbers are here to `stage`, and asks for those of the next one.
  __device__ __forceinline__ void issue(uint32_t stage) {
    const KvCache &k = p_.c.k, &v = p_.c.v;
    const int64_t page = page_ < 0 ? 0 : page_, slot = page_ < 0 ? 0 : slot_;
    const bool there = page_ >= 0;
    const uint32_t rows = __ballot_sync(0xffffffffu, there);
    const char* k_row = there ? k_head_ + (page * k.page + slot * k.slot) * sizeof(K) : k_head_;
    const char* v_row = there ? v_head_ + (page * v.page + slot * v.slot) * sizeof(K) : v_head_;
    if (rows == 0xffffffffu) {
      copy_rows<true>(stage, k_row, k_count_, rows);
      copy_rows<true>(stage + Plan::kTileBytes, v_row, v_count_, rows);
    } else if (rows != 0) {
      copy_rows<false>(stage, k_row, k_count_, rows);
      copy_rows<false>(stage + Plan::kTileBytes, v_row, v_count_, rows);
    }
    if constexpr (Plan::kNarrow) {
      if (scales_) {
        const uint32_t scales = stage + 2 * Plan::kTileBytes + threadIdx.x % 32 * 4;
        if (p_.k_tokens)
          copy_async_word(scales, k.scale + page * k.scale_page + slot * k.scale_slot + head_ * k.scale_head, there);
        if (p_.v_tokens)
          copy_async_word(scales + Plan::kScaleBytes,
                          v.scale + page * v.scale_page + slot * v.scale_slot + head_ * v.scale_head, there);
      }
    }
    copy_commit();
    next();
  }

 private:
  using K = typename Plan::K;

  __device__ __forceinline__ void next() {
    tile_ += groups_;
    settle();
  }
  // From a tile that may be beyond the end of the piece to one that exists, and its page number.
  __device__ __forceinline__ void settle() {
    page_ = -1;
    while (tile_ >= piece_.tile_end) {
      if (unit_ >= block_.end) return;
      piece_ = block_.next(piece_, unit_);
      open();
    }
    const int key = base_ + tile_ * Plan::kKeys + static_cast<int>(threadIdx.x) % Plan::kKeys;
    if (key < begin_ || key >= end_) return;
    if (p_.c.seqs.page_table) {
      const int index = static_cast<int>(p_.page_size.divide(static_cast<uint32_t>(key)));
      page_ = table_[index], slot_ = key - index * static_cast<int>(p_.page_size.divisor);
    } else {
      page_ = piece_.sequence, slot_ = key;
    }
  }

  // A piece of the stretch.
  __device__ __forceinline__ void open() {
    unit_ += piece_.units;
    head_ = p_.row_blocks == 1 ? piece_.head : piece_.head / p_.row_blocks;
    tile_ = piece_.tile_begin + group_;
    begin_ = block_.sequences[piece_.sequence].begin, end_ = block_.sequences[piece_.sequence].end;
    base_ = begin_ / Plan::kKeys * Plan::kKeys;
    table_ = p_.c.seqs.page_table + piece_.sequence * p_.c.seqs.table_stride;
    k_head_ = static_cast<const char*>(p_.c.k.data) + head_ * p_.c.k.head * static_cast<int64_t>(sizeof(K));
    v_head_ = static_cast<const char*>(p_.c.v.data) + head_ * p_.c.v.head * static_cast<int64_t>(sizeof(K));
  }

  // Rows of the tile, side by side in chunks of 16 bytes, whose first `count` bytes are in memory. own: the row of this
  // lane's key. rows: which are visible; the others become zeros.
  template <bool kAll>
  __device__ __forceinline__ void copy_rows(uint32_t tile, const char* own, int count, uint32_t rows) const {
    constexpr int kStep = 32 * Plan::kSlices / Plan::kChunks, kTurn = Plan::kChunks >= 8 ? 7 : 0;
    static_assert(kStep >= 1, "");
    const uint32_t to = tile + place_;
#pragma unroll
    for (int i = 0; i < Plan::kKeys; i += kStep) {
      const int64_t from = __shfl_sync(0xffffffffu, reinterpret_cast<int64_t>(own), i + row_);
      const int bytes = kAll || rows >> (i + row_) & 1 ? count : 0;
      copy_async((to ^ static_cast<uint32_t>((i & kTurn) * 16)) + i * Plan::kRowBytes,
                 reinterpret_cast<const char*>(from) + (bytes ? column_ : 0), bytes);
    }
  }

  const DecodeParams& p_;
  const DecodeBlock& block_;
  const int groups_, group_;
  // This thread's part of every copy: a row of each kStep, and a chunk of it
  int row_, column_, k_count_, v_count_;
  uint32_t place_;
  bool scales_;
  // The piece, and where the next one begins
  AttentionPiece piece_;
  int64_t unit_;
  int head_, tile_, base_, begin_, end_;
  const int32_t* table_ = nullptr;
  const char *k_head_ = nullptr, *v_head_ = nullptr;
  int page_ = -1, slot_ = 0;  // of this lane's key in the tile; page -1: not read
};

}  // namespace ek
