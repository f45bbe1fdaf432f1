// SPDX-License-Identifier: Apache-2.0
// attention with mma.sync: y = softmax(s) v, in f32 but for the products' 16-bit inputs. A block takes kM rows of one
// sequence and kv head, a row being a query of one head of the group: few queries of many heads fill it as well. Tiles of
// kN keys and values come by turns into a ring in shared memory; scores, weights and sums stay in registers.
//   Tiles begin at multiples of kN, and those that a query does not see change nothing: a row's bits depend on its own
//   keys alone, whatever block it is in.
#pragma once

#include "cuda/math.cuh"
#include "cuda/mma.cuh"
#include "cuda/pdl.cuh"
#include "cuda/reduce.cuh"
#include "cuda/rows.cuh"
#include "cuda/vec.cuh"
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

// What a block works on. It stays in shared memory: the sums need all registers.
struct Sm80Block {
  int64_t q_begin;             // the sequence's first token
  const uint16_t *k, *v;       // its first key of this head, or in pages that of page 0
  const int32_t* table;        // its line of the page table, or null
  int row0, row_end;           // the block's first row, and the end of the sequence's
  int kv_head, part, v_left;   // v_left: values from the part's first on
  int begin, end;              // keys that any row sees
  int tile_begin, tile_end;    // their tiles
  int whole_begin, whole_end;  // tiles of which every row sees all, and whose scores are plain products
  int shift;                   // kv_len - q_len
};
static_assert(sizeof(Sm80Block) <= 128, "");

template <class Plan>
__device__ __forceinline__ bool sm80_block(const AttentionCall& c, const Sm80Grid& grid, int group, Sm80Block* block,
                                           uint32_t* ranges) {
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
  block->k = static_cast<const uint16_t*>(c.k.data) + page * c.k.page + slot * c.k.slot + kv_head * c.k.head;
  block->v =
      static_cast<const uint16_t*>(c.v.data) + page * c.v.page + slot * c.v.slot + kv_head * c.v.head + part * Plan::kV;
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

// f(row, token, head) for the rows of the block that exist, by one thread each.
template <class Plan, class F>
__device__ __forceinline__ void sm80_each_row(const Sm80Block& block, int group, F&& f) {
#pragma unroll 1
  for (int row = threadIdx.x; row < min(Plan::kM, block.row_end - block.row0); row += Plan::kThreads) {
    const int query = (block.row0 + row) / group;
    f(row, block.q_begin + query, block.kv_head * group + block.row0 + row - query * group);
  }
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

// The sums of a warp's rows: values, and what the softmax needs. A thread has rows lane / 4 + 8 i of the warp.
template <class Plan>
struct Sm80Sums {
  static constexpr int kRows = Plan::kTiles * 2;
  float y[Plan::kTiles][Plan::kV / 8][4] = {};
  float most[kRows], total[kRows];  // total: of this thread's columns

  __device__ __forceinline__ Sm80Sums() {
#pragma unroll
    for (int r = 0; r < kRows; ++r) most[r] = -INFINITY, total[r] = 0.f;
  }
};

template <class Plan>
__global__ void __launch_bounds__(Plan::kThreads, Plan::kBlocks)
    attention_sm80(const __grid_constant__ AttentionCall c, const __grid_constant__ Rows<3> rows,
                   const __grid_constant__ Sm80Grid grid) {
  if constexpr (kHasAsyncCopy) {
    using T = typename Plan::T;
    constexpr int kTiles = Plan::kTiles, kN = Plan::kN, kRows = kTiles * 2;
    constexpr float kLog2e = 1.44269504f, kLn2 = 0.693147181f;
    extern __shared__ __align__(128) char smem[];
    const uint32_t q_smem = smem_address(smem), ring = q_smem + Plan::kQBytes;
    uint32_t* ranges = reinterpret_cast<uint32_t*>(smem + Plan::kQBytes + Plan::kSlots * Plan::kSlotBytes);
    Sm80Block& block = *reinterpret_cast<Sm80Block*>(ranges + Plan::kM);
    pdl_wait();
    pdl_launch();
    const int group = static_cast<int>(c.heads) / static_cast<int>(c.kv_heads);
    if (!sm80_block<Plan>(c, grid, group, &block, ranges)) return;
    __syncthreads();
    const int lane = threadIdx.x % 32, warp_row = threadIdx.x / 32 * Plan::kWarpM;

    // Loads: q with the first keys, then keys and values by turns, kSlots - 1 ahead
    const auto load = [&](bool values, uint32_t slot, int tile) {
      if (tile < block.tile_end) {
        if (values)
          sm80_load<Plan::kV, kN, Plan::kThreads>(slot, block, tile, block.v, c.v, block.v_left, grid.page_size);
        else
          sm80_load<Plan::kD, kN, Plan::kThreads>(slot, block, tile, block.k, c.k, static_cast<int>(c.head_dim),
                                                  grid.page_size);
      }
      copy_commit();  // an empty group too: wait counts groups
    };
    // Where the rows of q are stands in the last slot until it is filled.
    int64_t* places = reinterpret_cast<int64_t*>(smem + Plan::kQBytes + (Plan::kSlots - 1) * Plan::kSlotBytes);
    sm80_each_row<Plan>(block, group, [&](int row, int64_t token, int head) {
      places[row] = rows.offset(0, token) + head * c.q.stride[c.lead];
    });
    __syncthreads();
    using ShareQ = Sm80Share<Plan::kD, Plan::kThreads>;
#pragma unroll 4
    for (int i = 0; i < Plan::kM / ShareQ::kHop; ++i) {
      const int row = ShareQ::row() + i * ShareQ::kHop;
      const bool exists = block.row0 + row < block.row_end;
      ShareQ::copy(q_smem, i, static_cast<const uint16_t*>(c.q.data) + (exists ? places[row] : 0),
                   exists ? static_cast<int>(c.head_dim) : 0);
    }
#pragma unroll
    for (int i = 0; i < Plan::kSlots - 1; ++i) load(i % 2, ring + i * Plan::kSlotBytes, block.tile_begin + i / 2);

    // Where this lane's rows of fragments are: q and keys along head_dim, values across
    const uint32_t q_lane = q_smem + sm80_place<Plan::kD>(warp_row + lane % 16, lane / 16);
    const uint32_t k_lane = sm80_place<Plan::kD>(lane / 16 * 8 + lane % 8, lane / 8 % 2);
    const uint32_t v_lane = sm80_place<Plan::kV>(lane % 16, lane / 16);
    uint32_t q_held[Plan::kHoldQ ? Plan::kD / 16 : 1][kTiles][4];

    // exp2(s * factor - most * factor) is a weight; scores with a cap or ALiBi have the factor in them.
    const bool plain = c.softcap == 0.f && !c.alibi;
    const float factor = plain ? c.scale * kLog2e : 1.f;
    // A maximum is raised only when weights would pass 2^8: until then the sums need no new scale.
    const float slack = 8.f / factor;
    Sm80Sums<Plan> sums;
    uint32_t slot = ring;
    const auto next_slot = [&] {
      slot = slot == ring + (Plan::kSlots - 1) * Plan::kSlotBytes ? ring : slot + Plan::kSlotBytes;
    };
    const auto last_slot = [&] {
      return (slot == ring ? ring + Plan::kSlots * Plan::kSlotBytes : slot) - Plan::kSlotBytes;
    };

#pragma unroll 1
    for (int tile = block.tile_begin; tile < block.tile_end; ++tile) {
      // Scores: the keys are there, and all have left the slot that is filled next.
      copy_wait<Plan::kSlots - 2>();
      __syncthreads();
      load((Plan::kSlots - 1) % 2, last_slot(), tile + (Plan::kSlots - 1) / 2);
      float s[kTiles][kN / 8][4] = {};
      if constexpr (Plan::kHoldQ) {
        if (tile == block.tile_begin)
#pragma unroll
          for (int d = 0; d < Plan::kD / 16; ++d)
#pragma unroll
            for (int t = 0; t < kTiles; ++t)
              ldmatrix<false>(q_held[d][t], sm80_step(q_lane, d) + t * 16 * Plan::kD * 2);
      }
      {
        constexpr int kWide = kN / 16, kSteps = Plan::kD / 16 * kWide;
        uint32_t q[kTiles][4], b[2][4];
        const auto load_q = [&](int d) {
          if constexpr (!Plan::kHoldQ)
#pragma unroll
            for (int t = 0; t < kTiles; ++t) ldmatrix<false>(q[t], sm80_step(q_lane, d) + t * 16 * Plan::kD * 2);
        };
        const auto load_k = [&](int i) {
          ldmatrix<false>(b[i % 2], sm80_step(slot + k_lane, i / kWide) + i % kWide * 16 * Plan::kD * 2);
        };
        load_k(0);
#pragma unroll
        for (int i = 0; i < kSteps; ++i) {
          const int d = i / kWide, n = i % kWide * 2;
          if (i + 1 < kSteps) load_k(i + 1);
          if (n == 0) load_q(d);
#pragma unroll
          for (int t = 0; t < kTiles; ++t) {
            const auto& a = *[&] {
              if constexpr (Plan::kHoldQ)
                return &q_held[d][t];
              else
                return &q[t];
            }();
            mma<T>(s[t][n], a, b[i % 2][0], b[i % 2][1]);
            mma<T>(s[t][n + 1], a, b[i % 2][2], b[i % 2][3]);
          }
        }
      }
      next_slot();

      // What is more than a product: softcap, ALiBi, and keys that a row does not see
      if (tile < block.whole_begin || tile >= block.whole_end) {
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          const int row = warp_row + r * 8 + lane / 4, column = tile * kN + lane % 4 * 2;
          const auto each = [&](auto&& f) {
#pragma unroll
            for (int n = 0; n < kN / 8; ++n)
#pragma unroll
              for (int e = 0; e < 2; ++e) f(s[r / 2][n][r % 2 * 2 + e], n * 8 + e);
          };
          if (!plain) {
            if (c.softcap > 0.f)
              each([&](float& x, int) { x = CudaMathFast::tanh(x * (c.scale / c.softcap)) * (c.softcap * kLog2e); });
            else
              each([&](float& x, int) { x *= c.scale * kLog2e; });
            if (c.alibi) {
              const int query = (block.row0 + row) / group, head = block.kv_head * group + (block.row0 + row) % group;
              const float slope = block.row0 + row < block.row_end ? c.alibi[head] * kLog2e : 0.f;
              const int away = query + block.shift - column;
              each([&](float& x, int at) { x -= slope * fabsf(static_cast<float>(away - at)); });
            }
          }
          const uint32_t range = ranges[row], begin = block.begin + (range & 0xffff), end = block.end - (range >> 16);
          const uint32_t from = column - begin, width = end - begin;
          each([&](float& x, int at) { x = from + at < width ? x : -INFINITY; });
        }
      }

      // Weights. First whether a maximum must be raised, and with it the scale of the sums
      float tile_most[kRows];
      bool raise = false;
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        tile_most[r] = s[r / 2][0][r % 2 * 2];
#pragma unroll
        for (int n = 0; n < kN / 8; ++n)
          tile_most[r] = fmaxf(tile_most[r], fmaxf(s[r / 2][n][r % 2 * 2], s[r / 2][n][r % 2 * 2 + 1]));
        raise |= tile_most[r] > sums.most[r] + slack;
      }
      if (__any_sync(0xffffffffu, raise)) {
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          const float most = warp_reduce(tile_most[r], [](float a, float b) { return fmaxf(a, b); }, 4);
          const bool more = most > sums.most[r] + slack;
          const float keep = more ? CudaMathFast::exp2((sums.most[r] - most) * factor) : 1.f;
          sums.most[r] = more ? most : sums.most[r];
          sums.total[r] *= keep;
#pragma unroll
          for (int n = 0; n < Plan::kV / 8; ++n) {
            sums.y[r / 2][n][r % 2 * 2] *= keep;
            sums.y[r / 2][n][r % 2 * 2 + 1] *= keep;
          }
        }
      }
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        // A row that has seen nothing yet: inf - inf would make NaN
        const float base = sums.most[r] == -INFINITY ? 0.f : sums.most[r] * factor;
#pragma unroll
        for (int n = 0; n < kN / 8; ++n)
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            float& x = s[r / 2][n][r % 2 * 2 + e];
            x = CudaMathFast::exp2(fmaf(x, factor, -base));
            sums.total[r] += x;
          }
      }
      uint32_t p[kTiles][kN / 16][4];  // the left operand of the next product: accumulators lie as it wants them
#pragma unroll
      for (int t = 0; t < kTiles; ++t)
#pragma unroll
        for (int j = 0; j < kN / 16; ++j)
#pragma unroll
          for (int w = 0; w < 4; ++w) {
            const float pair[2] = {s[t][2 * j + w / 2][w % 2 * 2], s[t][2 * j + w / 2][w % 2 * 2 + 1]};
            const Vec<T, 2> packed = pack<T>(pair);
            p[t][j][w] = *reinterpret_cast<const uint32_t*>(&packed);
          }

      // Values
      copy_wait<Plan::kSlots - 2>();
      __syncthreads();
      load(Plan::kSlots % 2, last_slot(), tile + Plan::kSlots / 2);
      {
        constexpr int kWide = Plan::kV / 16, kSteps = kN / 16 * kWide;
        uint32_t b[2][4];
        const auto load_v = [&](int i) {
          ldmatrix<true>(b[i % 2], sm80_step(slot + v_lane, i % kWide) + i / kWide * 16 * Plan::kV * 2);
        };
        load_v(0);
#pragma unroll
        for (int i = 0; i < kSteps; ++i) {
          const int j = i / kWide, n = i % kWide * 2;
          if (i + 1 < kSteps) load_v(i + 1);
#pragma unroll
          for (int t = 0; t < kTiles; ++t) {
            mma<T>(sums.y[t][n], p[t][j], b[i % 2][0], b[i % 2][1]);
            mma<T>(sums.y[t][n + 1], p[t][j], b[i % 2][2], b[i % 2][3]);
          }
        }
      }
      next_slot();
    }
    copy_wait<0>();
    __syncthreads();

    // y by way of shared memory, in place of q; the largest scores and totals of all rows in place of the ring
    float2* states = reinterpret_cast<float2*>(smem + Plan::kQBytes);
    int64_t* places_y = reinterpret_cast<int64_t*>(states + Plan::kM);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int row = warp_row + r * 8 + lane / 4;
      const int head = block.kv_head * group + (block.row0 + row) % group;
      const float sink = c.sinks ? c.sinks[head] * kLog2e : -INFINITY;
      const float seen = sums.most[r] == -INFINITY ? 0.f : sums.most[r] * factor;
      const float most = sums.most[r] * factor > sink ? sums.most[r] * factor : sink;
      const float base = most == -INFINITY ? 0.f : most, scale = CudaMathFast::exp2(seen - base);
      const float sum = warp_reduce(sums.total[r], Sum(), 4) * scale + CudaMathFast::exp2(sink - base);
      const float inverse = sum == 0.f ? 0.f : scale / sum;
      if (lane % 4 == 0) states[row] = make_float2(base, sum);
#pragma unroll
      for (int n = 0; n < Plan::kV / 8; ++n) {
        const float pair[2] = {sums.y[r / 2][n][r % 2 * 2] * inverse, sums.y[r / 2][n][r % 2 * 2 + 1] * inverse};
        store_vec(reinterpret_cast<T*>(smem + sm80_place<Plan::kV>(row, n)) + lane % 4 * 2, pack<T>(pair));
      }
    }
    __syncthreads();
    sm80_each_row<Plan>(block, group, [&](int row, int64_t token, int head) {
      places_y[row] = rows.offset(1, token) + head * c.y.stride[c.lead];
      const float2 state = states[row];
      if (c.lse.data && block.part == 0)
        static_cast<float*>(c.lse.data)[rows.offset(2, token) + head * c.lse.stride[c.lead]] =
            state.y == 0.f ? -INFINITY : (state.x + log2f(state.y)) * kLn2;
    });
    __syncthreads();
    using Share = Sm80Share<Plan::kV, Plan::kThreads>;
#pragma unroll 2
    for (int i = 0; i < Plan::kM / Share::kHop; ++i) {
      const int row = Share::row() + i * Share::kHop, column = block.part * Plan::kV + Share::column();
      if (block.row0 + row >= block.row_end) break;
      T* to = static_cast<T*>(c.y.data) + places_y[row] + column;
#pragma unroll
      for (int span = 0; span < Share::kSpans; ++span)
        if (column + span * 64 < c.v_dim)
          store_vec(to + span * 64,
                    load_vec<T, 8>(reinterpret_cast<const T*>(smem + Share::place() + Share::step(i, span))));
    }
  }
}

}  // namespace ek
