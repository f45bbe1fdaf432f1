// SPDX-License-Identifier: Apache-2.0
// How the keys of a decode batch are divided over a fixed number of workers (blocks of a grid that a graph has captured):
// pure functions of the lengths, which kernels evaluate on the device and the unit tests on the host.
//   An item is one sequence and kv head; its visible keys are cut into tiles. The units of all items stand in one line,
//   sequence by sequence, head by head, and every worker takes a stretch of it. A stretch meets an item in a piece.
//   Or side by side: every head has a line of its own, all of them alike, and as many workers as the others; worker w is of
//   head w % heads. The heads of a key, which are neighbours in memory, are then read at about the same time.
//   Balanced: a unit is a tile, and all stretches are as long. A worker has at most two pieces that are only a part of
//   their item, its first and its last, so two slots for partial results a worker are enough for any batch.
//   Whole: where all sequences are as long, stretches that are nearly whole items are made whole.
//   Fixed, for batch-invariant calls: a unit is fixed_tiles tiles of an item, cut from its begin. Which keys are summed
//   up together then depends on the item alone. One slot for each unit.
//   A piece that is its whole item has no slot: it is the result. Items of several pieces are merged in their order.
//   Joined, where there are few items and the grid has a cluster of blocks for each, or several: those take equal parts of
//   its tiles, a cluster merges without slots, and only clusters of one item meet in memory. The kernel sees on the device
//   whether lengths are even enough for that; if not, it is balanced.
#pragma once

#include "ops/attention/attention_mask.h"

namespace ek {

// I: int64_t, or int where all units of a launch are fewer than 2^31 and keys fewer than 2^30.
template <class I>
struct AttentionSplitOf {
  I workers;      // blocks of the grid
  I heads;        // kv heads (times blocks of queries, where one does not hold them all)
  I tile;         // keys
  I fixed_tiles;  // 0: balanced
  I least;        // units of a stretch: less is not worth a merge
  I lines = 1;    // heads, where they are side by side; else 1
};
using AttentionSplit = AttentionSplitOf<int64_t>;

// Keys of a unit in fixed mode: enough for a merge to be cheap beside them, few enough for 16 blocks at 8 heads and 1024
// keys. A constant: the width of a page table, which could say how long sequences are, may change with the batch.
constexpr int64_t kFixedKeys = 512;
// Fewer keys than this are not worth a block of their own.
constexpr int64_t kLeastKeys = 128;

// For `workers` blocks; tile: a power of two, at most kFixedKeys.
EK_RULE AttentionSplit attention_split(int64_t workers, int64_t heads, int64_t tile, bool batch_invariant) {
  const int64_t least = kLeastKeys / tile;
  return {workers, heads, tile, batch_invariant ? kFixedKeys / tile : 0, batch_invariant || least < 1 ? 1 : least, 1};
}

// Lines for a batch that no clusters take. Side by side large batches are up to 3 % faster and few sequences, which are cut
// into many parts, 2 to 10 % slower. Not where too many workers would be left over.
EK_RULE int64_t split_lines(const AttentionSplit& s, int64_t batch) {
  const int64_t used = row_quotient(s.workers, s.heads) * s.heads;
  return !s.fixed_tiles && 2 * batch * s.heads > s.workers && 64 * used >= 63 * s.workers ? s.heads : 1;
}

// One part of an item.
template <class I>
struct AttentionPieceOf {
  int32_t sequence, head;
  int32_t tile_begin, tile_end;  // of the item's tiles
  int32_t units;                 // of the line
  I slot;                        // for its partial result; -1: it is the result
};
using AttentionPiece = AttentionPieceOf<int64_t>;

// The parts of an item, for the merge: state i is in slot(i). count 0: no key at all; 1: the result is there already.
template <class I>
struct AttentionStatesOf {
  I count, first, next;
  EK_RULE I slot(I i) const { return i == 0 ? first : next + (i - 1) * step; }
  I step;
};
using AttentionStates = AttentionStatesOf<int64_t>;

namespace attention_detail {
EK_RULE int64_t quotient(int64_t a, int64_t b) { return row_quotient(a, b); }
EK_RULE int quotient(int a, int b) { return static_cast<int>(static_cast<uint32_t>(a) / static_cast<uint32_t>(b)); }
template <class I>
EK_RULE I divide_up(I a, I b) {
  return quotient(a + b - 1, b);
}
}  // namespace attention_detail

// Tiles of the visible keys of a sequence: from a multiple of the tile on, so that tiles are whole pages where they can be.
template <class I>
EK_RULE I split_tiles(const AttentionSplitOf<I>& s, KeyRangeOf<Index<I>> keys) {
  if (keys.end <= keys.begin) return 0;
  return attention_detail::divide_up(keys.end, s.tile) - attention_detail::quotient(keys.begin, s.tile);
}

// Heads of one line.
template <class I>
EK_RULE I split_heads(const AttentionSplitOf<I>& s) {
  return s.lines > 1 ? 1 : s.heads;
}

// Units of a sequence with so many tiles, in a line. The exclusive sums of these, first[0 .. batch], are all that follows
// needs.
template <class I>
EK_RULE I split_units(const AttentionSplitOf<I>& s, Index<I> tiles) {
  return split_heads(s) * (s.fixed_tiles ? attention_detail::divide_up(tiles, s.fixed_tiles) : tiles);
}

// Workers of one line.
template <class I>
EK_RULE I split_workers(const AttentionSplitOf<I>& s) {
  return s.lines > 1 ? attention_detail::quotient(s.workers, s.lines) : s.workers;
}

// Units of each worker's stretch, but of the last.
template <class I>
EK_RULE I split_share(const AttentionSplitOf<I>& s, Index<I> total) {
  const I share = attention_detail::divide_up(total, split_workers(s));
  return share > s.least ? share : s.least;
}

// The same in whole items, so that no states go through memory, where all sequences are as long and stretches become longer
// by a sixteenth at most. share: split_share; longest: units of the longest sequence, of all heads of its line.
template <class I>
EK_RULE I split_whole(const AttentionSplitOf<I>& s, Index<I> share, Index<I> total, Index<I> batch, Index<I> longest) {
  const I most = share + share / 16, heads = split_heads(s);
  if (s.fixed_tiles || total == 0 || longest * batch != total || longest > most * heads) return share;
  const I item = attention_detail::quotient(longest, heads);
  const I whole = attention_detail::divide_up(share, item) * item;
  return whole <= most ? whole : share;
}

// Where a worker's stretch begins.
template <class I>
EK_RULE I split_begin(const AttentionSplitOf<I>& s, Index<I> share, Index<I> worker) {
  return share * (s.lines > 1 ? attention_detail::quotient(worker, s.lines) : worker);
}

// Whether each item is left to `blocks` of its own: none may get much more than its share of the line, or that would take
// longer than states take through memory. share: of a worker; longest: units of the longest sequence, of all its heads.
template <class I>
EK_RULE bool split_joins(const AttentionSplitOf<I>& s, Index<I> share, Index<I> blocks, Index<I> longest) {
  return longest <= (share + share / 4 + s.least) * blocks * s.heads;
}

// Clusters of so many blocks that an item with `tiles` can keep busy.
template <class I>
EK_RULE I split_teams(const AttentionSplitOf<I>& s, Index<I> blocks, Index<I> tiles) {
  const I full = attention_detail::quotient(tiles, blocks * s.least);
  return full > 1 ? full : 1;
}

// For every item: clusters, and blocks of each, a power of two. 1 block: no clusters.
struct AttentionClusters {
  int64_t count, blocks;
};

// What a GPU holds of a kernel. most: blocks of the largest cluster; 1: it has none. box: the fewest keys of a page that the copy
// engine brings at a time; pages of fewer are copied key by key, by so many loading warps of a block. short_keys: of which it
// takes two blocks to keep an SM's share of the memory busy.
struct AttentionRoom {
  int64_t processors, blocks_each, most;
  int64_t box = 8, loaders = 2;
  bool short_keys = false;

  // Clusters that surely run at once: a second wave would double the time. None crosses the parts of the chip, of which
  // those of more than two blocks leave some idle: on the H200 there were 30 of four and 15 of eight at a block an SM, 62 and
  // 30 at two.
  EK_RULE int64_t at_once(int64_t blocks) const {
    const int64_t all = processors * blocks_each;
    return (blocks > 2 ? all * 10 / 11 : all) / blocks;
  }
};

// For a batch whose sequences have at most so many tiles, in pages of so many keys: about as many blocks as the balanced split
// would cut an item into, in one cluster where that is enough, else in several; at most s.workers for all items. No clusters
// where items fill the grid, or where one warp has to load key by key: then it takes all blocks to load fast enough.
EK_RULE AttentionClusters split_clusters(const AttentionSplit& s, const AttentionRoom& room, int64_t batch,
                                         int64_t max_tiles, int64_t page) {
  const int64_t items = batch * s.heads, total = items * max_tiles;
  if (items < 1 || s.fixed_tiles || (page < room.box && room.loaders < 2)) return {1, 1};
  const int64_t share = split_share(s, total), most = s.workers / items;
  const auto fits = [&](int64_t n) { return n <= room.most && n <= most && items <= room.at_once(n); };
  int64_t blocks = 1;
  while (blocks * share < max_tiles && fits(2 * blocks)) blocks *= 2;
  // One cluster an item on nearly all SMs; or on about half of them, for so few tiles that it costs less than to meet in
  // memory: fewer of several boxes each, or of keys that come one by one. A block that has an SM for itself streams as two do.
  const bool by_key = page < room.box;
  const int64_t all = blocks * items, few = by_key ? 512 / s.tile : page < s.tile ? 8 : 12;
  const bool half = 9 * all >= 4 * s.workers && (room.blocks_each < 2 || max_tiles <= few * blocks);
  const bool enough = all <= room.processors && (8 * all >= 7 * room.processors || half);
  if (blocks > 1 && ((enough && !(by_key && room.short_keys)) || split_joins(s, share, blocks, s.heads * max_tiles)))
    return {1, blocks};
  const auto teams = [&](int64_t n) {
    int64_t count = room.at_once(n) / items;
    if (count > most / n) count = most / n;
    return count < split_teams(s, n, max_tiles) ? count : split_teams(s, n, max_tiles);
  };
  // Several: pairs, which run on all SMs and beside the next kernel's, unless too many would meet in memory. Twelve states
  // are added up at a time; for long items more of them are worth it.
  AttentionClusters best = {1, 1};
  const int64_t pairs = room.most < 2 ? 1 : teams(2);
  if (pairs > 1 && (pairs <= 12 || (pairs <= 16 && max_tiles >= 64 * pairs))) best = {pairs, 2};
  for (int64_t n = room.most; n > 1 && best.blocks == 1; n /= 2)
    if (teams(n) > 1) best = {teams(n), n};
  return split_joins(s, share, best.count * best.blocks, s.heads * max_tiles) ? best : AttentionClusters{1, 1};
}

// Slots that any batch with sequences of at most max_tiles needs.
EK_RULE int64_t split_slots(const AttentionSplit& s, int64_t batch, int64_t max_tiles) {
  return s.fixed_tiles ? batch * split_units(s, max_tiles) : 2 * s.workers;
}

// The sequence that a unit of the line belongs to: the last that begins at or before it, and is not empty.
template <class I>
EK_RULE I split_find(const I* first, Index<I> batch, Index<I> unit) {
  I low = 0, high = batch;  // first[low] <= unit < first[high]
  while (high - low > 1) {
    const I middle = (low + high) / 2;
    if (first[middle] <= unit)
      low = middle;
    else
      high = middle;
  }
  return low;
}

namespace attention_detail {
template <class I>
EK_RULE AttentionPieceOf<I> piece(const AttentionSplitOf<I>& s, Index<I> sequence, Index<I> head, Index<I> tiles,
                                  Index<I> per_head, Index<I> at, Index<I> worker, Index<I> unit, Index<I> left) {
  const int32_t b = static_cast<int32_t>(sequence), h = static_cast<int32_t>(head);
  if (s.fixed_tiles) {
    const I begin = at * s.fixed_tiles, end = begin + s.fixed_tiles < tiles ? begin + s.fixed_tiles : tiles;
    return {b, h, static_cast<int32_t>(begin), static_cast<int32_t>(end), 1, per_head == 1 ? -1 : unit};
  }
  const int32_t begin = static_cast<int32_t>(at), rest = static_cast<int32_t>(per_head - at);
  const int32_t units = rest < left ? rest : static_cast<int32_t>(left);
  const bool starts = at == 0, ends = units == rest;
  return {b, h, begin, begin + units, units, starts && ends ? -1 : 2 * worker + (starts ? 1 : 0)};
}
}  // namespace attention_detail

// The piece that begins at `unit`, for a worker whose stretch ends at `end`.
// tiles: of the sequence that split_find gave.
template <class I>
EK_RULE AttentionPieceOf<I> split_piece(const AttentionSplitOf<I>& s, const Index<I>* first, Index<I> sequence,
                                        Index<I> tiles, Index<I> worker, Index<I> unit, Index<I> end) {
  const I per_head = attention_detail::quotient(first[sequence + 1] - first[sequence], split_heads(s));
  const I before = s.lines > 1 ? 0 : attention_detail::quotient(unit - first[sequence], per_head);  // heads of the line
  const I head = s.lines > 1 ? worker - attention_detail::quotient(worker, s.lines) * s.lines : before;
  const I at = unit - first[sequence] - before * per_head;
  return attention_detail::piece(s, sequence, head, tiles, per_head, at, worker, unit, end - unit);
}

// The piece of block `rank` of those that share an item; where it has fewer tiles, the last ones have none (units 0). No slot.
// each: tiles / blocks.
template <class I>
EK_RULE AttentionPieceOf<I> split_joined(Index<I> blocks, Index<I> sequence, Index<I> head, Index<I> rank, I tiles,
                                         Index<I> each) {
  const I more = tiles - each * blocks;
  const I begin = rank * each + (rank < more ? rank : more), units = each + (rank < more ? 1 : 0);
  return {static_cast<int32_t>(sequence),      static_cast<int32_t>(head),  static_cast<int32_t>(begin),
          static_cast<int32_t>(begin + units), static_cast<int32_t>(units), -1};
}

// The piece after `p` in the same stretch, which begins at `unit` and has `left` units from there on: the same without a
// search. tiles(sequence): 0 where no key is visible.
template <class I, class Tiles>
EK_RULE AttentionPieceOf<I> split_next(const AttentionSplitOf<I>& s, const AttentionPieceOf<I>& p, Index<I> worker,
                                       Index<I> unit, Index<I> left, const Tiles& tiles) {
  int32_t sequence = p.sequence, head = p.head;
  I count = tiles(sequence), at = 0;
  if (p.tile_end < count) {  // a fixed part of an item; else a stretch ends where a piece ends before its item
    at = attention_detail::divide_up<I>(p.tile_end, s.fixed_tiles ? s.fixed_tiles : 1);
  } else if (s.lines > 1 || ++head == s.heads) {
    if (s.lines == 1) head = 0;
    do count = tiles(++sequence);
    while (count == 0);
  }
  const I per_head = s.fixed_tiles ? attention_detail::divide_up(count, s.fixed_tiles) : count;
  return attention_detail::piece(s, sequence, head, count, per_head, at, worker, unit, left);
}

// Where the parts of an item are.
template <class I>
EK_RULE AttentionStatesOf<I> split_states(const AttentionSplitOf<I>& s, const Index<I>* first, Index<I> sequence,
                                          Index<I> head, Index<I> share) {
  const I per_head = attention_detail::quotient(first[sequence + 1] - first[sequence], split_heads(s));
  const I begin = first[sequence] + (s.lines > 1 ? 0 : head * per_head);
  if (per_head == 0) return {0, 0, 0, 0};
  if (s.fixed_tiles) return {per_head, begin, begin + 1, 1};
  const I stretch = attention_detail::quotient(begin, share);
  const I last = attention_detail::quotient(begin + per_head - 1, share);
  const I worker = stretch * s.lines + (s.lines > 1 ? head : 0);
  return {last - stretch + 1, 2 * worker + 1, 2 * (worker + s.lines), 2 * s.lines};
}

}  // namespace ek
