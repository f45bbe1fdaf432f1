// SPDX-License-Identifier: Apache-2.0
// How the keys of a decode batch are divided over a fixed number of workers (blocks of a grid that a graph has captured):
// pure functions of the lengths, which kernels evaluate on the device and the unit tests on the host.
//   An item is one sequence and kv head; its visible keys are cut into tiles. The units of all items stand in one line,
//   sequence by sequence, head by head, and every worker takes a stretch of it. A stretch meets an item in a piece.
//   Balanced: a unit is a tile, and all stretches are as long. A worker has at most two pieces that are only a part of
//   their item, its first and its last, so two slots for partial results a worker are enough for any batch.
//   Fixed, for batch-invariant calls: a unit is fixed_tiles tiles of an item, cut from its begin. Which keys are summed
//   up together then depends on the item alone. One slot for each unit.
//   A piece that is its whole item has no slot: it is the result. Items of several pieces are merged in their order.
#pragma once

#include "ops/attention/attention_mask.h"

namespace ek {

struct AttentionSplit {
  int64_t workers;      // blocks of the grid
  int64_t heads;        // kv heads (times blocks of queries, where one does not hold them all)
  int64_t tile;         // keys
  int64_t fixed_tiles;  // 0: balanced
  int64_t least;        // units of a stretch: less is not worth a merge
};

// Keys of a unit in fixed mode: enough for a merge to be cheap beside them, few enough for 16 blocks at 8 heads and 1024
// keys. A constant: the width of a page table, which could say how long sequences are, may change with the batch.
constexpr int64_t kFixedKeys = 512;
// Fewer keys than this are not worth a block of their own.
constexpr int64_t kLeastKeys = 128;

// For `workers` blocks; tile: a power of two, at most kFixedKeys.
EK_RULE AttentionSplit attention_split(int64_t workers, int64_t heads, int64_t tile, bool batch_invariant) {
  const int64_t least = kLeastKeys / tile;
  return {workers, heads, tile, batch_invariant ? kFixedKeys / tile : 0, batch_invariant || least < 1 ? 1 : least};
}

// One part of an item.
struct AttentionPiece {
  int32_t sequence, head;
  int32_t tile_begin, tile_end;  // of the item's tiles
  int32_t units;                 // of the line
  int64_t slot;                  // for its partial result; -1: it is the result
};

// The parts of an item, for the merge: state i is in slot(i). count 0: no key at all; 1: the result is there already.
struct AttentionStates {
  int64_t count, first, next;
  EK_RULE int64_t slot(int64_t i) const { return i == 0 ? first : next + (i - 1) * step; }
  int64_t step;
};

namespace attention_detail {
EK_RULE int64_t divide_up(int64_t a, int64_t b) { return row_quotient(a + b - 1, b); }
}  // namespace attention_detail

// Tiles of the visible keys of a sequence: from a multiple of the tile on, so that tiles are whole pages where they can be.
EK_RULE int64_t split_tiles(const AttentionSplit& s, KeyRange keys) {
  if (keys.end <= keys.begin) return 0;
  return attention_detail::divide_up(keys.end, s.tile) - row_quotient(keys.begin, s.tile);
}

// Units of a sequence with so many tiles. The exclusive sums of these, first[0 .. batch], are all that follows needs.
EK_RULE int64_t split_units(const AttentionSplit& s, int64_t tiles) {
  return s.heads * (s.fixed_tiles ? attention_detail::divide_up(tiles, s.fixed_tiles) : tiles);
}

// Units of each worker's stretch, but of the last.
EK_RULE int64_t split_share(const AttentionSplit& s, int64_t total) {
  const int64_t share = attention_detail::divide_up(total, s.workers);
  return share > s.least ? share : s.least;
}

// Slots that any batch with sequences of at most max_tiles needs.
EK_RULE int64_t split_slots(const AttentionSplit& s, int64_t batch, int64_t max_tiles) {
  return s.fixed_tiles ? batch * split_units(s, max_tiles) : 2 * s.workers;
}

// The sequence that a unit of the line belongs to: the last that begins at or before it, and is not empty.
EK_RULE int64_t split_find(const int64_t* first, int64_t batch, int64_t unit) {
  int64_t low = 0, high = batch;  // first[low] <= unit < first[high]
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    if (first[middle] <= unit)
      low = middle;
    else
      high = middle;
  }
  return low;
}

namespace attention_detail {
EK_RULE AttentionPiece piece(const AttentionSplit& s, int64_t sequence, int64_t head, int64_t tiles, int64_t per_head,
                             int64_t at, int64_t worker, int64_t unit, int64_t left) {
  const int32_t b = static_cast<int32_t>(sequence), h = static_cast<int32_t>(head);
  if (s.fixed_tiles) {
    const int64_t begin = at * s.fixed_tiles, end = begin + s.fixed_tiles < tiles ? begin + s.fixed_tiles : tiles;
    return {b, h, static_cast<int32_t>(begin), static_cast<int32_t>(end), 1, per_head == 1 ? -1 : unit};
  }
  const int32_t begin = static_cast<int32_t>(at), rest = static_cast<int32_t>(per_head - at);
  const int32_t units = rest < left ? rest : static_cast<int32_t>(left);
  const bool starts = at == 0, ends = units == rest;
  return {b, h, begin, begin + units, units, starts && ends ? -1 : 2 * worker + (starts ? 1 : 0)};
}
}  // namespace attention_detail

// The piece that begins at `unit`, for a worker whose stretch is [worker * share, end).
// tiles: of the sequence that split_find gave.
EK_RULE AttentionPiece split_piece(const AttentionSplit& s, const int64_t* first, int64_t sequence, int64_t tiles,
                                   int64_t worker, int64_t unit, int64_t end) {
  const int64_t per_head = row_quotient(first[sequence + 1] - first[sequence], s.heads);
  const int64_t head = row_quotient(unit - first[sequence], per_head), at = unit - first[sequence] - head * per_head;
  return attention_detail::piece(s, sequence, head, tiles, per_head, at, worker, unit, end - unit);
}

// The piece after `p` in the same stretch, which begins at `unit` and has `left` units from there on: the same without a
// search. tiles(sequence): 0 where no key is visible.
template <class Tiles>
EK_RULE AttentionPiece split_next(const AttentionSplit& s, const AttentionPiece& p, int64_t worker, int64_t unit,
                                  int64_t left, const Tiles& tiles) {
  int32_t sequence = p.sequence, head = p.head, count = tiles(sequence);
  int64_t at = 0;
  if (p.tile_end < count) {  // a fixed part of an item; else a stretch ends where a piece ends before its item
    at = attention_detail::divide_up(p.tile_end, s.fixed_tiles ? s.fixed_tiles : 1);
  } else if (++head == s.heads) {
    head = 0;
    do count = tiles(++sequence);
    while (count == 0);
  }
  const int64_t per_head = s.fixed_tiles ? attention_detail::divide_up(count, s.fixed_tiles) : count;
  return attention_detail::piece(s, sequence, head, count, per_head, at, worker, unit, left);
}

// Where the parts of an item are.
EK_RULE AttentionStates split_states(const AttentionSplit& s, const int64_t* first, int64_t sequence, int64_t head,
                                     int64_t share) {
  const int64_t per_head = row_quotient(first[sequence + 1] - first[sequence], s.heads);
  const int64_t begin = first[sequence] + head * per_head;
  if (per_head == 0) return {0, 0, 0, 0};
  if (s.fixed_tiles) return {per_head, begin, begin + 1, 1};
  const int64_t worker = row_quotient(begin, share), last = row_quotient(begin + per_head - 1, share);
  return {last - worker + 1, 2 * worker + 1, 2 * (worker + 1), 2};
}

}  // namespace ek
