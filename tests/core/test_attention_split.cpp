// SPDX-License-Identifier: Apache-2.0
// The division of a decode batch: every tile of every item exactly once, stretches of equal length, slots that no two
// pieces share and that the merge finds again, with heads in one line and side by side; whole items where sequences are even;
// in fixed mode, pieces that depend on their own sequence alone; clusters where they pay; what a launch has of workspace and
// counters. And the mask rule that all of it stands on.
#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "check.h"

struct float2;  // of CUDA, whose headers a build without it lacks; parameters have pointers to it
#include "ops/attention/attention_decode_sm90.h"

using namespace ek;

namespace {

using Pieces = std::vector<AttentionPiece>;

std::vector<int64_t> sums(const AttentionSplit& s, const std::vector<int64_t>& tiles) {
  std::vector<int64_t> first(1, 0);
  for (int64_t t : tiles) first.push_back(first.back() + split_units(s, t));
  return first;
}

template <class A, class B>
bool same(const A& a, const B& b) {
  return std::tie(a.sequence, a.head, a.tile_begin, a.tile_end, a.units) ==
             std::tie(b.sequence, b.head, b.tile_begin, b.tile_end, b.units) &&
         int64_t{a.slot} == int64_t{b.slot};
}

// The same in 32 bits, as attention_decode_sm90 counts.
AttentionSplitOf<int> narrow(const AttentionSplit& s) {
  return {static_cast<int>(s.workers),     static_cast<int>(s.heads), static_cast<int>(s.tile),
          static_cast<int>(s.fixed_tiles), static_cast<int>(s.least), static_cast<int>(s.lines)};
}

// Units of all stretches but the last, as attention_decode_sm90 takes them; in 32 bits the same.
int64_t whole_share(const AttentionSplit& s, const std::vector<int64_t>& tiles) {
  const int64_t batch = static_cast<int64_t>(tiles.size()), total = sums(s, tiles).back();
  int64_t longest = 0;
  for (int64_t n : tiles) longest = std::max(longest, split_units(s, n));
  const int64_t even = split_share(s, total), share = split_whole(s, even, total, batch, longest);
  if (batch * longest < 1 << 30)
    CHECK_EQ(split_whole(narrow(s), static_cast<int>(even), static_cast<int>(total), static_cast<int>(batch),
                         static_cast<int>(longest)),
             static_cast<int>(share));
  return share;
}

// What a kernel does: every worker goes through its stretch, from piece to piece without a search.
std::vector<Pieces> walk(const AttentionSplit& s, const std::vector<int64_t>& tiles, int64_t share) {
  const std::vector<int64_t> first = sums(s, tiles);
  const int64_t batch = static_cast<int64_t>(tiles.size()), total = first.back();
  std::vector<Pieces> all(s.workers);
  const bool fits = total < 1 << 30;
  const std::vector<int> first32(first.begin(), first.end());
  for (int64_t w = 0; w < s.workers; ++w) {
    const int64_t begin = split_begin(s, share, w), end = std::min(begin + share, total);
    for (int64_t unit = begin; unit < end;) {
      const int64_t b = split_find(first.data(), batch, unit);
      const AttentionPiece piece = split_piece(s, first.data(), b, tiles[b], w, unit, end);
      if (!all[w].empty()) {
        const auto count = [&](int32_t i) { return static_cast<int32_t>(tiles[i]); };
        CHECK(same(split_next(s, all[w].back(), w, unit, end - unit, count), piece));
      }
      if (fits) {
        const int b32 = split_find(first32.data(), static_cast<int>(batch), static_cast<int>(unit));
        CHECK(b32 == b && split_share(narrow(s), static_cast<int>(total)) == split_share(s, total));
        CHECK_EQ(split_begin(narrow(s), static_cast<int>(share), static_cast<int>(w)), static_cast<int>(begin));
        CHECK(same(split_piece(narrow(s), first32.data(), b32, static_cast<int>(tiles[b]), static_cast<int>(w),
                               static_cast<int>(unit), static_cast<int>(end)),
                   piece));
      }
      all[w].push_back(piece);
      unit += all[w].back().units;
    }
  }
  return all;
}

void check_share(const AttentionSplit& s, const std::vector<int64_t>& tiles, int64_t share) {
  const std::vector<int64_t> first = sums(s, tiles);
  const int64_t batch = static_cast<int64_t>(tiles.size()), total = first.back();
  const int64_t most = *std::max_element(tiles.begin(), tiles.end());
  std::set<int64_t> slots;
  std::map<std::tuple<int64_t, int64_t>, Pieces> items;
  int64_t heaviest = 0;
  for (const Pieces& mine : walk(s, tiles, share)) {
    int64_t work = 0, partial = 0;
    for (const AttentionPiece& p : mine) {
      CHECK(p.tile_begin < p.tile_end && p.tile_end <= tiles[p.sequence] && p.head >= 0 && p.head < s.heads);
      work += p.tile_end - p.tile_begin;
      partial += p.slot >= 0;
      if (p.slot >= 0) CHECK(slots.insert(p.slot).second && p.slot < split_slots(s, batch, most));
      items[{p.sequence, p.head}].push_back(p);
    }
    heaviest = std::max(heaviest, work);
    if (!s.fixed_tiles) CHECK(partial <= 2);
  }
  // Balance: no worker has more than its share, which is the mean rounded up, or the least that is worth it, and at most a
  // sixteenth more where that makes items whole.
  const int64_t unit = s.fixed_tiles ? s.fixed_tiles : 1, workers = s.workers / s.lines;
  const int64_t even = std::max((total + workers - 1) / workers, s.least);
  CHECK(heaviest <= unit * share && share >= even && 16 * share <= 17 * even);
  if (share != even) CHECK(slots.empty());
  // Every item in one run from its first tile to its last, in the order in which the merge takes its states.
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t h = 0; h < s.heads; ++h) {
      const Pieces& parts = items[{b, h}];
      const AttentionStates states = split_states(s, first.data(), b, h, share);
      CHECK_EQ(states.count, static_cast<int64_t>(parts.size()));
      if (total < 1 << 30) {
        const std::vector<int> first32(first.begin(), first.end());
        const AttentionStatesOf<int> other =
            split_states(narrow(s), first32.data(), static_cast<int>(b), static_cast<int>(h), static_cast<int>(share));
        CHECK(other.count == states.count && other.first == states.first && other.next == states.next);
      }
      int64_t at = 0;
      for (size_t i = 0; i < parts.size(); ++i) {
        CHECK_EQ(parts[i].tile_begin, at);
        at = parts[i].tile_end;
        if (parts.size() > 1)
          CHECK_EQ(parts[i].slot, states.slot(static_cast<int64_t>(i)));
        else
          CHECK_EQ(parts[i].slot, -1);
      }
      CHECK_EQ(at, tiles[b]);
    }
}

// The split, and where heads can be side by side that too; each as it is, and with whole items.
void check_split(AttentionSplit s, const std::vector<int64_t>& lengths) {
  std::vector<int64_t> tiles;
  for (int64_t n : lengths) tiles.push_back(split_tiles(s, {0, n}));
  for (int64_t lines : {int64_t{1}, s.heads}) {
    s.lines = lines;
    if (s.workers < lines || (s.fixed_tiles && lines > 1)) continue;
    const int64_t share = split_share(s, sums(s, tiles).back()), whole = whole_share(s, tiles);
    check_share(s, tiles, share);
    if (whole != share) check_share(s, tiles, whole);
  }
}

// Whole items: as many as make no stretch much longer, and only where all sequences are as long.
void wholes() {
  const auto share = [](int64_t batch, int64_t heads, int64_t tiles, int64_t lines) {
    AttentionSplit s = attention_split(264, heads, 64, false);
    s.lines = lines;
    return whole_share(s, std::vector<int64_t>(batch, tiles));
  };
  for (int64_t lines : {1, 8}) {
    CHECK_EQ(share(32, 8, 64, lines), 64);   // 256 of 264 workers with an item each
    CHECK_EQ(share(64, 8, 32, lines), 64);   // two each
    CHECK_EQ(share(128, 8, 16, lines), 64);  // four
    CHECK_EQ(share(34, 8, 64, lines), 66);   // 272 items: whole ones would take twice as long
    CHECK_EQ(share(24, 8, 64, lines), 47);   // 192: half as long again
    CHECK_EQ(share(0, 8, 64, lines), 2);
    CHECK_EQ(share(9, 8, 0, lines), 2);
  }
  std::vector<int64_t> tiles(32, 64);
  tiles[7] = 63;
  CHECK_EQ(whole_share(attention_split(264, 8, 64, false), tiles), 63);
  CHECK_EQ(whole_share(attention_split(264, 8, 64, true), std::vector<int64_t>(32, 64)), 8);  // units of eight tiles

  // Side by side: large batches, where heads divide the workers, or nearly.
  const auto lines = [](int64_t workers, int64_t heads, int64_t batch, bool fixed = false) {
    return split_lines(attention_split(workers, heads, 64, fixed), batch);
  };
  CHECK_EQ(lines(264, 8, 32), 8);
  CHECK_EQ(lines(264, 8, 256), 8);
  CHECK_EQ(lines(264, 5, 64), 5);   // 260 of 264
  CHECK_EQ(lines(264, 16, 64), 1);  // 256
  CHECK_EQ(lines(264, 8, 16), 1);   // a sequence is cut into many parts
  CHECK_EQ(lines(132, 8, 1), 1);
  CHECK_EQ(lines(4, 16, 64), 1);  // more heads than workers
  CHECK_EQ(lines(264, 1, 512), 1);
  CHECK_EQ(lines(264, 8, 32, true), 1);
}

void divisions() {
  uint32_t random = 1;
  const auto next = [&](int64_t n) {
    return static_cast<int64_t>((random = random * 1664525u + 1013904223u) >> 8) % n;
  };
  for (int64_t workers : {1, 2, 7, 132, 264, 1000})
    for (int64_t heads : {1, 4, 8, 33})
      for (int64_t fixed : {0, 1, 8})
        for (int64_t least : {1, 4}) {
          const AttentionSplit s = {workers, heads, 64, fixed, least};
          check_split(s, {0});
          check_split(s, {1});
          check_split(s, {0, 0, 0});
          check_split(s, {0, 64, 0, 65, 0, 0});
          check_split(s, {131072});
          check_split(s, {1, 131072, 1, 0, 63, 5000});
          std::vector<int64_t> lengths(1 + next(130));
          for (int64_t& n : lengths) n = next(5) ? next(3000) : 0;
          check_split(s, lengths);
          const int64_t even = 1 + next(3000);  // all of them, then all but one
          for (int64_t& n : lengths) n = even;
          check_split(s, lengths);
          lengths[next(static_cast<int64_t>(lengths.size()))] = next(3000);
          check_split(s, lengths);
        }
  for (int64_t tile : {32, 64, 128, 256})
    for (bool fixed : {false, true}) {
      const AttentionSplit s = attention_split(132, 8, tile, fixed);
      CHECK(s.least >= 1 && (fixed ? s.fixed_tiles * tile == kFixedKeys : s.fixed_tiles == 0));
      check_split(s, {1, 1024, 8192, 131072, 0});
    }
  // Lengths at the end of 32 bits.
  check_split({132, 8, 128, 0, 2}, {0x7fffffff, 1, 0x7fffffff});
  check_split({132, 2, 128, 4096, 1}, {0x7fffffff, 1, 0x7fffffff});
}

// In fixed mode a sequence's pieces are the same in every batch.
void invariance() {
  const AttentionSplit s = {132, 4, 64, 8, 1};
  const auto parts_of = [&](const std::vector<int64_t>& tiles, int64_t sequence) {
    std::vector<std::tuple<int64_t, int64_t, int64_t>> found;
    for (const Pieces& mine : walk(s, tiles, split_share(s, sums(s, tiles).back())))
      for (const AttentionPiece& p : mine)
        if (p.sequence == sequence) found.push_back({p.head, p.tile_begin, p.tile_end});
    return found;
  };
  for (int64_t tiles : {1, 8, 9, 100, 2048}) {
    const auto alone = parts_of({tiles}, 0);
    for (int64_t batch : {2, 17, 128}) {
      std::vector<int64_t> others(batch, 31);
      others[batch / 2] = tiles;
      CHECK(parts_of(others, batch / 2) == alone);
    }
  }
}

// The blocks that share an item take all of its tiles in order, in parts that differ by one tile at most and come first.
void check_joined(int64_t blocks, int64_t tiles) {
  int64_t at = 0, least = tiles, most = 0, parts = 0;
  for (int64_t rank = 0; rank < blocks; ++rank) {
    const AttentionPiece p = split_joined(blocks, 3, 5, rank, tiles, tiles / blocks);
    CHECK(p.sequence == 3 && p.head == 5 && p.units == p.tile_end - p.tile_begin && p.slot == -1);
    CHECK(same(p, split_joined(static_cast<int>(blocks), 3, 5, static_cast<int>(rank), static_cast<int>(tiles),
                               static_cast<int>(tiles / blocks))));
    if (p.units > 0) CHECK(p.tile_begin == at && parts == rank);
    at += p.units, parts += p.units > 0;
    least = std::min<int64_t>(least, p.units), most = std::max<int64_t>(most, p.units);
  }
  CHECK_EQ(at, tiles);
  CHECK(parts == std::min(tiles, blocks) && most - least <= 1);
}

void clusters() {
  for (int64_t blocks : {2, 4, 8, 16, 24, 128})
    for (int64_t tiles : {0, 1, 2, 3, 7, 8, 9, 15, 16, 17, 100, 16777216}) check_joined(blocks, tiles);

  // The H200, at 1, 2 or 4 blocks an SM
  const AttentionRoom one = {132, 1, 8}, two = {132, 2, 8}, four = {132, 4, 8};
  CHECK(one.at_once(2) == 66 && one.at_once(4) == 30 && one.at_once(8) == 15);
  CHECK(two.at_once(2) == 132 && two.at_once(4) == 60 && two.at_once(8) == 30 && four.at_once(8) == 60);
  CHECK_EQ((AttentionRoom{4, 1, 8}.at_once(8)), 0);
  const auto check = [](const AttentionRoom& room, int64_t workers, int64_t batch, int64_t heads, int64_t keys,
                        int64_t count, int64_t blocks, int64_t page = 64) {
    const AttentionSplit s = attention_split(workers, heads, 64, false);
    const AttentionClusters c = split_clusters(s, room, batch, (keys + 63) / 64, page);
    CHECK_EQ(c.count, count);
    CHECK_EQ(c.blocks, blocks);
  };
  check(two, 132, 1, 8, 1024, 1, 8);     // 128 keys a block are the least
  check(two, 132, 1, 8, 4096, 1, 8);     // half of the SMs, in place of several clusters an item
  check(two, 132, 1, 8, 8192, 8, 2);     // but not for so many tiles
  check(two, 132, 2, 8, 8192, 1, 8);     // 128 blocks
  check(two, 132, 1, 4, 131072, 16, 2);  // one cluster would leave most SMs idle
  check(two, 132, 1, 4, 16384, 4, 8);    // sixteen pairs take longer to meet than they gain
  check(two, 132, 1, 1, 131072, 16, 8);  // 128 blocks
  check(one, 132, 1, 2, 8192, 7, 8);     // 15 of eight blocks are there at once
  check(one, 132, 16, 2, 2048, 1, 2);    // of four blocks, 32 would not be
  check(one, 132, 4, 2, 8192, 1, 8);     // half of the SMs, with an SM for every block
  check(two, 264, 8, 8, 2048, 1, 2);     // nor 64, at two blocks an SM
  check(two, 264, 4, 8, 1024, 1, 4);     // nor 32 of eight
  check(two, 264, 8, 9, 2048, 1, 1);     // 144 blocks of 264
  check(four, 396, 1, 32, 740, 1, 8);
  check(two, 264, 32, 8, 4096, 1, 1);  // a block for every item
  check(two, 132, 1, 8, 128, 1, 1);    // nothing to cut
  check(two, 132, 1, 8, 0, 1, 1);
  check(two, 132, 0, 8, 1024, 1, 1);
  check({132, 2, 1}, 132, 1, 8, 1024, 1, 1);  // a kernel without clusters
  // Several boxes or rows to a tile: a block on every SM from fewer keys on
  check(two, 264, 8, 8, 2048, 1, 2, 16);
  check(two, 132, 1, 8, 8192, 8, 2, 16);
  check(two, 132, 1, 8, 5120, 8, 2, 16);
  check(two, 132, 1, 4, 131072, 16, 2, 16);
  check(two, 132, 1, 8, 1024, 1, 8, 16);
  check(two, 264, 8, 8, 2048, 1, 2, 1);
  check(two, 132, 1, 8, 8192, 8, 2, 1);
  // Key by key, and keys are short: two blocks an SM
  const AttentionRoom narrow_keys = {132, 2, 8, 8, 2, true};
  check(narrow_keys, 264, 4, 8, 2048, 1, 4);
  check(narrow_keys, 264, 4, 8, 2048, 4, 2, 1);
  check(narrow_keys, 264, 1, 8, 8192, 3, 8, 1);
  // Key by key, by one warp: no clusters
  check({132, 2, 8, 8, 1}, 264, 8, 8, 2048, 1, 1, 1);
  CHECK_EQ(split_clusters(attention_split(132, 8, 64, true), two, 1, 16, 64).blocks, 1);

  for (int64_t processors : {1, 3, 66, 132})
    for (int64_t each : {1, 2, 3, 4})
      for (int64_t batch : {1, 2, 5, 33, 256})
        for (int64_t heads : {1, 2, 8, 40})
          for (int64_t keys : {1, 100, 129, 1000, 5000, 100000, 0x3fffffff}) {
            const AttentionRoom room = {processors, each, 8};
            const AttentionSplit s = attention_split(processors * each, heads, 64, false);
            const int64_t tiles = (keys + 63) / 64, items = batch * heads, total = items * tiles;
            const AttentionClusters c = split_clusters(s, room, batch, tiles, 64);
            const int64_t blocks = c.count * c.blocks;
            CHECK(c.blocks > 1 || c.count == 1);
            if (c.blocks == 1) continue;
            CHECK(blocks * items <= s.workers && c.count * items <= room.at_once(c.blocks));
            CHECK(blocks < 2 * tiles && c.count <= split_teams(s, c.blocks, tiles));
            // With so many workers the device joins a batch of full length, and in 32 bits the same
            AttentionSplit used = s;
            used.workers = blocks * items;
            const int64_t share = split_share(used, total);
            CHECK(split_joins(used, share, blocks, heads * tiles));
            if (total < 1 << 30)
              CHECK(split_joins(narrow(used), static_cast<int>(share), static_cast<int>(blocks),
                                static_cast<int>(heads * tiles)));
          }
  // Lengths that differ by a quarter are joined, one long sequence among short ones is not.
  const AttentionSplit s = attention_split(256, 8, 64, false);
  const auto joins = [&](int64_t total, int64_t longest) { return split_joins(s, split_share(s, total), 4, longest); };
  CHECK(joins(8 * 32 * 8, 32 * 8));
  CHECK(joins((32 + 7 * 28) * 8, 32 * 8));
  CHECK(!joins((32 + 7 * 8) * 8, 32 * 8));
  CHECK(joins((16 + 7) * 8, 16 * 8));  // no block has twice the least
}

// What launches of attention_decode_sm90 are given, on an H200: room for the states of all clusters, as many counters as there
// are, and the next kernel let in early only where its clusters find room beside these.
void launches() {
  Device device;
  device.processors = 132, device.smem_per_block = 227 * 1024;
  const auto sizes_of = [&](int64_t batch, int64_t heads, int64_t kv_heads, int64_t q_len, int64_t dim, int64_t keys,
                            int64_t page, ek_dtype cache, bool invariant) {
    AttentionCall c = {};
    c.T = EK_DTYPE_BF16, c.K = cache;
    c.batch = batch, c.heads = heads, c.kv_heads = kv_heads, c.head_dim = c.v_dim = dim, c.tokens = batch * q_len;
    static const int32_t table = 0;
    c.seqs.page_table = &table;
    c.seqs.q_len = q_len, c.seqs.page_size = page, c.seqs.max_kv = keys;
    c.mask.window_left = c.mask.window_right = -1;
    const DecodeSizes s = decode_sizes(c, decode_shape_sm90(c, device), invariant);
    const int64_t vectors = s.slot_rows * dim / 4, items = c.batch * s.split.heads;
    CHECK(s.bytes(c) <= decode_workspace(c, decode_shape_sm90(c, device)));
    if (s.clusters.blocks > 1) {
      // DecodeJoin: sums of every cluster, maxima and totals behind them, a counter for each slice of an item
      const int64_t clusters = items * s.clusters.count;
      CHECK(s.split.workers == clusters * s.clusters.blocks && !invariant);
      CHECK(s.clusters.count == 1 || clusters * vectors * 24 <= static_cast<int64_t>(s.bytes(c)));
      CHECK(items * s.clusters.blocks <= kCounters);
    } else {
      CHECK(!s.late && s.split.workers <= kCounters);
    }
    // split_share as the kernel finds it
    const Divider workers(split_workers(s.split));
    for (int64_t total :
         {int64_t{0}, int64_t{1}, s.split.workers - 1, s.split.workers, s.split.workers + 1, (int64_t{1} << 30) - 1}) {
      const int64_t even = workers.divide(static_cast<uint32_t>(total) + workers.divisor - 1);
      CHECK_EQ(std::max(even, s.split.least), split_share(s.split, total));
    }
    return s;
  };
  // Also without sequences or heads: what would run can be asked all the same.
  for (int64_t batch : {0, 1, 2, 5, 64, 300})
    for (auto [heads, kv_heads] : {std::pair{1, 1}, {32, 8}, {24, 8}, {32, 4}, {40, 1}, {64, 64}, {0, 1}, {0, 8}})
      for (int64_t q_len : {1, 5})
        for (int64_t dim : {64, 128, 256, 512})
          for (int64_t keys : {1, 700, 5000, 70000})
            for (int64_t page : {1, 16, 64})
              for (ek_dtype cache : {EK_DTYPE_BF16, EK_DTYPE_E4M3})
                for (bool invariant : {false, true})
                  sizes_of(batch, heads, kv_heads, q_len, dim, keys, page, cache, invariant);
  const auto late = [&](int64_t batch, int64_t kv_heads, int64_t dim, int64_t keys) {
    return sizes_of(batch, 4 * kv_heads, kv_heads, 1, dim, keys, 64, EK_DTYPE_BF16, false).late;
  };
  CHECK(!late(1, 8, 128, 4096));  // 8 clusters of eight, and 8 beside them: 30 have room at two blocks an SM
  CHECK(late(2, 8, 128, 4096));   // 16
  CHECK(late(4, 2, 512, 8192));   // 8, where 15 have room at a block an SM
  CHECK(!late(1, 8, 128, 8192));  // pairs
}

// visible() against the three conditions of the schema, key by key.
void masks() {
  for (int64_t q_len : {1, 3, 8})
    for (int64_t kv_len : {0, 1, 2, 3, 9})
      for (bool causal : {false, true})
        for (int32_t left : {-1, 0, 2, 100})
          for (int32_t right : {-1, 0, 1, 100})
            for (int64_t prefix : {0, 2, 5, 50}) {
              const Mask mask = {causal, left, right};
              if (prefix && !causal) continue;
              KeyRange any = {INT64_MAX, 0};
              for (int64_t i = 0; i < q_len; ++i) {
                const KeyRange keys = visible(mask, i, q_len, kv_len, prefix);
                const int64_t p = i + kv_len - q_len;
                for (int64_t j = 0; j < kv_len; ++j) {
                  const bool sees =
                      (!causal || j <= p || j < prefix) && (left < 0 || j >= p - left) && (right < 0 || j <= p + right);
                  CHECK_EQ(j >= keys.begin && j < keys.end, sees);
                  if (sees) any = {std::min(any.begin, j), std::max(any.end, j + 1)};
                }
                CHECK(keys.begin <= keys.end && keys.begin >= 0);
                if (keys.begin < keys.end) CHECK(keys.end <= kv_len);
              }
              const KeyRange all = visible(mask, 0, q_len - 1, q_len, kv_len, prefix);
              if (any.begin < any.end) CHECK(all.begin <= any.begin && all.end >= any.end && all.end <= kv_len);
              const KeyRange inner = visible_to_all(mask, 0, q_len - 1, q_len, kv_len, prefix);
              for (int64_t i = 0; i < q_len; ++i)
                for (int64_t j = inner.begin; j < inner.end; ++j) {
                  const KeyRange keys = visible(mask, i, q_len, kv_len, prefix);
                  CHECK(j >= keys.begin && j < keys.end);
                }
            }
}

}  // namespace

int main() {
  divisions();
  wholes();
  invariance();
  clusters();
  launches();
  masks();
  return check::report("attention_split");
}
