// SPDX-License-Identifier: Apache-2.0
// Decode with tensor cores, for attention_decode_sm80 and attention_decode_sm90, which differ in how tiles reach shared
// memory. The visible keys of all sequences and kv heads stand in one line of tiles, and every block takes a stretch of it,
// found on the device from kv_len: attention_split.h. Groups of warps (mostly one warp each) have whole tiles or a part of
// every tile, and go their own way until an item ends and the groups' states are added up, and after them those of the item's
// blocks: attention_decode_merge.cuh.
#pragma once

#include "cuda/pdl.cuh"
#include "ops/attention/attention_decode_merge.cuh"

namespace ek {

// Page numbers and queries on their way to L2 while the kernel before this one ends and lengths become units. Warps for whose
// lengths others wait have no part in it: the first one, and those from `threads` on.
__device__ __forceinline__ void decode_prefetch(const DecodeParams& p, unsigned threads) {
  if (threadIdx.x < 32) return;
  const int at = blockIdx.x * (threads - 32) + threadIdx.x - 32;
  if (p.table_lines > 0 && at < p.table_lines * p.c.batch) {
    const int b = p.c.batch == 1 ? 0 : at / p.table_lines;
    prefetch_l2(p.c.seqs.page_table + b * p.c.seqs.table_stride + (at - b * p.table_lines) * 32);
  }
  if (at < p.q_lines) prefetch_l2(static_cast<const char*>(p.c.q.data) + at * 128);
}

// The split with what is known to the compiler: tiles, shifts in place of divisions; one line, where there are never more.
template <class Plan>
__device__ __forceinline__ AttentionSplitOf<typename Plan::I> decode_split(const DecodeParams& p) {
  using I = typename Plan::I;
  return {static_cast<I>(p.split.workers),
          static_cast<I>(p.split.heads),
          Plan::kKeys,
          static_cast<I>(p.split.fixed_tiles),
          static_cast<I>(p.split.least),
          Plan::kLoadWarps > 0 ? static_cast<I>(p.split.lines) : 1};
}

// The keys that any query of a sequence with so many sees. A prefix changes nothing of it: the last query sees all that follow the
// first one's window.
template <class I>
__device__ __forceinline__ KeyRangeOf<I> decode_keys(const DecodeParams& p, Index<I> kv_len) {
  const I q_len = static_cast<I>(p.c.seqs.q_len);
  return visible<I>(p.c.mask, 0, q_len - 1, q_len, kv_len, 0);
}

// Units of every stretch. total, longest: of all sequences.
template <class Plan>
__device__ __forceinline__ typename Plan::I decode_share(const DecodeParams& p,
                                                         const AttentionSplitOf<typename Plan::I>& split,
                                                         typename Plan::I total, typename Plan::I longest) {
  using I = typename Plan::I;
  if constexpr (Plan::kLoadWarps == 0) return split_share(split, total);
  // split_share without a division
  const I share = static_cast<I>(p.workers.divide(static_cast<uint32_t>(total) + p.workers.divisor - 1));
  return split_whole(split, max(share, split.least), total, static_cast<I>(p.c.batch), longest);
}

// Lengths to units, for all sequences of the launch: every block finds the same.
template <class Plan>
__device__ __forceinline__ void decode_schedule(const DecodeParams& p, const DecodeSmem<Plan>& s) {
  using I = typename Plan::I;
  const AttentionSplitOf<I> split = decode_split<Plan>(p);
  const Sequences& seqs = p.c.seqs;
  const int lane = threadIdx.x % 32, batch = static_cast<int>(p.c.batch);
  for (int b = threadIdx.x; b < batch; b += blockDim.x) {
    const KeyRangeOf<I> keys = decode_keys<I>(p, static_cast<I>(seqs.kv_count(b)));
    s.sequences[b] = {static_cast<int>(keys.begin), static_cast<int>(keys.end)};
    s.first[b + 1] = split_units(split, split_tiles(split, keys));
  }
  if (batch > 32) __syncthreads();  // else the first warp has them all
  if (batch == 1) {
    if (threadIdx.x == 0) {
      s.first[0] = 0;
      s.notes->longest = static_cast<int>(s.first[1]), s.notes->empty = s.first[1] == 0;
    }
  } else if (threadIdx.x < 32) {
    I before = 0, longest = 0;
    bool empty = false;
    for (int b = lane; b < (batch + 31) / 32 * 32; b += 32) {
      I sum = b < batch ? s.first[b + 1] : 0;
      longest = max(longest, sum), empty |= b < batch && sum == 0;
#pragma unroll
      for (int d = 1; d < 32; d *= 2) {
        const I other = __shfl_up_sync(0xffffffffu, sum, d);
        if (lane >= d) sum += other;
      }
      sum += before;
      if (b < batch) s.first[b + 1] = sum;
      before = __shfl_sync(0xffffffffu, sum, 31);
    }
    empty = __any_sync(0xffffffffu, empty);
    if (lane == 0) s.first[0] = 0, s.notes->empty = empty;
    if constexpr (Plan::kLoadWarps > 0) {
      longest = __reduce_max_sync(0xffffffffu, longest);
      if (lane == 0) s.notes->longest = longest;
    }
  }
  if constexpr (Plan::kAlone)
    warps_sync(kDecodeAll, static_cast<int>(blockDim.x));  // where warps may arrive that do not wait
  else
    __syncthreads();
}

// A block's stretch of the units.
template <class Plan>
__device__ __forceinline__ DecodeBlock<typename Plan::I> decode_stretch(const DecodeParams& p,
                                                                        const DecodeSmem<Plan>& s) {
  using I = typename Plan::I;
  const AttentionSplitOf<I> split = decode_split<Plan>(p);
  const int batch = static_cast<int>(p.c.batch);
  const I total = s.first[batch];
  const I share = decode_share<Plan>(p, split, total, Plan::kLoadWarps > 0 ? I{s.notes->longest} : 0);
  const I begin = split_begin(split, share, static_cast<I>(blockIdx.x));
  return {split, batch, s.first, s.sequences, share, begin, begin + share < total ? begin + share : total};
}

// The rows of an item, a warp for each: q to shared memory, and what masks and scores need. 8-bit caches are multiplied in
// f16: each row of q is then brought to a largest value near 2^7 by a power of two, which loses nothing of bf16's range or
// digits. Rows that do not exist stay as they are: what they hold meets no other row.
template <class Plan>
class DecodeQuery {
 public:
  __device__ __forceinline__ DecodeQuery(const DecodeParams& p, const DecodeSmem<Plan>& s) : p_(p), s_(s) {}

  // Asks for the first of the warp's rows.
  __device__ __forceinline__ void fetch(const AttentionPieceOf<typename Plan::I>& piece) {
    item_ = decode_item(p_, piece.head);
    sequence_ = piece.sequence;
    load(threadIdx.x / 32);
  }
  __device__ __forceinline__ void store() {
    const int warps = decode_threads<Plan>() / 32;
    for (int r = threadIdx.x / 32; r < item_.rows; r += warps) {
      if (r >= warps) load(r);
      store(r);
    }
  }

 private:
  using M = typename Plan::M;
  static constexpr int kPairs = Plan::kDim / 64;

  __device__ __forceinline__ void load(int r) {
    const AttentionCall& c = p_.c;
    const int lane = threadIdx.x % 32;
    if (r >= item_.rows) return;
    at_ = decode_place(p_, item_, r);
    const uint32_t* q = reinterpret_cast<const uint32_t*>(
        static_cast<const char*>(c.q.data) +
        (sequence_ * c.q.stride[0] + at_.query * c.q.stride[1] + at_.head * c.q.stride[2]) * 2);
#pragma unroll
    for (int i = 0; i < kPairs; ++i) pairs_[i] = (lane + 32 * i) * 2 < c.head_dim ? q[lane + 32 * i] : 0u;
  }

  __device__ __forceinline__ void store(int r) {
    const AttentionCall& c = p_.c;
    const int lane = threadIdx.x % 32;
    float factor = p_.factor;
    if constexpr (Plan::kNarrow) {
      float values[kPairs][2], most = 0.f;
#pragma unroll
      for (int i = 0; i < kPairs; ++i) {
        const float2 pair = __half22float2(*reinterpret_cast<const __half2*>(&pairs_[i]));
        const bool f16 = c.T == EK_DTYPE_F16;
        values[i][0] = f16 ? pair.x : __uint_as_float(pairs_[i] << 16);
        values[i][1] = f16 ? pair.y : __uint_as_float(pairs_[i] & 0xffff0000u);
#pragma unroll
        for (int j = 0; j < 2; ++j)
          if (fabsf(values[i][j]) < INFINITY) most = fmaxf(most, fabsf(values[i][j]));
      }
      most = warp_reduce(most, MaxNan());
      // 2^(7 - exponent) and its inverse, both of them normal numbers
      const int biased = static_cast<int>(__float_as_uint(most) >> 23);
      const int exponent = (biased < 14 ? 14 : biased > 247 ? 247 : biased) - 127;
      const float up = __uint_as_float(static_cast<uint32_t>(127 + 7 - exponent) << 23);
      factor *= __uint_as_float(static_cast<uint32_t>(127 - 7 + exponent) << 23);
      if (c.k.scale && !p_.k_tokens) factor *= c.k.scale[item_.kv_head * c.k.scale_head];
#pragma unroll
      for (int i = 0; i < kPairs; ++i) pairs_[i] = pack_pair<M>(values[i][0] * up, values[i][1] * up);
    }
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      int pair = lane + 32 * i;
      if constexpr (Plan::kNarrow) pair = (pair & ~7) | (pair >> 1 & 3) | (pair & 1) << 2;
      *reinterpret_cast<uint32_t*>(s_.q + decode_chunk<Plan::kDim / 8, Plan::kRows>(r, pair / 4) + pair % 4 * 4) =
          pairs_[i];
    }
    if (lane == 0) {
      const DecodeSequence seq = s_.sequences[sequence_];
      const int q_len = static_cast<int>(c.seqs.q_len);
      DecodeRow row = {factor, 0.f, 0, seq.begin, seq.end};
      if (q_len > 1 || c.alibi) {
        const int64_t kv_len = c.seqs.kv_count(sequence_);
        const KeyRange keys = visible(c.mask, at_.query, q_len, kv_len, c.seqs.prefix(sequence_));
        row.begin = static_cast<int>(keys.begin), row.end = static_cast<int>(keys.end);
        row.slope = c.alibi ? c.alibi[at_.head] * kLog2e : 0.f;
        row.position = at_.query + static_cast<int>(kv_len) - q_len;
      }
      s_.rows[r] = row;
    }
  }

  const DecodeParams& p_;
  const DecodeSmem<Plan>& s_;
  DecodeItem item_;
  DecodePlace at_;
  int sequence_ = 0;
  uint32_t pairs_[kPairs];
};

// The groups' states become one: the item's result, or a state of it for its other blocks. next: rows of the next item, on the
// way.
template <class Plan>
__device__ __forceinline__ void decode_finish(const DecodeParams& p, const DecodeSmem<Plan>& s,
                                              const DecodeBlock<typename Plan::I>& block,
                                              const AttentionPieceOf<typename Plan::I>& piece, DecodeTile<Plan>& tile,
                                              int group, int groups, DecodeQuery<Plan>& next, bool last) {
  using I = typename Plan::I;
  constexpr int kRows = Plan::kMergeRows, kStride = Plan::kMergeStride, kGroups = Plan::kMostGroups;
  constexpr int kAtOnce = Plan::kSlice * Plan::kRows > 256 * 8 ? 2 : kGroups < 4 ? kGroups : 4;  // more would spill
  const AttentionCall& c = p.c;
  const DecodeItem item = decode_item(p, piece.head);
  const int columns = static_cast<int>(c.v_dim) / 4;
  float v_scale = 1.f;
  if constexpr (Plan::kNarrow)
    if (c.v.scale && !p.v_tokens) v_scale = c.v.scale[item.kv_head * c.v.scale_head];
  const DecodeJoin<Plan> join(p, s);
  const bool joined = join.joined();
  if (joined) {  // this warp has done with the ring
    __syncwarp();
    cluster_arrive_relaxed();
  }
  tile.store_bases(s.bases + group * Plan::kRows);
  // What this block has of a row's columns, in lines of which groups have `rows` each.
  const auto add = [&](const float* lines, int rows, int line, int row, int column) {
    DecodeSum sum;
#pragma unroll
    for (int g0 = 0; g0 < kGroups; g0 += kAtOnce) {
      float2 base[kAtOnce];
      float4 x[kAtOnce];
#pragma unroll
      for (int g = 0; g < kAtOnce; ++g) {
        const int there = g0 + g < groups ? g0 + g : 0;
        base[g] = s.bases[there * Plan::kRows + row];
        x[g] = *reinterpret_cast<const float4*>(lines + (there * rows + line) * kStride + column);
        if (g0 + g >= groups) base[g] = make_float2(-INFINITY, 0.f), x[g] = make_float4(0.f, 0.f, 0.f, 0.f);
      }
      sum.add(base, x);
    }
    sum.y.x *= v_scale, sum.y.y *= v_scale, sum.y.z *= v_scale, sum.y.w *= v_scale;
    return sum;
  };
  if (joined) {
    decode_sync<Plan>();  // all warps of this block have done with the ring
    tile.store_sums(join.lines() + group * Plan::kRows * kStride, 0, Plan::kRows);
    decode_sync<Plan>();
    cluster_wait();  // and those of all blocks
    // Several vectors at a time: the compiler moves no load ahead of a store to another block.
    constexpr int kThreads = Plan::kWarps * 32, kAhead = Plan::kRows * Plan::kDim / 4 / kThreads >= 4 ? 4 : 1;
    const int work = item.rows * columns, shift = s.notes->shift;
    for (int from = threadIdx.x; from < work; from += kAhead * kThreads) {
      DecodeSum sum[kAhead];
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const int at = min(from + i * kThreads, work - 1), row = decode_line(p, at);
        sum[i] = add(join.lines(), Plan::kRows, row, row, (at - row * columns) * 4);
      }
#pragma unroll
      for (int i = 0; i < kAhead; ++i)
        if (from + i * kThreads < work) join.send(from + i * kThreads, columns, shift, sum[i]);
    }
    return join.finish(piece.sequence, item, columns);
  }
  for (int from = 0; from < item.rows; from += kRows) {
    if (from > 0 || Plan::kSlicedScores) decode_sync<Plan>();  // scores may still be read there
    tile.store_sums(s.sums + group * kRows * kStride, from, kRows);
    decode_sync<Plan>();
    for (int at = threadIdx.x; at < kRows * columns; at += decode_threads<Plan>()) {
      const int line = decode_line(p, at), column = (at - line * columns) * 4, row = from + line;
      if (row >= item.rows) break;
      const DecodeSum sum = add(s.sums, kRows, line, row, column);
      if (piece.slot < 0) {
        decode_write(p, piece.sequence, decode_place(p, item, row), column, sum.y, sum.most, sum.total);
      } else {
        const int64_t slot = int64_t{piece.slot} * p.slot_rows + row;
        *reinterpret_cast<float4*>(p.states + slot * c.v_dim + column) = sum.y;
        if (column == 0) p.bases[slot] = make_float2(sum.most, sum.total);
      }
    }
  }
  if (!last) next.store();
  decode_sync<Plan>();  // sums and bases are written again, q is there
  if (piece.slot < 0) return;

  // The block that ends last merges.
  const AttentionStatesOf<I> states = split_states(block.split, block.first, piece.sequence, piece.head, block.share);
  if (threadIdx.x == 0) {
    const I index = block.split.fixed_tiles ? piece.sequence * block.split.heads + piece.head : states.first / 2;
    const bool mine = atomic_add_ordered(&p.counters[index], 1u) + 1 == static_cast<uint32_t>(states.count);
    if (mine) p.counters[index] = 0;
    s.notes->last = mine;
  }
  decode_sync<Plan>();
  if (s.notes->last) decode_merge<Plan>(p, s, piece, states, groups);
}

// Sequences without a visible key: no stretch has them. The threads that multiply come here.
template <class Plan>
__device__ __forceinline__ void decode_empty(const DecodeParams& p, const DecodeSmem<Plan>& s) {
  if (!s.notes->empty) return;
  const int columns = static_cast<int>(p.c.v_dim / 4), work = static_cast<int>(p.c.heads * p.c.seqs.q_len) * columns;
  for (int b = blockIdx.x; b < p.c.batch; b += gridDim.x) {
    if (s.first[b + 1] != s.first[b]) continue;
    for (int i = threadIdx.x; i < work; i += decode_threads<Plan>()) {
      const int row = decode_line(p, i), query = row / static_cast<int>(p.c.heads);
      decode_write(p, b, {query, row - query * static_cast<int>(p.c.heads)}, (i - row * columns) * 4,
                   make_float4(0.f, 0.f, 0.f, 0.f), -INFINITY, 0.f);
    }
  }
}

// The items of a block's stretch. `ring` gives the tiles: wait() for the next one of this group's, release() after it, pass()
// where a round has none for it: all groups go through as many barriers, by which racecheck keeps their accesses apart.
template <class Plan, class Ring>
__device__ __forceinline__ void decode_items(const DecodeParams& p, const DecodeSmem<Plan>& s,
                                             const DecodeBlock<typename Plan::I>& block,
                                             AttentionPieceOf<typename Plan::I> piece, DecodeQuery<Plan>& query,
                                             Ring& ring, int group, int groups, int slice) {
  using I = typename Plan::I;
  // A group's tiles of a piece and its keys of a tile: one of several, all of it; or all of them, some of it.
  const int first_tile = Plan::kLoadWarps ? 0 : group, tile_step = Plan::kLoadWarps ? 1 : groups;
  const int first_key = Plan::kLoadWarps ? group * Plan::kOwn : 0;
  for (I unit = block.begin; unit < block.end;) {
    const DecodeSequence seq = s.sequences[piece.sequence];
    const int64_t q_len = p.c.seqs.q_len;
    KeyRange all = {seq.begin, seq.end};
    if (q_len > 1)
      all = visible_to_all(p.c.mask, 0, q_len - 1, q_len, p.c.seqs.kv_count(piece.sequence),
                           p.c.seqs.prefix(piece.sequence));
    const int all_begin = static_cast<int>(all.begin), all_end = static_cast<int>(all.end);
    const int base = seq.begin / Plan::kKeys * Plan::kKeys + first_key;
    DecodeTile<Plan> tile;
    tile.begin(smem_address(s.q), s.rows, first_key, slice, s.sums);
    for (int round = piece.tile_begin; round < piece.tile_end; round += tile_step) {
      const int i = round + first_tile;
      if constexpr (!Plan::kLoadWarps)
        if (i >= piece.tile_end) {  // in the last round
          ring.pass();
          break;
        }
      const DecodeStage stage = ring.wait();
      const int key = base + i * Plan::kKeys;
      // Of a part of a tile there may be nothing to see
      if (!Plan::kLoadWarps || (key < seq.end && key + Plan::kOwn > seq.begin))
        tile.step(p, stage, key, key < all_begin || key + Plan::kOwn > all_end);
      else
        tile.pass();
      ring.release();
    }
    unit += piece.units;
    const AttentionPieceOf<I> done = piece;
    if (unit < block.end) query.fetch(piece = block.next(done, unit));
    decode_finish<Plan>(p, s, block, done, tile, group, groups, query, unit >= block.end);
  }
}

}  // namespace ek
