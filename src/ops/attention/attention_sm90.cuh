// SPDX-License-Identifier: Apache-2.0
// attention on Hopper for f16 and bf16: a producer warp (attention_sm90_work.cuh) and two or three warpgroups with 64
// queries each. Scores and sums are f32 in registers; P, rounded to T, goes from there into the second product.
// Two overlaps hide the softmax: a warpgroup has the products of scores j + 1 and of P V of j running while it works on
// the scores, and the warpgroups take turns at the matrix units, so that one multiplies while the other one exponentiates.
// A query's bits depend on its own keys alone: blocks of keys begin at multiples of their size, and one that a query does
// not see changes nothing of its sums.
#pragma once

#include "cuda/math.cuh"
#include "ops/attention/attention_sm90_work.cuh"

namespace ek {

constexpr int kAttentionTurn = 1;   // named barriers: whose turn it is, one for each warpgroup
constexpr int kAttentionClear = 4;  // and among the threads of a warpgroup
constexpr float kLog2e = 1.44269504f, kLn2 = 0.693147181f;

template <class T>
__device__ __forceinline__ uint32_t pack_pair(float low, float high) {
  if constexpr (std::is_same_v<T, bf16>) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return reinterpret_cast<const uint32_t&>(pair);
  } else {
    const __half2 pair = __floats2half2_rn(low, high);
    return reinterpret_cast<const uint32_t&>(pair);
  }
}

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
  return {uniform(w.head),   uniform(w.sequence), uniform(w.token), uniform(w.first),      uniform(w.q_len),   uniform(w.kv_len),
          uniform(w.prefix), uniform(w.begin),    uniform(w.end),   uniform(w.seen_begin), uniform(w.seen_end)};
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
  float most[2], total[2];            // of the rows so far: largest score, sum of weights (of this thread's columns)

  // s = Q K^T, begun
  __device__ __forceinline__ void multiply_qk(uint32_t q, uint32_t k) {
    wgmma_fence();
#pragma unroll
    for (int d = 0; d < Tile::kDim; d += 16) {
      const uint64_t a = wgmma_descriptor(q + d / 64 * Tile::kQueries * kSwizzleBytes, 0) + d % 64 / 16 * kWgmmaStepK<true>;
      const uint64_t b = wgmma_descriptor(k + d / 64 * Tile::kKeys * kSwizzleBytes, 0) + d % 64 / 16 * kWgmmaStepK<true>;
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

  // -inf in place of what rows do not see: keys in [low, high) from this thread's first key stay.
  __device__ __forceinline__ void mask(const int (&low)[2], const int (&high)[2]) {
#pragma unroll
    for (int i = 0; i < Tile::kKeys / 2; ++i) {
      const int key = i / 4 * 8 + i % 2, h = i / 2 % 2;
      if (key >= high[h] || key < low[h]) s[i] = -INFINITY;
    }
  }

  // The running maximum of the rows; base: what scores are compared with, factor: of what was summed before. A warpgroup is
  // one warp for each scheduler, so chains of instructions that wait for one another are kept short, here and below.
  __device__ __forceinline__ void find_most(float scale, float (&base)[2], float (&factor)[2]) {
    constexpr int kChains = 4;
    float best[2][kChains];
#pragma unroll
    for (int h = 0; h < 2; ++h)
#pragma unroll
      for (int i = 0; i < kChains; ++i) best[h][i] = i == 0 ? most[h] : s[(i - 1) * 4 + h * 2];
#pragma unroll
    for (int c = 0; c < Tile::kKeys / 8; ++c)
#pragma unroll
      for (int h = 0; h < 2; ++h)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          float& chain = best[h][(c * 2 + e) % kChains];
          chain = fmaxf(chain, s[c * 4 + h * 2 + e]);
        }
    float all[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) all[h] = fmaxf(fmaxf(best[h][0], best[h][1]), fmaxf(best[h][2], best[h][3]));
#pragma unroll
    for (int lane = 1; lane <= 2; lane *= 2)
#pragma unroll
      for (int h = 0; h < 2; ++h) all[h] = fmaxf(all[h], __shfl_xor_sync(~0u, all[h], lane));
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      base[h] = all[h] == -INFINITY ? 0.f : all[h] * scale;  // of nothing seen inf - inf would make NaN
      factor[h] = CudaMathFast::exp2(fmaf(most[h], scale, -base[h]));
      most[h] = all[h];
    }
  }
  // Scores to weights, rounded to T, and their sums
  __device__ __forceinline__ void find_weights(float scale, const float (&base)[2], const float (&factor)[2]) {
    float sum[2][2] = {};
#pragma unroll
    for (int i = 0; i < Tile::kKeys / 4; ++i) {
      const int h = i % 2;
      const float low = CudaMathFast::exp2(fmaf(s[2 * i], scale, -base[h]));
      const float high = CudaMathFast::exp2(fmaf(s[2 * i + 1], scale, -base[h]));
      sum[h][0] += low, sum[h][1] += high;
      weights[i] = pack_pair<T>(low, high);
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) total[h] = fmaf(total[h], factor[h], sum[h][0] + sum[h][1]);
  }
  // Most blocks bring no new maximum, and a factor of 1 changes no bit.
  __device__ __forceinline__ void rescale(const float (&factor)[2]) {
    if (__all_sync(~0u, factor[0] == 1.f && factor[1] == 1.f)) return;
#pragma unroll
    for (int i = 0; i < Tile::kVDim / 2; ++i) o[i] *= factor[i / 2 % 2];
  }

  // Rows of V that no query of the sequence sees: cleared, for 0 * NaN is NaN.
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
      const float own = most[h] * p.scale_log2, all = fmaxf(own, sink), base = all == -INFINITY ? 0.f : all;
      const float factor = exp2f(own - base);
      sum = fmaf(sum, factor, exp2f(sink - base));
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
        if (row < work.q_len && column < p.v_dim)
          *reinterpret_cast<uint4*>(y + column) = uint4{w[0], w[1], w[2], w[3]};
      }
      if (p.lse && row < work.q_len && lane % 4 == 0)
        p.lse[work.sequence * p.lse_seq + token * p.lse_token + work.head * p.lse_head] =
            sum == 0.f ? -INFINITY : fmaf(base, kLn2, logf(sum));
    }
  }
};

template <class Tile>
__device__ __forceinline__ void attention_consume(const AttentionSm90Params& p, const AttentionSmem<Tile>& smem, int wg) {
  const int t = threadIdx.x % 128, lane = t % 32;
  AttentionConsumer<Tile> c;
  unsigned used = 0;  // blocks of keys; those of V are one behind in the loop
  const uint32_t q = smem_address(smem.q) + wg * 64 * kSwizzleBytes;
  if (Tile::kTurns && wg == Tile::kWgs - 1) barrier_arrive(kAttentionTurn, 256);  // the first turn is warpgroup 0's

  for (uint32_t q_phase = 0;; q_phase ^= 1) {
    mbarrier_wait(smem.q_full, q_phase);
    const AttentionWork work = uniform(smem.work[q_phase]);
    if (work.head < 0) break;
    const auto release_q = [&] {
      __syncwarp();
      if (lane == 0) mbarrier_arrive(smem.q_empty);
    };

    // What this thread's rows see, and what all rows of the warpgroup see
    const int last_row = work.q_len - 1, wg_row = work.first + wg * 64, first = wg_row + t / 32 * 16 + lane / 4;
    const int column = lane % 4 * 2;
    int low[2], high[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const KeyRangeOf<int> r = visible<int>(p.mask, min(first + 8 * h, last_row), work.q_len, work.kv_len, work.prefix);
      low[h] = r.begin - column, high[h] = r.end - column;
    }
    const KeyRangeOf<int> all = visible_to_all<int>(p.mask, min(wg_row, last_row), min(wg_row + 63, last_row),
                                                    work.q_len, work.kv_len, work.prefix);
    const float slope = Tile::kScores && p.alibi ? p.alibi[work.head] * kLog2e : 0.f;

#pragma unroll
    for (int i = 0; i < Tile::kVDim / 2; ++i) c.o[i] = 0.f;
    c.most[0] = c.most[1] = -INFINITY;
    c.total[0] = c.total[1] = 0.f;

    // Waits for V, and begins o += P V.
    const auto begin_pv = [&](int block, unsigned n) {
      mbarrier_wait(&smem.v_full[stage_of<Tile>(n)], phase_of<Tile>(n));
      const int from = work.seen_begin - block * Tile::kKeys, to = work.seen_end - block * Tile::kKeys;
      char* v = smem.v + stage_of<Tile>(n) * Tile::kVBytes;
      if (from > 0 || to < Tile::kKeys) c.clear_v(v, from, to, wg);
      c.multiply_pv(smem_address(v));
    };
    const auto end_pv = [&](unsigned n) {
      wgmma_wait<0>();
      c.hold_o();
      if (t == 0) mbarrier_arrive(&smem.v_empty[stage_of<Tile>(n)]);
    };

    // Waits for K and the turn, and begins s = Q K^T.
    const auto begin_qk = [&] {
      mbarrier_wait(&smem.k_full[stage_of<Tile>(used)], phase_of<Tile>(used));
      if (Tile::kTurns) barrier_sync(kAttentionTurn + wg, 256);
      c.multiply_qk(computed_here(q), smem_address(smem.k) + stage_of<Tile>(used) * Tile::kKBytes);
    };
    const auto end_turn = [&] {
      if (Tile::kTurns) barrier_arrive(kAttentionTurn + (wg + 1) % Tile::kWgs, 256);
    };
    // From scores to weights. The maximum is found while P V still runs, the rest while the other warpgroup multiplies.
    const auto weigh = [&](int block, auto end_of_pv) {
      c.hold_s();
      if (t == 0) mbarrier_arrive(&smem.k_empty[stage_of<Tile>(used)]);
      ++used;
      const int key = block * Tile::kKeys;
      if (Tile::kScores) c.shape_scores(p, slope, first + work.kv_len - work.q_len - key - column);
      if (key < all.begin || key + Tile::kKeys > all.end) {
        const int from[2] = {low[0] - key, low[1] - key}, to[2] = {high[0] - key, high[1] - key};
        c.mask(from, to);
      }
      float base[2], factor[2];
      c.find_most(p.scale_log2, base, factor);
      computed_before(factor[0] + factor[1]);
      end_of_pv(factor);
      c.find_weights(p.scale_log2, base, factor);
    };

    if (work.begin < work.end) {
      begin_qk();
      end_turn();
      wgmma_wait<0>();
      weigh(work.end - 1, [](const float (&)[2]) {});
      // Scores of a block, values of the one after it
      for (int block = work.end - 2; block >= work.begin; --block) {
        begin_qk();
        begin_pv(block + 1, used - 1);
        end_turn();
        wgmma_wait<1>();
        weigh(block, [&](const float (&factor)[2]) {
          end_pv(used - 2);
          c.rescale(factor);
        });
      }
      release_q();
      begin_pv(work.begin, used - 1);
      end_pv(used - 1);
    } else {
      release_q();
    }
    c.store(p, work, first);
  }
}

template <class Tile>
__global__ __launch_bounds__(Tile::kThreads, 1) void attention_sm90(const __grid_constant__ AttentionSm90Params p) {
#if EK_HAS_WGMMA
  extern __shared__ __align__(1024) char raw[];  // the swizzle counts from multiples of 1024
  const AttentionSmem<Tile> smem(raw);
  if (threadIdx.x == 0) {
    mbarrier_init(smem.q_full, 1);
    mbarrier_init(smem.q_empty, Tile::kWgs * 4);
    for (int i = 0; i < Tile::kStages; ++i) {
      mbarrier_init(&smem.k_full[i], 1);
      mbarrier_init(&smem.v_full[i], 1);
      mbarrier_init(&smem.k_empty[i], Tile::kWgs);
      mbarrier_init(&smem.v_empty[i], Tile::kWgs);
    }
    mbarrier_fence();
  }
  if (threadIdx.x == 32) {
    tma_prefetch_map(&p.q);
    tma_prefetch_map(&p.k);
    tma_prefetch_map(&p.v);
  }
  __syncthreads();
  pdl_wait();
  if (threadIdx.x < 128) {
    registers_give<Tile::kProducerRegisters>();
    if (threadIdx.x < 32) attention_produce<Tile>(p, smem);
  } else {
    registers_take<Tile::kRegisters>();
    attention_consume<Tile>(p, smem, uniform(threadIdx.x / 128) - 1);
  }
  pdl_launch();
#endif
}

}  // namespace ek
