// SPDX-License-Identifier: Apache-2.0
// attention with mma.sync: y = softmax(s) v, in f32 but for the products' 16-bit inputs. A block takes kM rows of one
// sequence and kv head, a row being a query of one head of the group: few queries of many heads fill it as well. Tiles of
// kN keys and values come by turns into a ring in shared memory; scores, weights and sums stay in registers.
//   Tiles begin at multiples of kN, and those that a query does not see change nothing: a row's bits depend on its own
//   keys alone, whatever block it is in.
#pragma once

#include "cuda/math.cuh"
#include "cuda/pdl.cuh"
#include "cuda/reduce.cuh"
#include "cuda/vec.cuh"
#include "ops/attention/attention_sm80_load.cuh"

namespace ek {

// A maximum is raised only when a weight would pass 2^8: see weigh().
constexpr float kSm80Slack = 8.f;

// What a warp keeps of its rows: scores of a tile, sums of values, and what the softmax needs. A thread has rows
// lane / 4 + 8 r of the warp, two columns of every eight.
template <class Plan>
struct Sm80Rows {
  using T = typename Plan::T;
  static constexpr int kTiles = Plan::kTiles, kRows = kTiles * 2, kN = Plan::kN, kD = Plan::kD, kV = Plan::kV;
  float s[kTiles][kN / 8][4];  // scores, then weights
  uint32_t p[kTiles][kN / 16][4];
  float y[kTiles][kV / 8][4] = {};
  float most[kRows], total[kRows];  // the base of the weights so far; their sum over this thread's columns
  uint32_t q_held[Plan::kHoldQ ? kD / 16 : 1][kTiles][4];

  __device__ __forceinline__ Sm80Rows() {
#pragma unroll
    for (int r = 0; r < kRows; ++r) most[r] = -INFINITY, total[r] = 0.f;
  }

  static __device__ __forceinline__ int row_of(int r) {
    return threadIdx.x / 32 * Plan::kWarpM + threadIdx.x % 32 / 4 + r * 8;
  }

  template <class F>
  __device__ __forceinline__ void each_score(int r, F&& f) {
#pragma unroll
    for (int n = 0; n < kN / 8; ++n)
#pragma unroll
      for (int e = 0; e < 2; ++e) f(s[r / 2][n][r % 2 * 2 + e], n * 8 + e);
  }

  __device__ __forceinline__ void load_q(uint32_t (&q)[kTiles][4], uint32_t q_lane, int d) {
#pragma unroll
    for (int t = 0; t < kTiles; ++t) ldmatrix<false>(q[t], sm80_step(q_lane, d) + t * 16 * kD * 2);
  }
  __device__ __forceinline__ void hold_q(uint32_t q_lane) {
#pragma unroll
    for (int d = 0; d < kD / 16; ++d) load_q(q_held[d], q_lane, d);
  }

  // s = q k; the compiler reads fragments ahead as far as registers go. q_lane, k_lane: where this lane's rows of both begin.
  __device__ __forceinline__ void multiply_keys(uint32_t q_lane, uint32_t k_lane) {
    constexpr int kWide = kN / 16, kSteps = kD / 16 * kWide;
    uint32_t q[kTiles][4], b[4];
#pragma unroll
    for (int t = 0; t < kTiles; ++t)
#pragma unroll
      for (int i = 0; i < kN / 2; ++i) s[t][i / 4][i % 4] = 0.f;
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      const int d = i / kWide, n = i % kWide * 2;
      ldmatrix<false>(b, sm80_step(k_lane, d) + i % kWide * 16 * kD * 2);
      if constexpr (!Plan::kHoldQ)
        if (n == 0) load_q(q, q_lane, d);
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
        const uint32_t (&a)[4] = Plan::kHoldQ ? q_held[Plan::kHoldQ ? d : 0][t] : q[t];
        mma<T>(s[t][n], a, b[0], b[1]);
        mma<T>(s[t][n + 1], a, b[2], b[3]);
      }
    }
  }

  __device__ __forceinline__ void look(const AttentionCall& c, const Sm80Block& block, const uint32_t* ranges,
                                       int group, int tile) {
#pragma unroll
    for (int r = 0; r < kRows; ++r)
      sm80_look<CudaMathFast>(c, block, ranges[row_of(r)], group, row_of(r), tile * kN + threadIdx.x % 4 * 2,
                              [&](auto&& f) { each_score(r, f); });
  }

  // Weights exp2(s * factor - most * factor). A maximum is raised only when a weight would pass 2^8 = 2^(slack * factor),
  // and the sums get a new scale: that is rare after the first tile.
  __device__ __forceinline__ void weigh(float factor) {
    float tile_most[kRows];
    bool raise = false;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      tile_most[r] = s[r / 2][0][r % 2 * 2];
      each_score(r, [&](float& x, int) { tile_most[r] = fmaxf(tile_most[r], x); });
      raise |= (tile_most[r] - most[r]) * factor > kSm80Slack;
    }
    if (__any_sync(0xffffffffu, raise)) {
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const float row_most = warp_reduce(tile_most[r], [](float a, float b) { return fmaxf(a, b); }, 4);
        const bool more = (row_most - most[r]) * factor > kSm80Slack;
        const float keep = more ? CudaMathFast::exp2((most[r] - row_most) * factor) : 1.f;
        most[r] = more ? row_most : most[r];
        total[r] *= keep;
#pragma unroll
        for (int n = 0; n < kV / 8; ++n) {
          y[r / 2][n][r % 2 * 2] *= keep;
          y[r / 2][n][r % 2 * 2 + 1] *= keep;
        }
      }
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      // A row that has seen nothing yet: inf - inf would make NaN
      const float base = most[r] == -INFINITY ? 0.f : most[r] * factor;
      each_score(r, [&](float& x, int) {
        x = CudaMathFast::exp2(fmaf(x, factor, -base));
        total[r] += x;
      });
    }
    // As the left operand of the next product: accumulators lie as it wants them.
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
  }

  // y += p v
  __device__ __forceinline__ void add_values(uint32_t v_lane) {
    constexpr int kWide = kV / 16, kSteps = kN / 16 * kWide;
    uint32_t b[4];
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      const int j = i / kWide, n = i % kWide * 2;
      ldmatrix<true>(b, sm80_step(v_lane, i % kWide) + j * 16 * kV * 2);
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
        mma<T>(y[t][n], p[t][j], b[0], b[1]);
        mma<T>(y[t][n + 1], p[t][j], b[2], b[3]);
      }
    }
  }

  // To shared memory: y, divided, and for lse of each row its base and sum, the sink in them.
  __device__ __forceinline__ void put(const float* sinks, const Sm80Block& block, int group, float factor, char* smem,
                                      float2* states) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int row = row_of(r), head = block.kv_head * group + (block.row0 + row) % group;
      const float sink = sinks ? sinks[head] * kLog2e : -INFINITY;
      const float own = warp_reduce(total[r], Sum(), 4);  // 0: a row that has seen nothing
      const float seen = own == 0.f ? -INFINITY : most[r] == -INFINITY ? 0.f : most[r] * factor;
      const float larger = seen > sink ? seen : sink, base = larger == -INFINITY ? 0.f : larger;
      const float scale = CudaMathFast::exp2(seen - base);
      const float sum = own * scale + CudaMathFast::exp2(sink - base);
      const float inverse = sum == 0.f ? 0.f : scale / sum;
      if (lane % 4 == 0) states[row] = make_float2(base, sum);
#pragma unroll
      for (int n = 0; n < kV / 8; ++n) {
        const float pair[2] = {y[r / 2][n][r % 2 * 2] * inverse, y[r / 2][n][r % 2 * 2 + 1] * inverse};
        store_vec(reinterpret_cast<T*>(smem + sm80_place<kV>(row, n)) + lane % 4 * 2, pack<T>(pair));
      }
    }
  }
};

template <class Plan>
__global__ void __launch_bounds__(Plan::kThreads, Plan::kBlocks)
    attention_sm80(const __grid_constant__ AttentionCall c, const __grid_constant__ Rows<3> rows,
                   const __grid_constant__ Sm80Grid grid) {
  if constexpr (kHasAsyncCopy) {
    using T = typename Plan::T;
    constexpr int kN = Plan::kN, kSlots = Plan::kSlots, kSlotBytes = Plan::kSlotBytes;
    extern __shared__ __align__(128) char smem[];
    const uint32_t q_smem = smem_address(smem), ring = q_smem + Plan::kQBytes;
    uint32_t* ranges = reinterpret_cast<uint32_t*>(smem + Plan::kQBytes + kSlots * kSlotBytes);
    Sm80Block& block = *reinterpret_cast<Sm80Block*>(ranges + Plan::kM);
    pdl_wait();
    pdl_launch();
    const int group = static_cast<int>(c.heads) / static_cast<int>(c.kv_heads);
    if (!sm80_block<Plan>(c, grid, group, &block, ranges)) return;
    __syncthreads();

    // Where the rows of q are stands in the last slot until it is filled.
    int64_t* places = reinterpret_cast<int64_t*>(smem + Plan::kQBytes + (kSlots - 1) * kSlotBytes);
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

    // Keys and values by turns, kSlots - 1 ahead
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
#pragma unroll
    for (int i = 0; i < kSlots - 1; ++i) load(i % 2, ring + i * kSlotBytes, block.tile_begin + i / 2);
    int at = 0;  // of the ring
    const auto slot_at = [&](int i) { return ring + (i >= kSlots ? i - kSlots : i) * kSlotBytes; };
    const auto next_slot = [&] { at = at == kSlots - 1 ? 0 : at + 1; };

    // Where this lane's rows of fragments are: q and keys along head_dim, values across
    const int lane = threadIdx.x % 32, warp_row = threadIdx.x / 32 * Plan::kWarpM;
    const uint32_t q_lane = q_smem + sm80_place<Plan::kD>(warp_row + lane % 16, lane / 16);
    const uint32_t k_lane = sm80_place<Plan::kD>(lane / 16 * 8 + lane % 8, lane / 8 % 2);
    const uint32_t v_lane = sm80_place<Plan::kV>(lane % 16, lane / 16);
    const float factor = c.softcap == 0.f && !c.alibi ? c.scale * kLog2e : 1.f;
    Sm80Rows<Plan> own;

#pragma unroll 1
    for (int tile = block.tile_begin; tile < block.tile_end; ++tile) {
      // The keys are there, and all warps have left the slot that is filled next.
      copy_wait<kSlots - 2>();
      __syncthreads();
      load((kSlots - 1) % 2, slot_at(at + kSlots - 1), tile + (kSlots - 1) / 2);
      if constexpr (Plan::kHoldQ)
        if (tile == block.tile_begin) own.hold_q(q_lane);
      own.multiply_keys(q_lane, slot_at(at) + k_lane);
      next_slot();
      if (tile < block.whole_begin || tile >= block.whole_end) own.look(c, block, ranges, group, tile);
      own.weigh(factor);
      // The values are there
      copy_wait<kSlots - 2>();
      __syncthreads();
      load(kSlots % 2, slot_at(at + kSlots - 1), tile + kSlots / 2);
      own.add_values(slot_at(at) + v_lane);
      next_slot();
    }
    copy_wait<0>();
    __syncthreads();

    // y in place of q, states and where the rows of y are in place of the ring; then out, in whole lines
    float2* states = reinterpret_cast<float2*>(smem + Plan::kQBytes);
    places = reinterpret_cast<int64_t*>(states + Plan::kM);
    own.put(c.sinks, block, group, factor, smem, states);
    __syncthreads();
    sm80_finish_rows<Plan>(c, block, group, rows, states, places);
    __syncthreads();
    using Share = Sm80Share<Plan::kV, Plan::kThreads>;
#pragma unroll 2
    for (int i = 0; i < Plan::kM / Share::kHop; ++i) {
      const int row = Share::row() + i * Share::kHop;
      if (block.row0 + row >= block.row_end) break;
      T* to = static_cast<T*>(c.y.data) + places[row] + block.part * Plan::kV + Share::column();
#pragma unroll
      for (int span = 0; span < Share::kSpans; ++span)
        if (Share::column() + span * 64 < block.v_left)
          store_vec(to + span * 64,
                    load_vec<T, 8>(reinterpret_cast<const T*>(smem + Share::place() + Share::step(i, span))));
    }
  }
}

}  // namespace ek
