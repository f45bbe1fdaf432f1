// SPDX-License-Identifier: Apache-2.0
// The way of K and V into shared memory: a group of warps walks through the tiles of its block's stretch, some tiles ahead
// of the products and without a stop between items. Page numbers are fetched one tile before they are needed. Keys outside
// the visible range are not read, nor is their page number: their rows become zeros.
#pragma once

#include "cuda/mma.cuh"
#include "ops/attention/attention_decode_plan.h"

namespace ek {

// What a block knows of its launch, in shared memory.
struct DecodeBlock {
  const int64_t* first;  // [batch + 1]: units before each sequence
  const int2* keys;      // [batch]: visible keys, begin and end
  int64_t share, begin, end;  // units: of every stretch, and this one

  __device__ __forceinline__ KeyRange range(int sequence) const { return {keys[sequence].x, keys[sequence].y}; }
  __device__ __forceinline__ AttentionPiece piece(const DecodeParams& p, int64_t unit) const {
    const int64_t sequence = split_find(first, p.c.batch, unit);
    return split_piece(p.split, first, sequence, split_tiles(p.split, range(static_cast<int>(sequence))), blockIdx.x,
                       unit, end);
  }
};

// Where a 16-byte chunk of a row of a tile is: eight rows of one chunk are in different banks.
template <int kChunks>
__device__ __forceinline__ uint32_t decode_chunk(int row, int chunk) {
  const int swizzle = kChunks >= 8 ? row & 7 : row >> 1 & 3;
  return static_cast<uint32_t>(row * kChunks + (chunk ^ swizzle)) * 16;
}

template <class Plan>
class DecodeLoader {
 public:
  __device__ __forceinline__ DecodeLoader(const DecodeParams& p, const DecodeBlock& block, int group, int groups,
                                          int slice)
      : p_(p), block_(block), groups_(groups), group_(group), slice_(slice), lane_(threadIdx.x % 32) {
    unit_ = block.begin;
    tile_ = tile_end_ = 0;
    next();
  }

  // Copies the tile whose page numbers are here to `stage`, and asks for those of the next one.
  __device__ __forceinline__ void issue(uint32_t stage) {
    const int64_t page = page_, slot = slot_;
    const KvCache &k = p_.c.k, &v = p_.c.v;
    copy_rows(stage, k, page, slot, static_cast<int>(p_.c.head_dim * sizeof(K)));
    copy_rows(stage + Plan::kTileBytes, v, page, slot, static_cast<int>(p_.c.v_dim * sizeof(K)));
    if constexpr (Plan::kNarrow) {
      if (slice_ == 0 && lane_ < Plan::kKeys) {
        const uint32_t scales = stage + 2 * Plan::kTileBytes + lane_ * 4;
        if (p_.k_tokens) copy_scale(scales, k, page, slot);
        if (p_.v_tokens) copy_scale(scales + Plan::kScaleBytes, v, page, slot);
      }
    }
    copy_commit();
    next();
  }

 private:
  using K = typename Plan::K;

  __device__ __forceinline__ void next() {
    tile_ += groups_;
    while (tile_ >= tile_end_) {
      if (unit_ >= block_.end) {
        page_ = -1;
        return;
      }
      const AttentionPiece piece = block_.piece(p_, unit_);
      unit_ += piece.units;
      sequence_ = static_cast<int>(piece.sequence);
      head_ = static_cast<int>(row_quotient(piece.head, p_.row_blocks));
      tile_ = static_cast<int>(piece.tile_begin) + group_;
      tile_end_ = static_cast<int>(piece.tile_end);
      const KeyRange keys = block_.range(sequence_);
      begin_ = static_cast<int>(keys.begin), end_ = static_cast<int>(keys.end);
    }
    const int key = begin_ / Plan::kKeys * Plan::kKeys + tile_ * Plan::kKeys + lane_ % Plan::kKeys;
    page_ = -1;
    if (key >= begin_ && key < end_) {
      const Sequences::Place at = p_.c.seqs.place(sequence_, key);
      page_ = static_cast<int>(at.page), slot_ = static_cast<int>(at.slot);
    }
  }

  // Rows of the tile, side by side in chunks of 16 bytes; `bytes` of each are in memory.
  __device__ __forceinline__ void copy_rows(uint32_t tile, const KvCache& cache, int64_t page, int64_t slot,
                                            int bytes) const {
    constexpr int kChunks = Plan::kChunks, kCopies = Plan::kTileBytes / 512;
    const int64_t own =
        page < 0 ? -1 : (page * cache.page + slot * cache.slot + head_ * cache.head) * static_cast<int64_t>(sizeof(K));
#pragma unroll
    for (int i = 0; i < kCopies / Plan::kSlices; ++i) {
      const int at = (i * Plan::kSlices + slice_) * 32 + lane_, row = at / kChunks, chunk = at % kChunks;
      const int64_t from = __shfl_sync(0xffffffffu, own, row);
      const int left = bytes - chunk * 16, count = from < 0 || left < 0 ? 0 : left < 16 ? left : 16;
      const char* source = static_cast<const char*>(cache.data) + (count ? from + chunk * 16 : 0);
      copy_async(tile + decode_chunk<kChunks>(row, chunk), source, count);
    }
  }

  __device__ __forceinline__ void copy_scale(uint32_t smem, const KvCache& cache, int64_t page, int64_t slot) const {
    const int64_t at = page < 0 ? 0 : page * cache.scale_page + slot * cache.scale_slot + head_ * cache.scale_head;
    copy_async_word(smem, cache.scale + at, page >= 0);
  }

  const DecodeParams& p_;
  const DecodeBlock& block_;
  int64_t unit_;  // where the next piece begins
  const int groups_, group_, slice_, lane_;
  int sequence_ = 0, head_ = 0, tile_, tile_end_, begin_ = 0, end_ = 0;
  int page_ = -1, slot_ = 0;  // of this lane's key in the tile; page -1: not read
};

}  // namespace ek
