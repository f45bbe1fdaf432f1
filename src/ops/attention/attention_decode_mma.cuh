// SPDX-License-Identifier: Apache-2.0
// Decode with tensor cores on sm_80 and newer. The visible keys of all sequences and kv heads stand in one line of tiles,
// and every block (one to an SM) takes a stretch of it, found on the device from kv_len: attention_split.h. The tiles of a
// stretch go round over its groups of warps (mostly one warp each), every group with a ring of its own that cp.async fills,
// so nobody waits for another until an item ends and the groups' states are added up. An item of several blocks
// is merged by the one that ends last, in the order of its keys, whoever that is: the bits never depend on it.
#pragma once

#include "cuda/pdl.cuh"
#include "cuda/reduce.cuh"
#include "ops/attention/attention_decode_tile.cuh"

namespace ek {

struct DecodeSmem {
  char* ring;       // [groups, stages]
  float* sums;      // [groups, kMergeRows, kMergeStride]
  float2* bases;    // [groups, 16]: maximum and total
  char* q;          // [16, kDim]
  DecodeRow* rows;  // [16]
  int64_t* first;
  int2* keys;
  int* flag;
};

template <class Plan>
__device__ __forceinline__ DecodeSmem decode_smem(char* smem, int groups) {
  DecodeSmem s;
  s.ring = smem;
  s.q = s.ring + groups * Plan::kStages * Plan::kStageBytes;
  s.sums = reinterpret_cast<float*>(s.q + kDecodeRows * Plan::kDim * 2);
  s.bases = reinterpret_cast<float2*>(s.sums + groups * Plan::kMergeRows * Plan::kMergeStride);
  s.first = reinterpret_cast<int64_t*>(s.bases + groups * kDecodeRows);
  s.keys = reinterpret_cast<int2*>(s.first + kDecodeBatch + 1);
  s.rows = reinterpret_cast<DecodeRow*>(s.keys + kDecodeBatch);
  s.flag = reinterpret_cast<int*>(s.rows + kDecodeRows);
  return s;
}

// The item's row r: its query and head.
struct DecodePlace {
  int query, head;
};
__device__ __forceinline__ DecodePlace decode_place(const DecodeParams& p, int kv_head, int row) {
  const int query = row / p.group;
  return {query, kv_head * p.group + row - query * p.group};
}

// A row of y and its lse. columns: four of them, from `column` on, not yet divided. base, total: of all keys.
__device__ __forceinline__ void decode_write(const DecodeParams& p, int64_t sequence, DecodePlace at, int column,
                                             float4 y, float base, float total) {
  const AttentionCall& c = p.c;
  if (c.sinks) {
    const float sink = c.sinks[at.head] * kLog2e, most = decode_base(fmaxf(base, sink));
    const float keep = CudaMathFast::exp2(base - most);
    total = total * keep + CudaMathFast::exp2(sink - most);
    y.x *= keep, y.y *= keep, y.z *= keep, y.w *= keep;
    base = most;
  }
  const float inverse = total == 0.f ? 0.f : 1.f / total;
  const float v[4] = {y.x * inverse, y.y * inverse, y.z * inverse, y.w * inverse};
  const int64_t to = sequence * c.y.stride[0] + at.query * c.y.stride[1] + at.head * c.y.stride[2] + column;
  if (c.T == EK_DTYPE_F16)
    store_vec(static_cast<half*>(c.y.data) + to, pack<half, 4>(v));
  else
    store_vec(static_cast<bf16*>(c.y.data) + to, pack<bf16, 4>(v));
  if (column == 0 && c.lse.data)
    static_cast<float*>(
        c.lse.data)[sequence * c.lse.stride[0] + at.query * c.lse.stride[1] + at.head * c.lse.stride[2]] =
        total == 0.f ? -INFINITY : (decode_base(base) + log2f(total)) * 0.6931471805599453f;
}

// Lengths to units, for all sequences of the launch: every block finds the same.
__device__ __forceinline__ void decode_schedule(const DecodeParams& p, const DecodeSmem& s) {
  const Sequences& seqs = p.c.seqs;
  const int lane = threadIdx.x % 32, batch = static_cast<int>(p.c.batch);
  for (int b = threadIdx.x; b < batch; b += blockDim.x) {
    const int64_t q_len = seqs.q_len;
    const KeyRange keys = visible(p.c.mask, 0, q_len - 1, q_len, seqs.kv_count(b), seqs.prefix(b));
    s.keys[b] = make_int2(static_cast<int>(keys.begin), static_cast<int>(keys.end));
    s.first[b + 1] = split_units(p.split, split_tiles(p.split, keys));
  }
  __syncthreads();
  if (threadIdx.x >= 32) return;
  int64_t before = 0;
  for (int b = lane; b < (batch + 31) / 32 * 32; b += 32) {
    int64_t sum = b < batch ? s.first[b + 1] : 0;
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
      const int64_t other = __shfl_up_sync(0xffffffffu, sum, d);
      if (lane >= d) sum += other;
    }
    sum += before;
    if (b < batch) s.first[b + 1] = sum;
    before = __shfl_sync(0xffffffffu, sum, 31);
  }
  if (lane == 0) s.first[0] = 0;
}

// The rows of an item: q to shared memory, and what masks and scores need. 8-bit caches are multiplied in f16: each row of
// q is then brought to a largest value near 2^7 by a power of two, which loses nothing of bf16's range or digits.
template <class Plan>
__device__ __forceinline__ void decode_rows(const DecodeParams& p, const DecodeSmem& s, const AttentionPiece& piece) {
  using M = typename Plan::M;
  const AttentionCall& c = p.c;
  const int lane = threadIdx.x % 32, kv_head = static_cast<int>(row_quotient(piece.head, p.row_blocks));
  const int row0 = static_cast<int>(piece.head - kv_head * p.row_blocks) * kDecodeRows;
  for (int r = threadIdx.x / 32; r < kDecodeRows; r += blockDim.x / 32) {
    const bool exists = row0 + r < p.rows;
    const DecodePlace at = decode_place(p, kv_head, exists ? row0 + r : 0);
    const uint32_t* q = reinterpret_cast<const uint32_t*>(
        static_cast<const char*>(c.q.data) +
        (piece.sequence * c.q.stride[0] + at.query * c.q.stride[1] + at.head * c.q.stride[2]) * 2);
    constexpr int kPairs = Plan::kDim / 64;
    uint32_t pairs[kPairs];
#pragma unroll
    for (int i = 0; i < kPairs; ++i)
      pairs[i] = exists && (lane + 32 * i) * 2 < c.head_dim ? q[lane + 32 * i] : 0u;
    float factor = c.scale * (c.softcap > 0.f ? 1.f / c.softcap : kLog2e);
    if constexpr (Plan::kNarrow) {
      float values[kPairs][2], most = 0.f;
#pragma unroll
      for (int i = 0; i < kPairs; ++i) {
        const bool f16 = c.T == EK_DTYPE_F16;
        const float2 pair = __half22float2(*reinterpret_cast<const __half2*>(&pairs[i]));
        values[i][0] = f16 ? pair.x : __uint_as_float(pairs[i] << 16);
        values[i][1] = f16 ? pair.y : __uint_as_float(pairs[i] & 0xffff0000u);
#pragma unroll
        for (int j = 0; j < 2; ++j)
          if (fabsf(values[i][j]) < INFINITY) most = fmaxf(most, fabsf(values[i][j]));
      }
      most = warp_reduce(most, MaxNan());
      // 2^(7 - exponent) and its inverse, both normal numbers: exponent in [-113, 120]
      const int biased = static_cast<int>(__float_as_uint(most) >> 23), exponent = (biased < 14 ? 14 : biased > 247 ? 247 : biased) - 127;
      const float up = __uint_as_float(static_cast<uint32_t>(127 + 7 - exponent) << 23);
      factor *= __uint_as_float(static_cast<uint32_t>(127 - 7 + exponent) << 23);
      if (c.k.scale && !p.k_tokens) factor *= c.k.scale[kv_head * c.k.scale_head];
#pragma unroll
      for (int i = 0; i < kPairs; ++i) pairs[i] = pack_pair<M>(values[i][0] * up, values[i][1] * up);
    }
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      int pair = lane + 32 * i;
      if constexpr (Plan::kNarrow) pair = (pair & ~7) | (pair >> 1 & 3) | (pair & 1) << 2;
      *reinterpret_cast<uint32_t*>(s.q + decode_chunk<Plan::kDim / 8>(r, pair / 4) + pair % 4 * 4) = pairs[i];
    }
    if (lane == 0) {
      const int64_t kv_len = c.seqs.kv_count(piece.sequence), q_len = c.seqs.q_len;
      const KeyRange keys =
          exists ? visible(c.mask, at.query, q_len, kv_len, c.seqs.prefix(piece.sequence)) : KeyRange{0, 0};
      s.rows[r] = {factor, c.alibi ? c.alibi[at.head] * kLog2e : 0.f, static_cast<int>(at.query + kv_len - q_len),
                   static_cast<int>(keys.begin), static_cast<int>(keys.end)};
    }
  }
}

// All states of an item, in order, by one block: threads side by side along columns, and `parts` of them share the states
// of a column where there are few.
template <class Plan>
__device__ __forceinline__ void decode_merge(const DecodeParams& p, const DecodeSmem& s, const AttentionPiece& piece,
                                             const AttentionStates& states) {
  const int kv_head = static_cast<int>(row_quotient(piece.head, p.row_blocks));
  const int row0 = static_cast<int>(piece.head - kv_head * p.row_blocks) * kDecodeRows;
  const int columns = static_cast<int>(p.c.v_dim / 4), rows = min(p.rows - row0, kDecodeRows);
  const int threads = blockDim.x, count = static_cast<int>(states.count);
  // The base and the total of each row
  for (int r = threadIdx.x / 32; r < rows; r += threads / 32) {
    float most = -INFINITY, total = 0.f;
    for (int i = threadIdx.x % 32; i < count; i += 32)
      most = fmaxf(most, __ldcg(p.bases + states.slot(i) * p.slot_rows + r).x);
    most = warp_reduce(most, MaxNan());
    for (int i = threadIdx.x % 32; i < count; i += 32) {
      const float2 state = __ldcg(p.bases + states.slot(i) * p.slot_rows + r);
      total += state.y * CudaMathFast::exp2(state.x - decode_base(most));
    }
    total = warp_reduce(total, Sum());
    if (threadIdx.x % 32 == 0) s.bases[r] = make_float2(most, total);
  }
  __syncthreads();
  // Their sums
  const int work = rows * columns, parts = work * 2 <= threads ? threads / work : 1;
  for (int first = 0; first < work; first += threads) {
    const int part = parts > 1 ? threadIdx.x / work : 0, at = parts > 1 ? threadIdx.x - part * work : first + threadIdx.x;
    const int row = at / columns, column = (at - row * columns) * 4;
    const bool busy = at < work && part < parts;
    float4 y = {0.f, 0.f, 0.f, 0.f};
    if (busy) {
      const float base = decode_base(s.bases[row].x);
#pragma unroll 8
      for (int i = part; i < count; i += parts) {
        const int64_t slot = states.slot(i) * p.slot_rows + row;
        const float weight = CudaMathFast::exp2(__ldcg(p.bases + slot).x - base);
        const float4 x = __ldcg(reinterpret_cast<const float4*>(p.states + slot * p.c.v_dim + column));
        y.x = fmaf(weight, x.x, y.x), y.y = fmaf(weight, x.y, y.y);
        y.z = fmaf(weight, x.z, y.z), y.w = fmaf(weight, x.w, y.w);
      }
    }
    if (parts > 1) {
      float4* sums = reinterpret_cast<float4*>(s.sums);
      sums[threadIdx.x] = y;
      __syncthreads();
      for (int i = 1; i < parts && part == 0; ++i) {
        const float4 x = sums[i * work + at];
        y.x += x.x, y.y += x.y, y.z += x.z, y.w += x.w;
      }
    }
    if (busy && part == 0)
      decode_write(p, piece.sequence, decode_place(p, kv_head, row0 + row), column, y, s.bases[row].x, s.bases[row].y);
  }
  __syncthreads();  // bases and sums are written again
}

// The groups' states become one: the item's result, or a state of it in the workspace.
template <class Plan>
__device__ __forceinline__ void decode_finish(const DecodeParams& p, const DecodeSmem& s, const DecodeBlock& block,
                                              const AttentionPiece& piece, DecodeTile<Plan>& tile, int group,
                                              int groups, int slice) {
  const AttentionCall& c = p.c;
  const int lane = threadIdx.x % 32, kv_head = static_cast<int>(row_quotient(piece.head, p.row_blocks));
  const int row0 = static_cast<int>(piece.head - kv_head * p.row_blocks) * kDecodeRows;
  const int columns = static_cast<int>(c.v_dim / 4), rows = min(p.rows - row0, kDecodeRows);
  tile.finish();
  if (lane % 4 == 0 && slice == 0)
#pragma unroll
    for (int r = 0; r < 2; ++r)
      s.bases[group * kDecodeRows + lane / 4 + 8 * r] = make_float2(tile.most[r], tile.total[r]);
  __syncthreads();
  // Every group's sums, on the base of all
  const float v_scale = c.v.scale && !p.v_tokens ? c.v.scale[kv_head * c.v.scale_head] : 1.f;
  float factor[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float most = -INFINITY;
    for (int g = 0; g < groups; ++g) most = fmaxf(most, s.bases[g * kDecodeRows + lane / 4 + 8 * r].x);
    factor[r] = CudaMathFast::exp2(tile.most[r] - decode_base(most)) * v_scale;
  }
  constexpr int kRows = Plan::kMergeRows, kStride = Plan::kMergeStride;
  for (int from = 0; from < rows; from += kRows) {
    if (from > 0) __syncthreads();
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = lane / 4 + 8 * r - from;
      if (row >= 0 && row < kRows) tile.store(s.sums + (group * kRows + row) * kStride, r, factor[r]);
    }
    __syncthreads();
    for (int at = threadIdx.x; at < kRows * columns; at += blockDim.x) {
      const int line = at / columns, column = (at - line * columns) * 4, row = from + line;
      if (row >= rows) break;
      float most = -INFINITY, total = 0.f;
      for (int g = 0; g < groups; ++g) most = fmaxf(most, s.bases[g * kDecodeRows + row].x);
      float4 y = {0.f, 0.f, 0.f, 0.f};
      for (int g = 0; g < groups; ++g) {
        const float2 state = s.bases[g * kDecodeRows + row];
        total += state.y * CudaMathFast::exp2(state.x - decode_base(most));
        const float4 x = *reinterpret_cast<const float4*>(s.sums + (g * kRows + line) * kStride + column);
        y.x += x.x, y.y += x.y, y.z += x.z, y.w += x.w;
      }
      if (piece.slot < 0) {
        decode_write(p, piece.sequence, decode_place(p, kv_head, row0 + row), column, y, most, total);
      } else {
        const int64_t slot = piece.slot * p.slot_rows + row;
        *reinterpret_cast<float4*>(p.states + slot * c.v_dim + column) = y;
        if (column == 0) p.bases[slot] = make_float2(most, total);
      }
    }
  }
  __syncthreads();  // q, rows, bases and sums are written again
  if (piece.slot < 0) return;

  // The block that ends last merges.
  const AttentionStates states = split_states(p.split, block.first, piece.sequence, piece.head, block.share);
  if (threadIdx.x == 0) {
    const int64_t item = p.split.fixed_tiles ? piece.sequence * p.split.heads + piece.head : (states.first - 1) / 2;
    __threadfence();
    const bool last = atomicAdd(&p.counters[item], 1u) + 1 == static_cast<uint32_t>(states.count);
    if (last) p.counters[item] = 0;
    __threadfence();
    *s.flag = last;
  }
  __syncthreads();
  if (*s.flag) decode_merge<Plan>(p, s, piece, states);
}

// Sequences without a visible key: no stretch has them.
__device__ __forceinline__ void decode_empty(const DecodeParams& p, const DecodeSmem& s) {
  const int columns = static_cast<int>(p.c.v_dim / 4), work = static_cast<int>(p.c.heads * p.c.seqs.q_len) * columns;
  for (int b = blockIdx.x; b < p.c.batch; b += gridDim.x) {
    if (s.first[b + 1] != s.first[b]) continue;
    for (int i = threadIdx.x; i < work; i += blockDim.x) {
      const int row = i / columns, query = row / static_cast<int>(p.c.heads);
      decode_write(p, b, {query, row - query * static_cast<int>(p.c.heads)}, (i - row * columns) * 4,
                   make_float4(0.f, 0.f, 0.f, 0.f), -INFINITY, 0.f);
    }
  }
}

template <class Plan>
__device__ __forceinline__ void decode_block(const DecodeParams& p, char* smem) {
  const int warp = threadIdx.x / 32, groups = blockDim.x / (32 * Plan::kSlices), group = warp / Plan::kSlices;
  const int slice = warp % Plan::kSlices, batch = static_cast<int>(p.c.batch);
  const DecodeSmem s = decode_smem<Plan>(smem, groups);
  decode_schedule(p, s);
  __syncthreads();
  const int64_t total = s.first[batch], share = split_share(p.split, total), begin = share * blockIdx.x;
  const DecodeBlock block = {s.first, s.keys, share, begin, begin + share < total ? begin + share : total};
  decode_empty(p, s);
  if (begin >= total) return;

  // The ring: kStages - 1 tiles are on the way before the first is needed.
  const uint32_t ring = smem_address(s.ring + group * Plan::kStages * Plan::kStageBytes);
  DecodeLoader<Plan> loader(p, block, group, groups, slice);
  for (int i = 0; i < Plan::kStages - 1; ++i) loader.issue(ring + i * Plan::kStageBytes);
  int stage = 0, fill = Plan::kStages - 1;

  for (int64_t unit = begin; unit < block.end;) {
    const AttentionPiece piece = block.piece(p, unit);
    decode_rows<Plan>(p, s, piece);
    const KeyRange keys = block.range(static_cast<int>(piece.sequence));
    const int64_t q_len = p.c.seqs.q_len;
    const KeyRange all = visible_to_all(p.c.mask, 0, q_len - 1, q_len, p.c.seqs.kv_count(piece.sequence),
                                        p.c.seqs.prefix(piece.sequence));
    __syncthreads();
    DecodeTile<Plan> tile;
    tile.begin(smem_address(s.q), s.rows, slice);
    const int base = static_cast<int>(keys.begin) / Plan::kKeys * Plan::kKeys;
    for (int i = static_cast<int>(piece.tile_begin) + group; i < piece.tile_end; i += groups) {
      // The tile is there, and everyone has left the stage that is filled next
      copy_wait<Plan::kStages - 2>();
      if constexpr (Plan::kSlices > 1)
        warps_sync(1 + group, 32 * Plan::kSlices);
      else
        __syncwarp();
      loader.issue(ring + fill * Plan::kStageBytes);
      const int key = base + i * Plan::kKeys;
      tile.step(p, ring + stage * Plan::kStageBytes, key, key < all.begin || key + Plan::kKeys > all.end);
      stage = stage + 1 == Plan::kStages ? 0 : stage + 1;
      fill = fill + 1 == Plan::kStages ? 0 : fill + 1;
    }
    decode_finish<Plan>(p, s, block, piece, tile, group, groups, slice);
    unit += piece.units;
  }
  copy_wait<0>();
}

template <class Plan>
__global__ void __launch_bounds__(kDecodeWarps * 32, 1) decode_mma(const __grid_constant__ DecodeParams p) {
  extern __shared__ __align__(128) char smem[];
  pdl_wait();
  pdl_launch();
  if constexpr (kHasAsyncCopy) decode_block<Plan>(p, smem);
}

}  // namespace ek
