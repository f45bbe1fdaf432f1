// SPDX-License-Identifier: Apache-2.0
// attention of f32 on CUDA cores, exact f32 throughout. A block takes kM rows of one sequence and kv head, a row being a
// query of one head of the group, as in attention_sm80; tiles of 32 keys and values come by turns into shared memory. A
// thread has kRows rows, with 4 scores of a tile and kV / 8 sums each, and 8 lanes have all of a row: warps need no barrier
// for the softmax, and what limits it, loads from shared memory, is 1 for 11 (scores) to 21 (sums) FMAs at 8 rows.
//   Tiles begin at multiples of 32, and those that a query does not see change nothing: a row's bits depend on its own
//   keys alone, whatever block it is in, and however many rows its block has.
#pragma once

#include "cuda/math.cuh"
#include "cuda/pdl.cuh"
#include "cuda/vec.cuh"
#include "ops/attention/attention_cuda_tile.h"
#include "ops/attention/attention_sm80_load.cuh"

namespace ek {

// Shared memory of an SM of this target, for launch bounds.
#if !defined(__CUDA_ARCH__) || (__CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1100)
constexpr int kSmSmem = 228 << 10;
#elif __CUDA_ARCH__ == 800 || __CUDA_ARCH__ == 870
constexpr int kSmSmem = 164 << 10;
#else
constexpr int kSmSmem = (__CUDA_ARCH__ < 800 ? 64 : 100) << 10;
#endif

// kD, kV: head_dim and values of a block, padded with zeros; kRows: of a thread; kSlots: 1 where keys and values take turns
// at one place, else 2; kBlocks: on an SM, where its shared memory is enough.
template <int kD_, int kV_, int kRows_, int kSlots_, int kBlocks_>
struct CudaTilePlan {
  static constexpr int kD = kD_, kV = kV_, kRows = kRows_, kSlots = kSlots_, kBlocks = kBlocks_;
  static constexpr int kWarps = 4, kThreads = kWarps * 32, kWarpM = kRows * 4, kM = kWarps * kWarpM, kN = 32;
  // In floats
  static constexpr int kQ = kM * kD, kKeys = kN * kD, kValues = kN * kV, kWeights = kM * kN;
  static constexpr int kRing = kSlots == 2 ? kKeys + kValues : kKeys > kValues ? kKeys : kValues;
  static constexpr int kSmem = (kQ + kRing + kWeights + kM) * 4 + 128 + kWarps * 16;
  static constexpr int kFit = kSmSmem / (kSmem + 1024), kBounds = kFit < 1 ? 1 : kFit < kBlocks ? kFit : kBlocks;
  static_assert(kD % 64 == 0 && kV % 64 == 0 && kRing * 4 >= kM * 16, "");
};

// The same for all blocks, and better read from constant memory than kept in registers.
struct CudaTileGrid {
  Sm80Grid work;
  int group, steps;  // heads of a kv head; sixteens of head_dim
  float factor;      // of a score, in units of log2 then: 1 where softcap or ALiBi have brought it there
};
inline CudaTileGrid cuda_tile_grid(const AttentionCall& c, const Sm80Tile& t, const Device& device) {
  return {sm80_grid(c, t, device), static_cast<int>(c.heads / c.kv_heads), static_cast<int>((c.head_dim + 15) / 16),
          c.softcap == 0.f && !c.alibi ? c.scale * kLog2e : 1.f};
}

using Chunk = Vec<float, 4>;
using CudaTileBlock = Sm80BlockOf<float>;

// Tiles of which a warp's rows see anything, and those of which they see all and whose scores are plain products.
struct alignas(16) CudaTileSpan {
  int begin, end, whole_begin, whole_end;
};

// A lane's keys and columns (x, 8) and rows (y, 4). Lanes that differ in bit 0 listen to the same rows, those that differ in
// bit 1 to the same keys: then half a warp has its 16-byte chunks at once.
__device__ __forceinline__ int tile_x() { return (threadIdx.x & 1) | (threadIdx.x >> 1 & 6); }
__device__ __forceinline__ int tile_y() { return (threadIdx.x >> 1 & 1) | (threadIdx.x >> 3 & 2); }
// Over the lanes of a row
template <class Op>
__device__ __forceinline__ float reduce_x(float x, Op op) {
  x = op(x, __shfl_xor_sync(0xffffffffu, x, 1));
  x = op(x, __shfl_xor_sync(0xffffffffu, x, 4));
  return op(x, __shfl_xor_sync(0xffffffffu, x, 8));
}

// kCount chunks of a row, kStep apart, the first one `chunk`, of which those below `dim` elements exist; the rest become 0.
// place(i): where the i-th goes.
template <int kCount, int kStep, class Place>
__device__ __forceinline__ void copy_chunks(const float* from, int chunk, int dim, Place&& place) {
  if constexpr (kHasAsyncCopy) {
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      copy_async(smem_address(place(i)), from + (chunk + i * kStep) * 4, (chunk + i * kStep) * 4 < dim ? 16 : 0);
  } else {
    Chunk all[kCount] = {};
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      if ((chunk + i * kStep) * 4 < dim) all[i] = load_vec<float, 4>(from + (chunk + i * kStep) * 4);
#pragma unroll
    for (int i = 0; i < kCount; ++i) *place(i) = all[i];
  }
}

// This thread's share of a tile of K or V: of one key, a chunk of every four. Where nobody sees the key it becomes 0, since
// a weight of 0 must not meet a NaN, and nothing of it is read.
template <int kCount, class Place>
__device__ __forceinline__ void load_key(const CudaTileBlock& block, int token, const float* from, const KvCache& x,
                                         int dim, const Divider& page_size, Place&& place) {
  const bool seen = static_cast<uint32_t>(token - block.begin) < static_cast<uint32_t>(block.end - block.begin);
  int64_t at = 0;
  if (seen) {
    if (const int32_t* table = block.table) {
      const uint32_t index = page_size.divide(token);
      at = table[index] * x.page + (token - index * page_size.divisor) * x.slot;
    } else {
      at = token * x.slot;
    }
  }
  copy_chunks<kCount, 4>(from + at, threadIdx.x % 32 / 8, seen ? dim : 0, place);
}

// Chunks of keys lie as the lanes x = key / 4 ask for them, eight keys side by side.
template <class Plan>
__device__ __forceinline__ void load_keys(Chunk* keys, const CudaTileBlock& block, int tile, const AttentionCall& c,
                                          const Divider& page_size) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  Chunk* to = keys + (warp * (Plan::kD / 4) + lane / 8) * 8 + lane % 8;
  load_key<Plan::kD / 16>(block, tile * Plan::kN + lane % 8 * 4 + warp, block.k, c.k, static_cast<int>(c.head_dim),
                          page_size, [&](int i) { return to + i * 32; });
}
// Values lie in rows, whose chunks are exchanged within 128 bytes: written eight rows at a time, read a row at a time.
template <class Plan>
__device__ __forceinline__ void load_values(Chunk* values, const CudaTileBlock& block, int tile, const AttentionCall& c,
                                            const Divider& page_size) {
  const int lane = threadIdx.x % 32, key = threadIdx.x / 32 * 8 + lane % 8;
  Chunk* to = values + key * (Plan::kV / 4);
  load_key<Plan::kV / 16>(block, tile * Plan::kN + key, block.v, c.v, block.v_left, page_size,
                          [&](int i) { return to + ((lane / 8 + i * 4) ^ lane % 8); });
}

// What a thread keeps of its rows, y + 4 i of the warp: scores of keys 4 x ... 4 x + 3, sums of values in columns
// 4 x + 32 n ... + 3, and what the softmax needs.
template <class Plan>
struct CudaTileRows {
  static constexpr int kRows = Plan::kRows, kN = Plan::kN, kWide = Plan::kV / 32, kD = Plan::kD;
  float s[kRows][4];  // scores, then weights
  float y[kRows][kWide][4] = {};
  float most[kRows], total[kRows];  // the base of the weights so far; their sum over this thread's columns

  __device__ __forceinline__ CudaTileRows() {
#pragma unroll
    for (int i = 0; i < kRows; ++i) most[i] = -INFINITY, total[i] = 0.f;
  }

  static __device__ __forceinline__ int row_of(int i) { return threadIdx.x / 32 * Plan::kWarpM + i * 4 + tile_y(); }

  template <class F>
  __device__ __forceinline__ void each_score(int i, F&& f) {
#pragma unroll
    for (int j = 0; j < 4; ++j) f(s[i][j], j);
  }

  // s = q k. q, k: where this lane's chunks of both begin; steps: of four chunks.
  __device__ __forceinline__ void multiply_keys(const Chunk* q, const Chunk* k, int steps) {
#pragma unroll
    for (int i = 0; i < kRows; ++i) each_score(i, [](float& x, int) { x = 0.f; });
#pragma unroll 1
    for (int step = 0; step < steps; ++step, q += 16, k += 32) {
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        Chunk b[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) b[j] = k[(j * (kD / 4) + n) * 8];
#pragma unroll
        for (int i = 0; i < kRows; ++i) {
          const Chunk a = q[(i * (kD / 4) + n) * 4];
#pragma unroll
          for (int d = 0; d < 4; ++d)
#pragma unroll
            for (int j = 0; j < 4; ++j) s[i][j] = fmaf(a.v[d], b[j].v[d], s[i][j]);
        }
      }
    }
  }

  __device__ __forceinline__ void look(const AttentionCall& c, const CudaTileBlock& block, const uint32_t* ranges,
                                       int group, int tile) {
#pragma unroll
    for (int i = 0; i < kRows; ++i)
      sm80_look<CudaMath>(c, block, ranges[row_of(i)], group, row_of(i), tile * kN + tile_x() * 4,
                          [&](auto&& f) { each_score(i, f); });
  }

  // Weights exp2(s * factor - most * factor), to shared memory. A maximum is raised only when a weight would pass 2^8, and
  // the sums get a new scale: that is rare after the first tile.
  __device__ __forceinline__ void weigh(float factor, Chunk* weights) {
    constexpr float kSlack = 8.f;
    float tile_most[kRows];
    bool raise = false;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      tile_most[i] = fmaxf(fmaxf(s[i][0], s[i][1]), fmaxf(s[i][2], s[i][3]));
      raise |= (tile_most[i] - most[i]) * factor > kSlack;
    }
    if (__any_sync(0xffffffffu, raise)) {
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        const float row_most = reduce_x(tile_most[i], [](float a, float b) { return fmaxf(a, b); });
        const bool more = (row_most - most[i]) * factor > kSlack;
        const float keep = more ? exp2f((most[i] - row_most) * factor) : 1.f;
        most[i] = more ? row_most : most[i];
        total[i] *= keep;
#pragma unroll
        for (int n = 0; n < kWide * 4; ++n) y[i][n / 4][n % 4] *= keep;
      }
    }
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      // A row that has seen nothing yet: inf - inf would make NaN
      const float base = most[i] == -INFINITY ? 0.f : most[i] * factor;
      Chunk p;
      each_score(i, [&](float& x, int at) {
        p.v[at] = exp2f(fmaf(x, factor, -base));
        total[i] += p.v[at];
      });
      weights[(i * 8 + tile_x()) * 4 + tile_y()] = p;
    }
  }

  // y += p v
  __device__ __forceinline__ void add_values(const Chunk* weights, const Chunk* values) {
    const Chunk* p = weights + tile_y();
    const Chunk* v = values;
#pragma unroll 1
    for (int four = 0; four < kN / 4; ++four, p += 4, v += Plan::kV) {
      Chunk a[kRows];
#pragma unroll
      for (int i = 0; i < kRows; ++i) a[i] = p[i * 32];
#pragma unroll
      for (int key = 0; key < 4; ++key) {
        Chunk b[kWide];
        const int at = tile_x() ^ key ^ (four & 1) * 4;
#pragma unroll
        for (int n = 0; n < kWide; ++n) b[n] = v[key * (Plan::kV / 4) + n * 8 + at];
#pragma unroll
        for (int i = 0; i < kRows; ++i)
#pragma unroll
          for (int n = 0; n < kWide * 4; ++n)
            y[i][n / 4][n % 4] = fmaf(a[i].v[key], b[n / 4].v[n % 4], y[i][n / 4][n % 4]);
      }
    }
  }

  // Divides y by the sum of the weights, the sink among them; states: base and sum of each row, for lse.
  __device__ __forceinline__ void divide(const float* sinks, const CudaTileBlock& block, int group, float factor,
                                         float2* states) {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int row = row_of(i), head = block.kv_head * group + (block.row0 + row) % group;
      const float sink = sinks ? sinks[head] * kLog2e : -INFINITY;
      const float own = reduce_x(total[i], [](float a, float b) { return a + b; });  // 0: a row that has seen nothing
      const float seen = own == 0.f ? -INFINITY : most[i] == -INFINITY ? 0.f : most[i] * factor;
      const float larger = seen > sink ? seen : sink, base = larger == -INFINITY ? 0.f : larger;
      const float scale = exp2f(seen - base), sum = own * scale + exp2f(sink - base);
      const float inverse = sum == 0.f ? 0.f : scale / sum;
      if (tile_x() == 0) states[row] = make_float2(base, sum);
#pragma unroll
      for (int n = 0; n < kWide * 4; ++n) y[i][n / 4][n % 4] *= inverse;
    }
  }
};

template <class Plan>
__device__ __forceinline__ CudaTileSpan cuda_tile_span(const AttentionCall& c, const CudaTileBlock& block,
                                                       const uint32_t* ranges) {
  const int first = threadIdx.x / 32 * Plan::kWarpM;
  const int last = min(first + Plan::kWarpM, block.row_end - block.row0) - 1;
  if (last < first) return {0, 0, 0, 0};
  const int begin = block.begin + static_cast<int>(ranges[first] & 0xffff),
            end = block.end - static_cast<int>(ranges[last] >> 16);
  const int all_begin = block.begin + static_cast<int>(ranges[last] & 0xffff),
            all_end = block.end - static_cast<int>(ranges[first] >> 16);
  const bool plain = c.softcap == 0.f && !c.alibi;
  return {begin / Plan::kN, end > begin ? (end + Plan::kN - 1) / Plan::kN : 0,
          plain ? (all_begin + Plan::kN - 1) / Plan::kN : 0x7fffffff, all_end / Plan::kN};
}

template <class Plan>
__global__ void __launch_bounds__(Plan::kThreads, Plan::kBounds)
    attention_cuda_tile(const __grid_constant__ AttentionCall c, const __grid_constant__ Rows<3> rows,
                        const __grid_constant__ CudaTileGrid grid) {
  extern __shared__ __align__(128) float cuda_tile_smem[];
  Chunk* q = reinterpret_cast<Chunk*>(cuda_tile_smem);
  Chunk* keys = q + Plan::kQ / 4;
  Chunk* values = keys + (Plan::kSlots == 2 ? Plan::kKeys / 4 : 0);
  Chunk* weights = keys + Plan::kRing / 4;
  uint32_t* ranges = reinterpret_cast<uint32_t*>(weights + Plan::kWeights / 4);
  CudaTileBlock& block = *reinterpret_cast<CudaTileBlock*>(ranges + Plan::kM);
  CudaTileSpan& span = reinterpret_cast<CudaTileSpan*>(ranges + Plan::kM + 32)[threadIdx.x / 32];
  pdl_wait();
  pdl_launch();
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  if (!sm80_block<Plan>(c, grid.work, grid.group, &block, ranges)) return;
  __syncthreads();

  // Where the rows of q are stands in place of the keys until these are asked for.
  int64_t* places = reinterpret_cast<int64_t*>(keys);
  sm80_each_row<Plan>(block, grid.group, [&](int row, int64_t token, int head) {
    places[row] = rows.offset(0, token) + head * c.q.stride[c.lead];
  });
  if (lane == 0) span = cuda_tile_span<Plan>(c, block, ranges);
  __syncthreads();
  // Chunks of q lie as the lanes y ask for them, four rows side by side.
#pragma unroll 1
  for (int i = 0; i < Plan::kRows; ++i) {
    const int row = warp * Plan::kWarpM + i * 4 + lane % 4;
    const bool exists = block.row0 + row < block.row_end;
    Chunk* to = q + ((warp * Plan::kRows + i) * (Plan::kD / 4) + lane / 4) * 4 + lane % 4;
    copy_chunks<Plan::kD / 32, 8>(static_cast<const float*>(c.q.data) + (exists ? places[row] : 0), lane / 4,
                                  exists ? static_cast<int>(c.head_dim) : 0, [&](int n) { return to + n * 32; });
  }
  copy_commit();
  __syncthreads();

  const auto ask_keys = [&](int tile) {
    load_keys<Plan>(keys, block, tile, c, grid.work.page_size);
    copy_commit();
  };
  const auto ask_values = [&](int tile) {
    load_values<Plan>(values, block, tile, c, grid.work.page_size);
    copy_commit();
  };
  constexpr bool kTurns = Plan::kSlots == 1;
  const Chunk* q_lane = q + warp * Plan::kRows * Plan::kD + tile_y();
  Chunk* own_weights = weights + warp * Plan::kRows * Plan::kN;
  CudaTileRows<Plan> own;

  if (!kTurns && block.tile_begin < block.tile_end) ask_keys(block.tile_begin);
#pragma unroll 1
  for (int tile = block.tile_begin; tile < block.tile_end; ++tile) {
    const bool mine = tile >= span.begin && tile < span.end;
    if constexpr (kTurns) {
      if (tile > block.tile_begin) __syncthreads();  // all warps have left the values
      ask_keys(tile);
    }
    // The keys are there, and all warps have left the values of the tile before.
    copy_wait<0>();
    __syncthreads();
    if constexpr (!kTurns) ask_values(tile);
    if (mine) {
      own.multiply_keys(q_lane, keys + tile_x(), grid.steps);
      if (tile < span.whole_begin || tile >= span.whole_end) own.look(c, block, ranges, grid.group, tile);
      own.weigh(grid.factor, own_weights);
    }
    if constexpr (kTurns) {
      __syncthreads();  // all warps have left the keys
      ask_values(tile);
    }
    // The values are there, and all warps have left the keys.
    copy_wait<0>();
    __syncthreads();
    if (!kTurns && tile + 1 < block.tile_end) ask_keys(tile + 1);
    if (mine) own.add_values(own_weights, values);
  }
  copy_wait<0>();
  __syncthreads();

  // States and where the rows of y are, in place of keys and values; then out, in whole lines
  float2* states = reinterpret_cast<float2*>(keys);
  places = reinterpret_cast<int64_t*>(states + Plan::kM);
  own.divide(c.sinks, block, grid.group, grid.factor, states);
  __syncthreads();
  sm80_finish_rows<Plan>(c, block, grid.group, rows, states, places);
  __syncthreads();
#pragma unroll
  for (int i = 0; i < Plan::kRows; ++i) {
    const int row = own.row_of(i);
    if (block.row0 + row >= block.row_end) break;
    float* to = static_cast<float*>(c.y.data) + places[row] + block.part * Plan::kV + tile_x() * 4;
#pragma unroll
    for (int n = 0; n < Plan::kV / 32; ++n)
      if (tile_x() * 4 + n * 32 < block.v_left) store_vec(to + n * 32, pack<float>(own.y[i][n]));
  }
}

}  // namespace ek
