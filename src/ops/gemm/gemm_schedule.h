// SPDX-License-Identifier: Apache-2.0
// Which worker (a block, or a cluster) computes which part of which tile. Pure functions, host and device.
//
// Tiles [0, streamed) are cut along k so that all workers get the same number of k blocks (stream-K). The others are
// dealt out whole, one after the other. Where a worker's share ends inside a tile, the tile has several pieces; they are
// added up in the order of k, whoever comes last.
//
// split: the worker is a cluster of so many blocks, each of which takes an equal part of the k of every tile (split-K).
#pragma once

#include "core/divider.h"

namespace ek {

struct GemmSchedule {
  int32_t rows = 0, cols = 0,
          batch = 0;  // tiles; those of blocks that share operands count as one
  int32_t k_blocks = 0;
  int32_t group = 0;     // rows of tiles that are walked together, column by column: their operands stay in L2
  bool across = false;   // columns of tiles instead, row by row
  int32_t streamed = 0;  // tiles that are cut along k
  int32_t workers = 0;
  int32_t split = 1;
  // Set by divide_by_hand(): tiles of a batch, of a group, in a column of it, of the last one; parts of k.
  Divider per_matrix, per_group, in_group, in_last, by_split;

  GemmSchedule() = default;
  GemmSchedule(int64_t rows_, int64_t cols_, int64_t batch_, int64_t k_blocks_)
      : rows(static_cast<int32_t>(rows_)),
        cols(static_cast<int32_t>(cols_)),
        batch(static_cast<int32_t>(batch_)),
        k_blocks(static_cast<int32_t>(k_blocks_)),
        group(rows_ < 8 ? rows : 8) {}
  void walk_across() {
    across = true;
    group = cols < 8 ? cols : 8;
  }
  EK_HOST_DEVICE int32_t grouped() const { return across ? cols : rows; }
  EK_HOST_DEVICE int32_t others() const { return across ? rows : cols; }
  // Once all else is decided; before that it would only take time.
  void divide_by_hand() {
    per_matrix = Divider(int64_t{rows} * cols);
    per_group = Divider(int64_t{group} * others());
    in_group = Divider(group);
    in_last = Divider(grouped() % group ? grouped() % group : group);
    by_split = Divider(split);
  }

  EK_HOST_DEVICE int32_t tiles() const { return rows * cols * batch; }
  EK_HOST_DEVICE int32_t streamed_blocks() const { return streamed * k_blocks; }  // the plan keeps it below 2^31

  // Where the share of a worker in the streamed k blocks begins; the next worker's begin is its end.
  EK_HOST_DEVICE int32_t begin(int worker) const {
    const int32_t each = streamed_blocks() / workers, rest = streamed_blocks() % workers;
    return worker * each + (worker < rest ? worker : rest);
  }
  // Whose share a streamed k block is in.
  EK_HOST_DEVICE int32_t owner(int32_t block) const {
    const int32_t each = streamed_blocks() / workers, rest = streamed_blocks() % workers;
    const int32_t longer = rest * (each + 1);  // blocks of the first workers, which have one more
    return block < longer ? block / (each + 1) : rest + (block - longer) / each;
  }
};

struct GemmTile {
  int32_t row, col, batch;
};

EK_HOST_DEVICE GemmTile gemm_tile(const GemmSchedule& s, int32_t index) {
  GemmTile tile;
  tile.batch = s.per_matrix.divide(index);
  index -= tile.batch * (s.rows * s.cols);
  const int32_t group = s.per_group.divide(index), first = group * s.group, left = s.grouped() - first;
  index -= group * (s.group * s.others());
  const int32_t other = left < s.group ? s.in_last.divide(index) : s.in_group.divide(index);
  const int32_t own = first + index - other * (left < s.group ? left : s.group);
  tile.row = s.across ? other : own;
  tile.col = s.across ? own : other;
  return tile;
}

// A block's place in a cluster of kRows by kCols tiles (powers of two) that share operands, and which part of k it has.
// It loads one of kCols parts of a's tile for the blocks of its row, and one of kRows parts of b's for its column.
template <int kRows_, int kCols_>
struct GemmPlace {
  static constexpr int kRows = kRows_, kCols = kCols_, kBlocks = kRows * kCols;
  static constexpr int kReaders = kRows + kCols - 1;  // blocks that get a part of what one block loads
  uint32_t row, col, slice;
  EK_HOST_DEVICE static GemmPlace of(uint32_t rank) {
    const uint32_t at = rank % kBlocks;
    return {at % kRows, at / kRows, rank / kBlocks};
  }
  EK_HOST_DEVICE uint32_t rank(uint32_t row, uint32_t col) const { return slice * kBlocks + col * kRows + row; }
  EK_HOST_DEVICE uint32_t rank() const { return rank(row, col); }
  // The i-th of the blocks whose loads this one reads, and that read its own: itself, the others of its column, those
  // of its row.
  EK_HOST_DEVICE uint32_t loader(uint32_t i) const {
    return i < kRows ? rank(row ^ i, col) : rank(row, col ^ (i - kRows + 1));
  }
  // The blocks that share an operand, one bit each.
  EK_HOST_DEVICE uint16_t sharing_a() const {
    uint32_t blocks = 0;
    for (int i = 0; i < kCols; ++i) blocks |= 1u << rank(row, i);
    return static_cast<uint16_t>(blocks);
  }
  EK_HOST_DEVICE uint16_t sharing_b() const { return static_cast<uint16_t>(((1u << kRows) - 1) << rank(0, col)); }
};

// A piece of a tile.
struct GemmWork {
  int32_t tile;
  int32_t k_begin, k_count;  // in k blocks
  int32_t k_step;
};

// The pieces of one worker, one after the other: its share of the streamed tiles, if there may be any, then whole ones.
template <bool kStreams>
class GemmWalk {
 public:
  EK_HOST_DEVICE GemmWalk(const GemmSchedule& s, int worker)
      : at_(kStreams && s.streamed ? s.begin(worker) : 0),
        end_(kStreams && s.streamed ? s.begin(worker + 1) : 0),
        tile_((kStreams ? s.streamed : 0) + worker) {}

  EK_HOST_DEVICE bool next(const GemmSchedule& s, GemmWork* work) {
    if (kStreams && at_ < end_) {
      work->tile = at_ / s.k_blocks;
      work->k_begin = at_ - work->tile * s.k_blocks;
      const int32_t left = end_ - at_, rest = s.k_blocks - work->k_begin;
      work->k_count = left < rest ? left : rest;
      work->k_step = 1;
      at_ += work->k_count;
      return true;
    }
    if (tile_ >= s.tiles()) return false;
    *work = {tile_, 0, s.k_blocks, 1};
    tile_ += s.workers;
    return true;
  }

 private:
  int32_t at_, end_;
  int32_t tile_;
};

// The part of a tile that block `rank` of a splitting cluster takes: every split-th k block, so that the blocks of the
// cluster together read longer runs of memory at a time.
EK_HOST_DEVICE GemmWork gemm_slice(const GemmSchedule& s, GemmWork work, int rank) {
  if (s.split == 1) return work;
  return {work.tile, rank, static_cast<int32_t>(s.by_split.divide(s.k_blocks - rank + s.split - 1)), s.split};
}

// The workers that have a piece of a streamed tile, in the order of k.
struct GemmPieces {
  int32_t first, last;
};
EK_HOST_DEVICE GemmPieces gemm_pieces(const GemmSchedule& s, int32_t tile) {
  const int32_t begin = tile * s.k_blocks;
  return {s.owner(begin), s.owner(begin + s.k_blocks - 1)};
}
// A worker has at most two pieces that are not whole tiles: one where its share begins and one where it ends.
EK_HOST_DEVICE int32_t gemm_piece_slot(const GemmSchedule& s, int32_t tile, int worker) {
  return 2 * worker + (s.begin(worker) >= tile * s.k_blocks ? 0 : 1);
}

}  // namespace ek
