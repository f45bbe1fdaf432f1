// SPDX-License-Identifier: Apache-2.0
// attention_sm80's tiles, which block has which, and the way of q, keys and values into shared memory.
#pragma once

#include "cuda/mma.cuh"
#include "cuda/rows.cuh"
#include "ops/attention/attention_sm80_config.h"

namespace ek {

// kD, kV: head_dim and values of a block, padded with zeros; kTiles: 16 rows each, of a warp; kSlots: of the ring;
// kBlocks: on an SM.
template <class T_, int kD_, int kV_, int kWarps_, int kTiles_, int kN_, int kSlots_, int kBlocks_>
struct Sm80Plan {
  using T = T_;
  static constexpr int kD = kD_, kV = kV_, kWarps = kWarps_, kTiles = kTiles_, kN = kN_, kSlots = kSlots_;
  static constexpr int kBlocks = kBlocks_, kThreads = kWarps * 32, kWarpM = kTiles * 16, kM = kWarps * kWarpM;
  static constexpr int kQBytes = kM * kD * 2, kSlotBytes = kN * kD * 2;
  static constexpr int kSmem = kQBytes + kSlots * kSlotBytes + kM * 4 + 128;
  // A query's fragments stay in registers where these are not needed for the sums.
  static constexpr bool kHoldQ = kTiles * kD / 16 * 4 <= 32 && kBlocks < 3;
  static_assert(kD % 64 == 0 && kV % 64 == 0 && kV <= kD && kN % 16 == 0 && kSlots >= 2, "");
};

// How the work is divided; the same for all blocks.
struct Sm80Grid {
  uint32_t tiles;    // of a sequence, where all are as long
  uint32_t parts;    // blocks side by side along v_dim
  uint32_t section;  // kv heads whose keys and values stay in L2 while all queries pass over them
  Divider page_size;
};

inline Sm80Grid sm80_grid(const AttentionCall& c, const Sm80Tile& t, const Device& device) {
  const int64_t page_size = c.seqs.page_size < 1 ? 1 : c.seqs.page_size < 0x7fffffff ? c.seqs.page_size : 0x7fffffff;
  return {static_cast<uint32_t>(sm80_query_tiles(c, t)), static_cast<uint32_t>(sm80_parts(c, t)),
          static_cast<uint32_t>(sm80_section(c, device)), Divider(page_size)};
}

struct Sm80Work {
  int64_t sequence;  // batch: none
  Sm80Unit unit;
};

__device__ __forceinline__ Sm80Work sm80_work(const AttentionCall& c, const Sm80Grid& grid, int group, int rows) {
  const uint32_t kv_heads = static_cast<uint32_t>(c.kv_heads), across = kv_heads * grid.parts;
  uint32_t rest = blockIdx.x, tiles = grid.tiles;
  int64_t sequence = 0;
  if (!c.seqs.cu_q) {
    sequence = rest / (tiles * across);
    rest -= static_cast<uint32_t>(sequence) * (tiles * across);
  } else {
    // Blocks of 32 sequences at a time, one for each lane
    const int lane = threadIdx.x % 32;
    for (;; sequence += 32) {
      if (sequence >= c.batch) return {c.batch, {}};
      const bool exists = sequence + lane < c.batch;
      const uint32_t count = exists ? static_cast<uint32_t>(c.seqs.q_count(sequence + lane)) : 0;
      const uint32_t mine = (count * group + rows - 1) / rows * across;
      uint32_t sum = mine;
#pragma unroll
      for (int d = 1; d < 32; d *= 2) {
        const uint32_t before = __shfl_up_sync(0xffffffffu, sum, d);
        sum += lane >= d ? before : 0;
      }
      if (const uint32_t found = __ballot_sync(0xffffffffu, sum > rest)) {
        const int at = __ffs(static_cast<int>(found)) - 1;
        rest -= __shfl_sync(0xffffffffu, sum - mine, at);
        tiles = __shfl_sync(0xffffffffu, mine, at) / across;
        sequence += at;
        break;
      }
      rest -= __shfl_sync(0xffffffffu, sum, 31);
    }
  }
  return {sequence, sm80_unit(rest, tiles, kv_heads, grid.parts, grid.section)};
}

// Rows of kDim elements in 16-byte chunks, whose places are exchanged within 128 bytes so that the eight chunks of an
// ldmatrix fall into all 32 banks. Chunk `c` of the row at place(row, x) is at place(row, x) ^ (c ^ x) * 16 below 8.
template <int kDim>
__device__ __forceinline__ uint32_t sm80_place(int row, int chunk) {
  return (row * (kDim / 8) + (chunk ^ (row & 7))) * 16;
}
// Two chunks on from an even one: 32 * step bytes, exchanged within 128.
__device__ __forceinline__ uint32_t sm80_step(uint32_t at, int step) { return (at ^ (step % 4 * 32)) + step / 4 * 128; }

// What a block works on. It stays in shared memory: the sums need all registers. E: an element of K and V.
template <class E>
struct Sm80BlockOf {
  int64_t q_begin;             // the sequence's first token
  const E *k, *v;              // its first key of this head, or in pages that of page 0
  const int32_t* table;        // its line of the page table, or null
  int row0, row_end;           // the block's first row, and the end of the sequence's
  int kv_head, part, v_left;   // v_left: values from the part's first on
  int begin, end;              // keys that any row sees
  int tile_begin, tile_end;    // their tiles
  int whole_begin, whole_end;  // tiles of which every row sees all, and whose scores are plain products
  int shift;                   // kv_len - q_len
};
using Sm80Block = Sm80BlockOf<uint16_t>;
static_assert(sizeof(Sm80Block) <= 128, "");

template <class Plan, class E>
__device__ __forceinline__ bool sm80_block(const AttentionCall& c, const Sm80Grid& grid, int group,
                                           Sm80BlockOf<E>* block, uint32_t* ranges) {
  const Sm80Work work = sm80_work(c, grid, group, Plan::kM);
  if (work.sequence >= c.batch) return false;
  const int kv_head = static_cast<int>(work.unit.kv_head), part = static_cast<int>(work.unit.part);
  const int64_t b = work.sequence, q_len = c.seqs.q_count(b), kv_len = c.seqs.kv_count(b), prefix = c.seqs.prefix(b);
  const int row0 = static_cast<int>(work.unit.tile) * Plan::kM, row_end = static_cast<int>(q_len) * group;
  const int first = row0 / group, last = (min(row0 + Plan::kM, row_end) - 1) / group;
  const KeyRange keys = visible(c.mask, first, last, q_len, kv_len, prefix);
  const int begin = static_cast<int>(keys.begin), end = static_cast<int>(keys.end);
  // From query to query a range moves by at most one key at either end.
  for (int row = threadIdx.x; row < Plan::kM; row += Plan::kThreads) {
    const KeyRange seen = visible(c.mask, min(row0 + row, row_end - 1) / group, q_len, kv_len, prefix);
    ranges[row] = static_cast<uint32_t>(seen.begin - begin) | static_cast<uint32_t>(end - seen.end) << 16;
  }
  if (threadIdx.x) return true;
  const KeyRange inner = visible_to_all(c.mask, first, last, q_len, kv_len, prefix);
  const bool plain = c.softcap == 0.f && !c.alibi;
  const int64_t page = c.seqs.page_table || c.seqs.cu_kv ? 0 : b, slot = c.seqs.cu_kv ? c.seqs.cu_kv[b] : 0;
  block->q_begin = c.seqs.q_begin(b);
  block->k = static_cast<const E*>(c.k.data) + page * c.k.page + slot * c.k.slot + kv_head * c.k.head;
  block->v = static_cast<const E*>(c.v.data) + page * c.v.page + slot * c.v.slot + kv_head * c.v.head + part * Plan::kV;
  block->table = c.seqs.page_table ? c.seqs.page_table + b * c.seqs.table_stride : nullptr;
  block->row0 = row0, block->row_end = row_end;
  block->kv_head = kv_head, block->part = part, block->v_left = static_cast<int>(c.v_dim) - part * Plan::kV;
  block->begin = begin, block->end = end;
  block->tile_begin = begin / Plan::kN;
  block->tile_end = end > begin ? (end + Plan::kN - 1) / Plan::kN : begin / Plan::kN;
  block->whole_begin = plain ? static_cast<int>((inner.begin + Plan::kN - 1) / Plan::kN) : 0x7fffffff;
  block->whole_end = static_cast<int>(inner.end / Plan::kN);
  block->shift = static_cast<int>(kv_len - q_len);
  return true;
}

// What is more than a product for a row's scores, which each(f) gives to f(score, column from the first on): softcap and ALiBi,
// which leave them in units of log2, and keys that the row does not see. M: whose tanh.
template <class M, class E, class Each>
__device__ __forceinline__ void sm80_look(const AttentionCall& c, const Sm80BlockOf<E>& block, uint32_t range,
                                          int group, int row, int column, Each&& each) {
  if (c.softcap > 0.f)
    each([&](float& x, int) { x = M::tanh(x * (c.scale / c.softcap)) * (c.softcap * kLog2e); });
  else if (c.alibi)
    each([&](float& x, int) { x *= c.scale * kLog2e; });
  if (c.alibi) {
    const int query = (block.row0 + row) / group, head = block.kv_head * group + (block.row0 + row) % group;
    const float slope = c.alibi[head] * kLog2e;
    const int away = query + block.shift - column;
    each([&](float& x, int at) { x -= slope * fabsf(static_cast<float>(away - at)); });
  }
  const uint32_t begin = block.begin + (range & 0xffff), end = block.end - (range >> 16);
  const uint32_t from = column - begin, width = end - begin;
  each([&](float& x, int at) { x = from + at < width ? x : -INFINITY; });
}

// f(row, token, head) for the rows of the block that exist, by one thread each.
template <class Plan, class E, class F>
__device__ __forceinline__ void sm80_each_row(const Sm80BlockOf<E>& block, int group, F&& f) {
#pragma unroll 1
  for (int row = threadIdx.x; row < min(Plan::kM, block.row_end - block.row0); row += Plan::kThreads) {
    const int query = (block.row0 + row) / group;
    f(row, block.q_begin + query, block.kv_head * group + block.row0 + row - query * group);
  }
}

// Where each row of y begins, and its lse, from the rows' states: the base of their weights and the sum of those.
template <class Plan, class E, class Rows>
__device__ __forceinline__ void sm80_finish_rows(const AttentionCall& c, const Sm80BlockOf<E>& block, int group,
                                                 const Rows& rows, const float2* states, int64_t* places) {
  sm80_each_row<Plan>(block, group, [&](int row, int64_t token, int head) {
    places[row] = rows.offset(1, token) + head * c.y.stride[c.lead];
    const float2 state = states[row];
    if (c.lse.data && block.part == 0)
      static_cast<float*>(c.lse.data)[rows.offset(2, token) + head * c.lse.stride[c.lead]] =
          state.y == 0.f ? -INFINITY : (state.x + log2f(state.y)) * kLn2;
  });
}

// A thread's share of a tile: 16 bytes of every 128 of every kHop-th row, always at the same place in them.
template <int kDim, int kThreads>
struct Sm80Share {
  static constexpr int kHop = kThreads / 8, kSpans = kDim / 64;
  static_assert(kHop % 8 == 0, "");
  static __device__ __forceinline__ int row() { return threadIdx.x / 8; }
  static __device__ __forceinline__ int column() { return threadIdx.x % 8 * 8; }
  static __device__ __forceinline__ uint32_t place() { return sm80_place<kDim>(row(), threadIdx.x % 8); }
  static constexpr __device__ uint32_t step(int i, int span) { return i * kHop * kDim * 2 + span * 128; }

  // The i-th row: from memory, of which `dim` elements exist, to shared memory.
  static __device__ __forceinline__ void copy(uint32_t smem, int i, const uint16_t* from, int dim) {
#pragma unroll
    for (int span = 0; span < kSpans; ++span)
      copy_async(smem + place() + step(i, span), from + column() + span * 64, column() + span * 64 < dim ? 16 : 0);
  }
};

// kN rows of K or V, `dim` elements of which exist. Rows that nobody sees become 0: a weight of 0 must not meet a NaN;
// and nothing of theirs is read.
template <int kDim, int kN, int kThreads>
__device__ __forceinline__ void sm80_load(uint32_t smem, const Sm80Block& block, int tile, const uint16_t* from,
                                          const KvCache& x, int dim, const Divider& page_size) {
  using Share = Sm80Share<kDim, kThreads>;
  const int token = tile * kN + Share::row();
  const uint32_t first = token - block.begin, count = block.end - block.begin;
  if (const int32_t* table = block.table) {
#pragma unroll
    for (int i = 0; i < kN / Share::kHop; ++i) {
      const bool seen = first + i * Share::kHop < count;
      int64_t at = 0;
      if (seen) {
        const uint32_t index = page_size.divide(token + i * Share::kHop);
        at = table[index] * x.page + (token + i * Share::kHop - index * page_size.divisor) * x.slot;
      }
      Share::copy(smem, i, from + at, seen ? dim : 0);
    }
  } else {
    from += token * x.slot;
#pragma unroll
    for (int i = 0; i < kN / Share::kHop; ++i, from += Share::kHop * x.slot)
      Share::copy(smem, i, from, first + i * Share::kHop < count ? dim : 0);
  }
}

}  // namespace ek
