// SPDX-License-Identifier: Apache-2.0
// attention on Hopper for f16 and bf16: two producer warps (attention_sm90_work.cuh) and two or three warpgroups with 64
// queries each. Scores and sums are f32 in registers; P, rounded to T, goes from there into the second product.
// What hides the softmax is the other warpgroup: where kTurns, they take turns at the matrix units, so that one multiplies
// while another exponentiates. Its own P V runs while it waits for the next scores and masks them.
// Weights are 2^(score - base), the base a maximum of the row that was found when it was last needed: as long as weights
// stay small enough for T, there is no look for another one.
// A query's bits depend on its own keys alone: blocks of keys begin at multiples of their size, and one that a query does
// not see changes nothing of its sums.
#pragma once

#include <type_traits>

#include "cuda/math.cuh"
#include "cuda/vec.cuh"
#include "ops/attention/attention_sm90_work.cuh"

namespace ek {

constexpr int kAttentionTurn = 1;   // named barriers: whose turn it is, one for each warpgroup
constexpr int kAttentionClear = 4;  // and among the threads of a warpgroup
// A thread's sum of weights in a row of a block; beyond it the row's base is raised. 2^10 is far from the largest f16, and
// more than 48 weights of 1 would give: a base that is the maximum of a block is never raised in it.
constexpr float kMostWeights = 1024.f;
constexpr float kNoBase = -1e38f;  // makes the first score that a row sees raise its base

// Word i of lane j of each four lanes becomes word j of lane i.
__device__ __forceinline__ void transpose_quad(uint32_t (&w)[4]) {
#pragma unroll
  for (int bit = 1; bit <= 2; bit *= 2) {
    const bool upper = threadIdx.x & bit;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (i & bit) continue;
      const uint32_t other = __shfl_xor_sync(~0u, upper ? w[i] : w[i | bit], bit);
      w[i] = upper ? other : w[i];
      w[i | bit] = upper ? w[i | bit] : other;
    }
  }
}

// From lane 0, so that the compiler knows all lanes have the same, and keeps it in uniform registers.
__device__ __forceinline__ int uniform(int x) { return __shfl_sync(~0u, x, 0); }
__device__ __forceinline__ AttentionWork uniform(const AttentionWork& w) {
  return {uniform(w.head),
          uniform(w.sequence),
          uniform(w.token),
          uniform(w.first),
          uniform(w.q_len),
          uniform(w.kv_len),
          uniform(w.prefix),
          uniform(w.begin),
          uniform(w.end),
          uniform(w.seen_begin),
          uniform(w.seen_end),
          0,
          0};
}

// The state of a warpgroup. Element c * 4 + h * 2 + e of s and o: row lane / 4 + 8 h of the warp's 16, column
// c * 8 + lane % 4 * 2 + e.
template <class Tile>
struct AttentionConsumer {
  using T = typename Tile::T;
  using Qk = Wgmma<T, Tile::kKeys, 0, 0>;
  using Pv = WgmmaRs<T, Tile::kVDim, 1>;
  float s[Tile::kKeys / 2], o[Tile::kVDim / 2];
  uint32_t weights[Tile::kKeys / 4];  // P as the operand of wgmma
  float base[2], total[2];            // of the rows so far, the sum that of this thread's columns

  // s = Q K^T, begun
  __device__ __forceinline__ void multiply_qk(uint32_t q, uint32_t k) {
    wgmma_fence();
#pragma unroll
    for (int d = 0; d < Tile::kDim; d += 16) {
      const uint64_t a =
          wgmma_descriptor(q + d / 64 * Tile::kQueries * kSwizzleBytes, 0) + d % 64 / 16 * kWgmmaStepK<true>;
      const uint64_t b =
          wgmma_descriptor(k + d / 64 * Tile::kKeys * kSwizzleBytes, 0) + d % 64 / 16 * kWgmmaStepK<true>;
      Qk::mma(s, a, b, d > 0);
    }
    wgmma_commit();
  }
  // o += P V, begun
  __device__ __forceinline__ void multiply_pv(uint32_t v) {
    wgmma_fence();
    const uint64_t b = wgmma_descriptor(v, Tile::kKeys * kSwizzleBytes);
#pragma unroll
    for (int k = 0; k < Tile::kKeys / 16; ++k) Pv::mma(o, weights + 4 * k, b + k * kWgmmaStepK<false>, 1);
    wgmma_commit();
  }
  __device__ __forceinline__ void hold_s() {
#pragma unroll
    for (int i = 0; i < Tile::kKeys / 2; ++i) wgmma_hold(s[i]);
  }
  __device__ __forceinline__ void hold_o() {
#pragma unroll
    for (int i = 0; i < Tile::kVDim / 2; ++i) wgmma_hold(o[i]);
  }

  // Softcap and ALiBi, from products to powers of 2. position: of row lane / 4, from this thread's first key.
  __device__ __forceinline__ void shape_scores(const AttentionSm90Params& p, float slope, int position) {
#pragma unroll
    for (int i = 0; i < Tile::kKeys / 2; ++i) s[i] *= p.score_scale;
    if (p.softcap_log2 > 0.f) {
#pragma unroll
      for (int i = 0; i < Tile::kKeys / 2; ++i) s[i] = p.softcap_log2 * CudaMathFast::tanh(s[i]);
    }
    if (slope != 0.f) {
      const float at = static_cast<float>(position);
#pragma unroll
      for (int i = 0; i < Tile::kKeys / 2; ++i)
        s[i] = fmaf(-slope, fabsf(at + static_cast<float>((i & 2 ? 8 : 0) - i / 4 * 8 - i % 2)), s[i]);
    }
  }

  // -inf in place of what rows do not see: keys in [low, high) from this thread's first key stay. Here and below, kSeen: no row
  // sees keys of the block from this one on.
  template <int kSeen>
  __device__ __forceinline__ void mask(const int (&low)[2], const int (&high)[2]) {
#pragma unroll
    for (int i = 0; i < kSeen / 2; ++i) {
      const int key = i / 4 * 8 + i % 2, h = i / 2 % 2;
      if (key >= high[h] || key < low[h]) s[i] = -INFINITY;
    }
  }

  // Scores to weights, rounded to T. Chains of additions are kept short, because a warpgroup has one warp for each
  // scheduler.
  template <int kSeen>
  __device__ __forceinline__ void find_weights(float scale, float (&sum)[2]) {
    float part[2][2] = {};
#pragma unroll
    for (int i = 0; i < kSeen / 4; ++i) {
      const int h = i % 2;
      const float low = CudaMathFast::exp2(fmaf(s[2 * i], scale, -base[h]));
      const float high = CudaMathFast::exp2(fmaf(s[2 * i + 1], scale, -base[h]));
      part[h][0] += low, part[h][1] += high;
      weights[i] = pack_pair<T>(low, high);
    }
#pragma unroll
    for (int i = kSeen / 4; i < Tile::kKeys / 4; ++i) weights[i] = 0;
#pragma unroll
    for (int h = 0; h < 2; ++h) sum[h] = part[h][0] + part[h][1];
  }
  // The largest score of this block becomes the base of the rows whose weights are too large.
  template <int kSeen>
  __device__ __forceinline__ void raise_base(float scale, const float (&sum)[2]) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float most = s[h * 2];
#pragma unroll
      for (int c = 0; c < kSeen / 8; ++c) most = fmaxf(most, fmaxf(s[c * 4 + h * 2], s[c * 4 + h * 2 + 1]));
      float largest = sum[h];  // of the row's four threads
#pragma unroll
      for (int lane = 1; lane <= 2; lane *= 2) {
        most = fmaxf(most, __shfl_xor_sync(~0u, most, lane));
        largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, lane));
      }
      const float raised = largest > kMostWeights && most > -INFINITY ? most * scale : base[h];
      const float factor = CudaMathFast::exp2(base[h] - raised);
      base[h] = raised;
      total[h] *= factor;
#pragma unroll
      for (int c = 0; c < Tile::kVDim / 8; ++c) o[c * 4 + h * 2] *= factor, o[c * 4 + h * 2 + 1] *= factor;
    }
  }
  // kFirst: there is no base yet.
  template <bool kFirst, class Seen>
  __device__ __forceinline__ void weigh(float scale) {
    constexpr int kSeen = Seen::value;
    float sum[2] = {INFINITY, INFINITY};
    if constexpr (kFirst) raise_base<kSeen>(scale, sum);
    find_weights<kSeen>(scale, sum);
    while (
        __any_sync(~0u, sum[0] > kMostWeights || sum[1] > kMostWeights)) {  // once at most: sums are small then, or NaN
      raise_base<kSeen>(scale, sum);
      find_weights<kSeen>(scale, sum);
    }
    total[0] += sum[0], total[1] += sum[1];
  }

  // Rows of V that no query of the sequence sees: cleared, for 0 * NaN is NaN. Every warpgroup does so for itself; another
  // one may write its zeros over these while they are read.
  static __device__ __forceinline__ void clear_v(char* v, int from, int to, int wg) {
    const int t = threadIdx.x % 128;
    for (int d = 0; d < Tile::kVDim / 64; ++d)
      for (int row = t / 8; row < Tile::kKeys; row += 16)
        if (row < from || row >= to)
          *reinterpret_cast<uint4*>(v + (d * Tile::kKeys + row) * kSwizzleBytes + t % 8 * 16) = uint4{};
    fence_async();
    barrier_sync(kAttentionClear + wg, 128);
  }

  // The sums over all keys and the sink: y and lse of this thread's rows, from row `first` of the sequence on.
  __device__ __forceinline__ void store(const AttentionSm90Params& p, const AttentionWork& work, int first) {
    const int lane = threadIdx.x % 32;
    const float sink = p.sinks ? p.sinks[work.head] * kLog2e : -INFINITY;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float sum = total[h];
      sum += __shfl_xor_sync(~0u, sum, 1);
      sum += __shfl_xor_sync(~0u, sum, 2);
      const float all = fmaxf(base[h], sink), factor = exp2f(base[h] - all);
      sum = fmaf(sum, factor, exp2f(sink - all));
      const float inverse = sum == 0.f ? 0.f : factor / sum;
      const int row = first + 8 * h;
      const int64_t token = work.token + row;
      T* y = static_cast<T*>(p.y) + work.sequence * p.y_seq + token * p.y_token + work.head * p.y_head;
#pragma unroll
      for (int c = 0; c < Tile::kVDim / 8; c += 4) {
        uint32_t w[4];
#pragma unroll
        for (int i = 0; i < 4; ++i)
          w[i] = pack_pair<T>(o[(c + i) * 4 + h * 2] * inverse, o[(c + i) * 4 + h * 2 + 1] * inverse);
        transpose_quad(w);  // now 8 columns in a row
        const int column = (c + lane % 4) * 8;
        if (row < work.q_len && column < p.v_dim) *reinterpret_cast<uint4*>(y + column) = uint4{w[0], w[1], w[2], w[3]};
      }
      if (p.lse && row < work.q_len && lane % 4 == 0)
        p.lse[work.sequence * p.lse_seq + token * p.lse_token + work.head * p.lse_head] =
            sum == 0.f ? -INFINITY : fmaf(all, kLn2, logf(sum));
    }
  }
};

template <class Tile>
__device__ __forceinline__ void attention_consume(const AttentionSm90Params& p, const AttentionSmem<Tile>& smem,
                                                  int wg) {
  const int t = threadIdx.x % 128, lane = t % 32;
  using Whole = std::integral_constant<int, Tile::kKeys>;
  using Half = std::integral_constant<int, Tile::kKeys / 2>;
  AttentionConsumer<Tile> c;
  AttentionRing<Tile> k_ring, v_ring;
  const uint32_t q = smem_address(smem.q) + wg * 64 * kSwizzleBytes;
  if (Tile::kTurns && wg == Tile::kWgs - 1) barrier_arrive(kAttentionTurn, 256);  // the first turn is warpgroup 0's

  uint32_t work_phase = 0;
  for (uint32_t q_phase = 0;; q_phase ^= 1) {
    mbarrier_wait(&smem.work_full[q_phase], work_phase);
    work_phase ^= q_phase;
    const AttentionWork work = uniform(smem.work[q_phase]);
    if (work.head < 0) break;
    // By every thread: it has read its work, and Q has been multiplied with the last K. (One for each warp is no faster, and
    // racecheck does not see what the others have done.)
    const auto release_q = [&] { mbarrier_arrive(smem.q_empty); };

    // What this thread's rows see, and what all rows of the warpgroup see
    const int last_row = work.q_len - 1, wg_row = work.first + wg * 64, first = wg_row + t / 32 * 16 + lane / 4;
    const int column = lane % 4 * 2;
    int low[2], high[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const KeyRangeOf<int> r =
          visible<int>(p.mask, min(first + 8 * h, last_row), work.q_len, work.kv_len, work.prefix);
      low[h] = r.begin - column, high[h] = r.end - column;
    }
    const KeyRangeOf<int> all = visible_to_all<int>(p.mask, min(wg_row, last_row), min(wg_row + 63, last_row),
                                                    work.q_len, work.kv_len, work.prefix);
    const KeyRangeOf<int> some =
        visible<int>(p.mask, min(wg_row, last_row), min(wg_row + 63, last_row), work.q_len, work.kv_len, work.prefix);
    const bool none = some.begin == some.end || wg_row > last_row;
    const int begin = none ? work.begin : some.begin / Tile::kKeys;
    const int end = none ? work.begin : (some.end + Tile::kKeys - 1) / Tile::kKeys;
    const float slope = Tile::kScores && p.alibi ? p.alibi[work.head] * kLog2e : 0.f;

#pragma unroll
    for (int i = 0; i < Tile::kVDim / 2; ++i) c.o[i] = 0.f;
    c.base[0] = c.base[1] = kNoBase;
    c.total[0] = c.total[1] = 0.f;

    // Waits for V, and begins o += P V.
    const auto begin_pv = [&](int block) {
      mbarrier_wait(&smem.v_full[v_ring.stage], v_ring.phase);
      const int from = work.seen_begin - block * Tile::kKeys, to = work.seen_end - block * Tile::kKeys;
      char* v = smem.v + v_ring.stage * Tile::kVBytes;
      if (from > 0 || to < Tile::kKeys) c.clear_v(v, from, to, wg);
      c.multiply_pv(smem_address(v));
    };
    const auto release_v = [&] {
      if (t == 0) mbarrier_arrive(&smem.v_empty[v_ring.stage]);
      v_ring.next();
    };
    const auto end_pv = [&] {
      wgmma_wait<0>();
      c.hold_o();
      release_v();
    };
    // Waits for K and the turn, and begins s = Q K^T.
    const auto begin_turn = [&] {
      mbarrier_wait(&smem.k_full[k_ring.stage], k_ring.phase);
      if (Tile::kTurns) barrier_sync(kAttentionTurn + wg, 256);
    };
    const auto begin_qk = [&] { c.multiply_qk(computed_here(q), smem_address(smem.k) + k_ring.stage * Tile::kKBytes); };
    const auto end_turn = [&] {
      if (Tile::kTurns) barrier_arrive(kAttentionTurn + (wg + 1) % Tile::kWgs, 256);
    };
    const auto release_k = [&] {
      if (t == 0) mbarrier_arrive(&smem.k_empty[k_ring.stage]);
      k_ring.next();
    };
    // The scores are there: K is free, and what rows do not see goes. seen: keys of the block from which on no row sees any.
    const auto end_qk = [&](int block, auto seen) {
      c.hold_s();
      release_k();
      const int key = block * Tile::kKeys;
      if (Tile::kScores) c.shape_scores(p, slope, first + work.kv_len - work.q_len - key - column);
      if (key < all.begin || key + Tile::kKeys > all.end) {
        const int from[2] = {low[0] - key, low[1] - key}, to[2] = {high[0] - key, high[1] - key};
        c.template mask<seen>(from, to);
      }
    };
    // A block that the rows of another warpgroup see, and none of this one
    const auto skip = [&] {
      begin_turn();
      end_turn();
      mbarrier_wait(&smem.v_full[v_ring.stage], v_ring.phase);
      // No wgmma holds the warps together here: one that fell two phases behind would wait for ever.
      barrier_sync(kAttentionClear + wg, 128);
      release_k();
      release_v();
    };

    mbarrier_wait(smem.q_full, q_phase);
    for (int block = work.end - 1; block >= end; --block) skip();
    if (begin < end) {
      begin_turn();
      begin_qk();
      end_turn();
      wgmma_wait<0>();
      if (Tile::kEarly && end - 1 == begin) release_q();
      if (some.end - (end - 1) * Tile::kKeys <= Tile::kKeys / 2) {  // on the diagonal every other warpgroup
        end_qk(end - 1, Half());
        c.template weigh<true, Half>(p.scale_log2);
      } else {
        end_qk(end - 1, Whole());
        c.template weigh<true, Whole>(p.scale_log2);
      }
      // Scores of a block, values of the one after it
      for (int block = end - 2; block >= begin; --block) {
        begin_turn();
        begin_qk();
        begin_pv(block + 1);
        end_turn();
        wgmma_wait<1>();
        if (Tile::kEarly && block == begin) release_q();
        end_qk(block, Whole());
        end_pv();
        c.template weigh<false, Whole>(p.scale_log2);
      }
      if (!Tile::kEarly) release_q();
      begin_pv(begin);
      end_pv();
    } else {
      release_q();
    }
    for (int block = begin - 1; block >= work.begin; --block) skip();
    c.store(p, work, first);
  }
}

template <class Tile>
__global__ __launch_bounds__(Tile::kThreads, 1) void attention_sm90(const __grid_constant__ AttentionSm90Params p) {
#if EK_HAS_WGMMA
  extern __shared__ __align__(1024) char raw[];  // the swizzle counts from multiples of 1024
  const AttentionSmem<Tile> smem(raw);
  // The first piece of work is found while another warp sets up the barriers.
  AttentionWalk<Tile> walk;
  bool more = false;
  if (threadIdx.x < 32) {
    pdl_wait();
    more = walk.find(p, blockIdx.x, smem.work);
  } else if (threadIdx.x == 64) {
    mbarrier_init(&smem.work_full[0], 1);
    mbarrier_init(&smem.work_full[1], 1);
    mbarrier_init(smem.q_full, 2);
    mbarrier_init(smem.q_empty, Tile::kWgs * 128 + 32);  // the consumers, and the producer of V
    for (int i = 0; i < Tile::kStages; ++i) {
      mbarrier_init(&smem.k_full[i], 1);
      mbarrier_init(&smem.v_full[i], 1);
      mbarrier_init(&smem.k_empty[i], Tile::kWgs);
      mbarrier_init(&smem.v_empty[i], Tile::kWgs);
    }
    mbarrier_fence();
  } else if (threadIdx.x == 32) {
    tma_prefetch_map(&p.q);
    tma_prefetch_map(&p.k);
    tma_prefetch_map(&p.v);
  }
  __syncthreads();
  pdl_wait();
  if (threadIdx.x >= 128) {
    registers_take<Tile::kRegisters>();
    attention_consume<Tile>(p, smem, uniform(threadIdx.x / 128) - 1);
  } else {
    registers_give<Tile::kProducerRegisters>();
    if (threadIdx.x < 32)
      attention_produce_qk<Tile>(p, smem, walk, more);
    else if (threadIdx.x < 64)
      attention_produce_v<Tile>(p, smem);
  }
  pdl_launch();
#endif
}

}  // namespace ek
