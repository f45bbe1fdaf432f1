// SPDX-License-Identifier: Apache-2.0
// What a block of attention_sm90 works on: tiles, parameters, shared memory, the order of the work, and the two producer
// warps: one takes the next piece of work and copies its Q and K, one its V.
#pragma once

#include "cuda/pdl.cuh"
#include "cuda/rows.cuh"
#include "cuda/wgmma.cuh"
#include "ops/attention/attention_call.h"

namespace ek {

// kWgs warpgroups of 64 queries each, blocks of kKeys keys. kDim and kVDim: head_dim and v_dim up to these, in 64s.
template <class T_, int kDim_, int kVDim_, int kKeys_, int kWgs_, bool kTurns_, bool kScores_ = false,
          bool kEarly_ = false>
struct AttentionTile {
  using T = T_;
  static constexpr int kDim = kDim_, kVDim = kVDim_, kKeys = kKeys_, kWgs = kWgs_;
  static constexpr bool kTurns = kTurns_;    // warpgroups take turns with the matrix units
  static constexpr bool kScores = kScores_;  // softcap and ALiBi: a third of the code, which plain scores do without
  static constexpr bool kEarly = kEarly_;    // the next piece's K and Q come while this one's last weights are found
  static constexpr int kQueries = 64 * kWgs, kThreads = 128 * (kWgs + 1);
  static constexpr int kQBytes = kQueries * kDim * 2, kKBytes = kKeys * kDim * 2, kVBytes = kKeys * kVDim * 2;
  // Of K and of V. Two do where copies are large and in order; a third hides the latency of pages all over the memory.
  static constexpr int kStages = kQBytes + 3 * (kKBytes + kVBytes) + 256 <= 232448 ? 3 : 2;
  static constexpr int kSmemBytes = kQBytes + kStages * (kKBytes + kVBytes) + 256;
  // What the producer gives away the warpgroups take: all of the 64 K registers, or nearly so.
  static constexpr int kProducerRegisters = kWgs == 3 ? 32 : 40, kRegisters = kWgs == 3 ? 160 : 232;
  static_assert(kSmemBytes <= 232448, "too much shared memory");
  static_assert(kKeys % 16 == 0, "P is the operand of products of 16 keys");
};

// What a start needs is in one place: each line of parameters that it touches is a wait.
struct AttentionSm90Params {
  CUtensorMap q;                          // [sequence, head, token, dim]; with cu_q all tokens are one sequence
  CUtensorMap k, v;                       // [page, head, slot, dim]
  int32_t batch, heads, kv_heads, group;  // group: heads of a head of K
  int32_t q_blocks;                       // of a sequence, where all have as many
  int32_t section;     // heads of K (dense) or keys (cu_q) whose K and V stay in the L2 cache while their queries pass
  Divider by_section;  // pieces of a section of heads
  Divider by_block;    // and those of a block of queries in it
  Divider by_heads, by_group;
  Mask mask;
  Sequences seqs;
  uint32_t* counters;  // the next piece of work, and blocks that have ended; zero before and after
  int32_t box;         // keys of one copy: of a page, or of the whole block
  int32_t runs;        // copies of a block
  Divider page_runs;   // copies of a page
  float scale_log2;    // from what the softmax takes to powers of 2
  float score_scale;   // for softcap and alibi. With softcap: scale / softcap, else scale * log2(e)
  float softcap_log2;  // 0: off
  const float *sinks, *alibi;
  void* y;
  float* lse;                      // null: not asked for
  int64_t y_seq, y_token, y_head;  // strides; with cu_q y_seq is not used, nor is lse_seq
  int64_t lse_seq, lse_token, lse_head;
  int32_t v_dim;
};

// Queries [first, first + kQueries) of one head of a sequence.
struct AttentionWork {
  int32_t head;                          // -1: no more work
  int32_t sequence;                      // coordinate of q's map and of the strides of y and lse
  int32_t token;                         // of the sequence's first query, from there
  int32_t first, q_len, kv_len, prefix;  // as attention_mask.h has them
  int32_t begin, end;                    // blocks of keys
  int32_t seen_begin, seen_end;          // keys that some query of the sequence sees: V may hold NaN elsewhere
  int32_t page, slot;                    // of the first key; with a page table page is the line of the table
};

template <class Tile>
struct AttentionSmem {
  char *q, *k, *v;  // [dim / 64][rows][64]
  uint64_t *q_full, *q_empty, *k_full, *k_empty, *v_full, *v_empty;
  // [2]; in turn, so that the next one is ready before q is free. They go with q, and each has a barrier for when it has come.
  AttentionWork* work;
  uint64_t* work_full;

  static_assert((4 + 4 * Tile::kStages) * sizeof(uint64_t) + 2 * sizeof(AttentionWork) <= 256, "see kSmemBytes");
  __device__ explicit AttentionSmem(char* raw) : q(raw), k(raw + Tile::kQBytes) {
    v = k + Tile::kStages * Tile::kKBytes;
    q_full = reinterpret_cast<uint64_t*>(v + Tile::kStages * Tile::kVBytes);
    q_empty = q_full + 1;
    k_full = q_empty + 1, k_empty = k_full + Tile::kStages;
    v_full = k_empty + Tile::kStages, v_empty = v_full + Tile::kStages;
    work_full = v_empty + Tile::kStages;
    work = reinterpret_cast<AttentionWork*>(work_full + 2);
  }
};

// Where a thread block is in its ring of K or V.
template <class Tile>
struct AttentionRing {
  int stage = 0;
  uint32_t phase = 0;
  __device__ __forceinline__ void next() {
    if (++stage == Tile::kStages) stage = 0, phase ^= 1;
  }
};

// From a number to a piece of work. The last queries of a sequence, which see most when masked, come first; heads that
// share K and V are neighbours; and a section of heads is finished before the next one begins.
template <class Tile>
struct AttentionWalk {
  int sequence = 0, before = 0;  // with cu_q: the pieces of all sequences before this one

  // All lanes of a warp call it, with growing numbers; lane 0 writes. False: there are no more.
  __device__ __forceinline__ bool find(const AttentionSm90Params& p, int index, AttentionWork* work_out) {
    const int lane = threadIdx.x % 32;
    int blocks = p.q_blocks, units = p.batch * p.kv_heads, section = p.section, in_section = 0;
    if (p.seqs.cu_q) {
      // 32 sequences at a time: whose piece is it?
      for (;; sequence += 32) {
        if (sequence >= p.batch) return false;
        const int own = sequence + lane;
        int n = 0;
        if (own < p.batch)
          n = (p.seqs.cu_q[own + 1] - p.seqs.cu_q[own] + Tile::kQueries - 1) / Tile::kQueries * p.heads;
        int sum = n;
#pragma unroll
        for (int step = 1; step < 32; step *= 2) {
          const int lower = __shfl_up_sync(~0u, sum, step);
          if (lane >= step) sum += lower;
        }
        const unsigned beyond = __ballot_sync(~0u, before + sum > index);
        const int total = __shfl_sync(~0u, sum, 31);
        if (!beyond) {
          before += total;
          continue;
        }
        const int at = __ffs(beyond) - 1;
        const int count = __shfl_sync(~0u, n, at);
        before += __shfl_sync(~0u, sum, at) - count;
        sequence += at;
        index -= before;
        blocks = count / p.heads;
        break;
      }
      units = p.kv_heads;
      section = max(1, min(units, p.section / max(static_cast<int>(p.seqs.kv_count(sequence)), 1)));
      in_section = index / (section * p.group * blocks);
    } else {
      if (index >= units * p.group * blocks) return false;
      in_section = p.by_section.divide(index);
    }
    // Sections, blocks of queries from the last one, heads
    const int whole_block = section * p.group, rest = index - in_section * whole_block * blocks;
    const int heads = min(whole_block, units * p.group - in_section * whole_block);
    const int block = heads == static_cast<int>(p.by_block.divisor) ? p.by_block.divide(rest) : rest / heads;
    const int head = in_section * whole_block + rest - block * heads;  // among all sequences, where there are more
    const int batch = p.seqs.cu_q ? sequence : p.by_heads.divide(head);
    const int q_len = static_cast<int>(p.seqs.q_count(batch)), kv_len = static_cast<int>(p.seqs.kv_count(batch));
    const int prefix = static_cast<int>(p.seqs.prefix(batch)), first = (blocks - 1 - block) * Tile::kQueries;
    const int last = min(first + Tile::kQueries, q_len) - 1;
    const KeyRangeOf<int> keys = visible<int>(p.mask, first, last, q_len, kv_len, prefix);
    const KeyRangeOf<int> seen = visible<int>(p.mask, 0, q_len - 1, q_len, kv_len, prefix);
    // The copy engine fills with 0 what lies beyond a page that is a whole sequence.
    const bool whole = !p.seqs.page_table && !p.seqs.cu_kv && seen.end == p.seqs.page_size;
    if (lane == 0) {
      work_out->head = p.seqs.cu_q ? head : head - batch * p.heads;
      work_out->sequence = p.seqs.cu_q ? 0 : batch;
      work_out->token = p.seqs.cu_q ? p.seqs.cu_q[batch] : 0;
      work_out->first = first, work_out->q_len = q_len, work_out->kv_len = kv_len, work_out->prefix = prefix;
      work_out->begin = keys.begin / Tile::kKeys;
      work_out->end = keys.end > keys.begin ? (keys.end + Tile::kKeys - 1) / Tile::kKeys : keys.begin / Tile::kKeys;
      work_out->seen_begin = seen.begin, work_out->seen_end = whole ? 0x7fffffff : seen.end;
      work_out->page = p.seqs.cu_kv ? 0 : batch, work_out->slot = p.seqs.cu_kv ? p.seqs.cu_kv[batch] : 0;
    }
    __syncwarp();
    return true;
  }
};

// A producer: K or V of a piece of work, block by block from the last one, [keys, kD] each, into the ring. after_first(): when the
// first of them is on its way.
template <class Tile, int kD, class AfterFirst>
__device__ __forceinline__ void attention_load(const AttentionSm90Params& p, const AttentionWork& work,
                                               const CUtensorMap* map, char* smem, uint64_t* full, uint64_t* empty,
                                               AttentionRing<Tile>* ring, const AfterFirst& after_first) {
  constexpr int kBytes = Tile::kKeys * kD * 2, kChunk = Tile::kKeys * kSwizzleBytes;
  const int lane = threadIdx.x % 32, kv_head = p.by_group.divide(work.head);
  if (!p.seqs.page_table) {
#pragma unroll 1
    for (int block = work.end - 1; block >= work.begin; --block, ring->next()) {
      mbarrier_wait(&empty[ring->stage], ring->phase ^ 1);
      if (elect_one()) {
        mbarrier_expect(&full[ring->stage], kBytes);
#pragma unroll
        for (int d = 0; d < kD; d += 64)
          tma_load(smem + ring->stage * kBytes + d / 64 * kChunk, map, d, work.slot + block * Tile::kKeys, kv_head,
                   work.page, &full[ring->stage]);
      }
      if (block == work.end - 1) after_first();
    }
    return;
  }
  // Pages: a block is copied by runs of p.box keys, taken in turn by the lanes; those that no query sees are left out.
  // Runs are counted from the sequence's first key. No division: this has to be quicker than the products.
  const int seen_begin = work.seen_begin / p.box, seen_end = (work.seen_end + p.box - 1) / p.box;
  const int32_t* table = p.seqs.page_table + work.page * p.seqs.table_stride;
  // The page of this lane's first run: looked up a block ahead.
  const auto first_page = [&](int block) {
    const int run = max(seen_begin, block * p.runs) + lane;
    return block >= work.begin && run < min(seen_end, (block + 1) * p.runs) ? table[p.page_runs.divide(run)] : 0;
  };
  int ahead = first_page(work.end - 1);
#pragma unroll 1
  for (int block = work.end - 1; block >= work.begin; --block, ring->next()) {
    const int begin = max(seen_begin, block * p.runs), end = min(seen_end, (block + 1) * p.runs);
    int page = ahead;
    ahead = first_page(block - 1);
    mbarrier_wait(&empty[ring->stage], ring->phase ^ 1);
    if (lane == 0) mbarrier_expect(&full[ring->stage], (end - begin) * p.box * kD * 2);
    __syncwarp();
#pragma unroll 1
    for (int run = begin + lane; run < end; run += 32) {
      const int index = p.page_runs.divide(run), slot = (run - index * static_cast<int>(p.page_runs.divisor)) * p.box;
      if (run - lane > begin) page = table[index];  // tiny pages: more than one run for a lane
      char* to = smem + ring->stage * kBytes + (run - block * p.runs) * p.box * kSwizzleBytes;
#pragma unroll
      for (int d = 0; d < kD; d += 64) tma_load(to + d / 64 * kChunk, map, d, slot, kv_head, page, &full[ring->stage]);
    }
    __syncwarp();
    if (block == work.end - 1) after_first();
  }
}

// The first producer warp: pieces of work as they are free, their Q and K. more: whether the walk has found a first one.
template <class Tile>
__device__ __forceinline__ void attention_produce_qk(const AttentionSm90Params& p, const AttentionSmem<Tile>& smem,
                                                     AttentionWalk<Tile>& walk, bool more) {
  const int lane = threadIdx.x % 32;
  AttentionRing<Tile> ring;
  for (uint32_t q_phase = 0;; q_phase ^= 1) {
    AttentionWork* const work = smem.work + q_phase;
    int next = 0;
    if (lane == 0) {
      if (more)
        next = gridDim.x + atomicAdd(p.counters, 1u);
      else
        work->head = -1;
    }
    if (lane == 0) mbarrier_arrive(&smem.work_full[q_phase]);
    const bool any = more && work->begin < work->end;
    const auto load_q = [&] {
      mbarrier_wait(smem.q_empty, q_phase ^ 1);
      // Who wrote the work arrives for it, beside the lane that copies: the two may not be the same.
      if (lane == 0) mbarrier_arrive(smem.q_full);
      __syncwarp();
      if (elect_one()) {
        mbarrier_expect(smem.q_full, any ? Tile::kQBytes : 0);
        if (any)
#pragma unroll
          for (int d = 0; d < Tile::kDim; d += 64)
            tma_load(smem.q + d / 64 * Tile::kQueries * kSwizzleBytes, &p.q, d, work->token + work->first, work->head,
                     work->sequence, smem.q_full);
      }
    };
    if (!Tile::kEarly || !any) load_q();
    if (!more) break;
    attention_load<Tile, Tile::kDim>(p, *work, &p.k, smem.k, smem.k_full, smem.k_empty, &ring, [&] {
      if constexpr (Tile::kEarly) load_q();
    });
    more = walk.find(p, __shfl_sync(~0u, next, 0), smem.work + (q_phase ^ 1));
  }
  // The last block to end leaves the counters zeroed.
  if (lane == 0) {
    __threadfence();
    if (atomicAdd(p.counters + 1, 1u) == gridDim.x - 1) p.counters[0] = p.counters[1] = 0;
  }
}

// The second one: their V. It goes on when Q is there, which V would only slow down.
template <class Tile>
__device__ __forceinline__ void attention_produce_v(const AttentionSm90Params& p, const AttentionSmem<Tile>& smem) {
  AttentionRing<Tile> ring;
  for (uint32_t q_phase = 0;; q_phase ^= 1) {
    mbarrier_wait(smem.q_full, q_phase);
    const AttentionWork& work = smem.work[q_phase];
    if (work.head < 0) break;
    attention_load<Tile, Tile::kVDim>(p, work, &p.v, smem.v, smem.v_full, smem.v_empty, &ring, [] {});
    mbarrier_arrive(smem.q_empty);
  }
}

}  // namespace ek
