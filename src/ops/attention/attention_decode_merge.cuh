// SPDX-License-Identifier: Apache-2.0
// From states of an item (sums of values, their maximum and total) to its result: through the workspace, by the block that
// ends last, or through the shared memory of a cluster, by all of its blocks. The order of the sums is that of the keys.
#pragma once

#include "cuda/cluster.cuh"
#include "cuda/reduce.cuh"
#include "cuda/tma.cuh"
#include "cuda/traffic.cuh"
#include "ops/attention/attention_decode_tile.cuh"

namespace ek {

// What threads of a block tell one another.
struct DecodeNotes {
  int last;     // this block is the last one of its item to end
  int longest;  // units of the longest sequence
  int empty;    // there are sequences without a unit
  int blocks;   // of this cluster, which share its only item; 0: this block has a stretch of the line
  int teams;    // clusters that do
  int shift;    // 2^shift vectors of the result for each block of a cluster
};

template <class Plan>
struct DecodeSmem {
  char* ring;       // Plan::ring_bytes
  float* sums;      // [groups, kMergeRows, kMergeStride]
  float2* bases;    // [groups, kRows]: maximum and total
  char* q;          // [kRows, kDim]
  DecodeRow* rows;  // [kRows]
  typename Plan::I* first;
  DecodeSequence* sequences;
  DecodeNotes* notes;
  uint64_t* arrived;  // a barrier for the states of the cluster's other blocks, where there are clusters
};

template <class Plan>
__device__ __forceinline__ DecodeSmem<Plan> decode_smem(char* smem, int groups) {
  DecodeSmem<Plan> s;
  s.ring = smem;
  s.q = s.ring + Plan::ring_bytes(groups);
  s.sums = reinterpret_cast<float*>(s.q + Plan::kRows * Plan::kDim * 2);
  s.bases = reinterpret_cast<float2*>(s.sums + groups * Plan::kMergeRows * Plan::kMergeStride);
  s.sequences = reinterpret_cast<DecodeSequence*>(s.bases + groups * Plan::kRows);
  s.first = reinterpret_cast<typename Plan::I*>(s.sequences + kDecodeBatch);
  s.rows = reinterpret_cast<DecodeRow*>(s.first + kDecodeBatch + 1);
  s.notes = reinterpret_cast<DecodeNotes*>(s.rows + Plan::kRows);
  s.arrived = nullptr;
  return s;
}

// The threads of a block that multiply, and a barrier among them.
template <class Plan>
__device__ __forceinline__ int decode_threads() {
  return Plan::kLoadWarps > 0 ? Plan::kWarps * 32 : static_cast<int>(blockDim.x);
}
template <class Plan>
__device__ __forceinline__ void decode_sync() {
  if constexpr (Plan::kLoadWarps > 0)
    warps_sync(1, Plan::kWarps * 32);
  else
    __syncthreads();
}

// What an item is: its kv head, and rows [row, row + rows) of those that share it.
struct DecodeItem {
  int kv_head, row, rows;
};
__device__ __forceinline__ DecodeItem decode_item(const DecodeParams& p, int head) {
  if (p.row_blocks == 1) return {head, 0, p.rows};
  const int kv_head = head / p.row_blocks, row = (head - kv_head * p.row_blocks) * kDecodeRows;
  return {kv_head, row, min(p.rows - row, kDecodeRows)};
}

// The query and head of a row.
struct DecodePlace {
  int query, head;
};
__device__ __forceinline__ DecodePlace decode_place(const DecodeParams& p, const DecodeItem& item, int row) {
  if (p.c.seqs.q_len == 1) return {0, item.kv_head * p.group + row + item.row};
  const int query = (row + item.row) / p.group;
  return {query, item.kv_head * p.group + row + item.row - query * p.group};
}

// The row that a vector of four columns belongs to, of rows that follow one another.
__device__ __forceinline__ int decode_line(const DecodeParams& p, int vector) {
  return static_cast<int>(p.columns.divide(static_cast<uint32_t>(vector)));
}

// A row of y and its lse. columns: four of them, from `column` on, not yet divided. base, total: of all keys.
__device__ __forceinline__ void decode_write(const DecodeOut& out, int64_t sequence, DecodePlace at, int column,
                                             float4 y, float base, float total) {
  if (out.sinks) {
    const float sink = out.sinks[at.head] * kLog2e, most = finite_base(fmaxf(base, sink));
    const float keep = CudaMathFast::exp2(base - most);
    total = total * keep + CudaMathFast::exp2(sink - most);
    y.x *= keep, y.y *= keep, y.z *= keep, y.w *= keep;
    base = most;
  }
  const float inverse = total == 0.f ? 0.f : CudaMathFast::reciprocal(total);
  const float v[4] = {y.x * inverse, y.y * inverse, y.z * inverse, y.w * inverse};
  const int64_t to = sequence * out.y_stride[0] + at.query * out.y_stride[1] + at.head * out.y_stride[2] + column;
  if (out.dtype == EK_DTYPE_F16)
    store_vec(static_cast<half*>(out.y) + to, pack<half, 4>(v));
  else
    store_vec(static_cast<bf16*>(out.y) + to, pack<bf16, 4>(v));
  if (column == 0 && out.lse)
    out.lse[sequence * out.lse_stride[0] + at.query * out.lse_stride[1] + at.head * out.lse_stride[2]] =
        total == 0.f ? -INFINITY : (finite_base(base) + log2f(total)) * kLn2;
}
__device__ __forceinline__ void decode_write(const DecodeParams& p, int64_t sequence, DecodePlace at, int column,
                                             float4 y, float base, float total) {
  decode_write(p.out, sequence, at, column, y, base, total);
}

// A sum of values that grows by states: most and total as in a state.
struct DecodeSum {
  float4 y = {0.f, 0.f, 0.f, 0.f};
  float most = -INFINITY, total = 0.f;

  template <int N>
  __device__ __forceinline__ void add(const float2 (&base)[N], const float4 (&x)[N]) {
    float now = most;
#pragma unroll
    for (int i = 0; i < N; ++i) now = fmaxf(now, base[i].x);
    const float zero = finite_base(now), keep = CudaMathFast::exp2(most - zero);
    most = now;
    total *= keep;
    y.x *= keep, y.y *= keep, y.z *= keep, y.w *= keep;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float weight = CudaMathFast::exp2(base[i].x - zero);
      total = fmaf(weight, base[i].y, total);
      y.x = fmaf(weight, x[i].x, y.x), y.y = fmaf(weight, x[i].y, y.y);
      y.z = fmaf(weight, x[i].z, y.z), y.w = fmaf(weight, x[i].w, y.w);
    }
  }
};

// The sum of `count` states of a vector, `step` and `base_step` apart. kGlobal: written by other blocks.
template <int kAtOnce, bool kGlobal>
__device__ __forceinline__ DecodeSum decode_add(const float4* sums, int step, const float2* bases, int base_step,
                                                int count) {
  DecodeSum sum;
#pragma unroll 1
  for (int from = 0; from < count; from += kAtOnce) {
    float2 base[kAtOnce];
    float4 x[kAtOnce];
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      const int i = min(from + j, count - 1);
      base[j] = kGlobal ? __ldcg(bases + i * base_step) : bases[i * base_step];
      x[j] = kGlobal ? __ldcg(sums + i * step) : sums[i * step];
      if (from + j >= count) base[j] = make_float2(-INFINITY, 0.f), x[j] = make_float4(0.f, 0.f, 0.f, 0.f);
    }
    sum.add(base, x);
  }
  return sum;
}

// All states of an item by one block: threads side by side along columns, `parts` of them to a column where there are few.
// The order of the sums is that of the keys.
template <class Plan>
__device__ __forceinline__ void decode_merge(const DecodeParams& p, const DecodeSmem<Plan>& s,
                                             const AttentionPieceOf<typename Plan::I>& piece,
                                             const AttentionStatesOf<typename Plan::I>& states, int groups) {
  constexpr int kAtOnce = Plan::kStatesAtOnce;
  const DecodeItem item = decode_item(p, piece.head);
  const int columns = static_cast<int>(p.c.v_dim) / 4, work = item.rows * columns;
  const int threads = decode_threads<Plan>(), count = static_cast<int>(states.count);
  const int room = groups * Plan::kMergeRows * Plan::kMergeStride / 6;  // states of one column, 24 bytes each, in sums
  const int share = (threads < room ? threads : room) / work, parts = share > 1 && count > kAtOnce ? share : 1;
  const int part = parts > 1 ? threadIdx.x / work : 0, each = (count + parts - 1) / parts;
  const int end = min((part + 1) * each, count);
  for (int at = threadIdx.x - part * work; at < work && part < parts; at += parts > 1 ? work : threads) {
    const int row = decode_line(p, at), column = (at - row * columns) * 4;
    DecodeSum sum;
    for (int i = part * each; i < end; i += kAtOnce) {
      float2 base[kAtOnce];
      float4 x[kAtOnce];
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        const int64_t slot = int64_t{states.slot(min(i + j, end - 1))} * p.slot_rows + row;
        base[j] = __ldcg(p.bases + slot);
        x[j] = __ldcg(reinterpret_cast<const float4*>(p.states + slot * p.c.v_dim + column));
        if (i + j >= end) base[j] = make_float2(-INFINITY, 0.f), x[j] = make_float4(0.f, 0.f, 0.f, 0.f);
      }
      sum.add(base, x);
    }
    if (parts > 1) {
      float4* sums = reinterpret_cast<float4*>(s.sums);
      float2* bases = reinterpret_cast<float2*>(sums + parts * work);
      sums[threadIdx.x] = sum.y, bases[threadIdx.x] = make_float2(sum.most, sum.total);
    } else {
      decode_write(p, piece.sequence, decode_place(p, item, row), column, sum.y, sum.most, sum.total);
    }
  }
  decode_sync<Plan>();
  if (parts == 1) return;
  if (static_cast<int>(threadIdx.x) < work) {
    const int row = decode_line(p, threadIdx.x);
    const float4* sums = reinterpret_cast<const float4*>(s.sums);
    const float2* bases = reinterpret_cast<const float2*>(sums + parts * work);
    DecodeSum sum;
    for (int i = 0; i < parts; ++i) {
      const float2 base[1] = {bases[i * work + threadIdx.x]};
      const float4 x[1] = {sums[i * work + threadIdx.x]};
      sum.add(base, x);
    }
    decode_write(p, piece.sequence, decode_place(p, item, row), (threadIdx.x - row * columns) * 4, sum.y, sum.most,
                 sum.total);
  }
  decode_sync<Plan>();  // sums are written again
}

// The states of an item that the blocks of a cluster share. The result, as vectors of four columns, is cut into a slice for
// each block, to which the others send their sums of it, into the ring, by stores that its barrier counts: no fence, which
// would take as long as the way through L2. Before, one barrier of the cluster says that all rings are free.
// An item of several clusters (teams) goes on through the workspace, slice by slice: the last of the blocks that have the
// same slice adds up the teams' sums.
// What it knows is in shared memory: the sums of an item leave no registers for it.
template <class Plan>
class DecodeJoin {
 public:
  __device__ __forceinline__ DecodeJoin(const DecodeParams& p, const DecodeSmem<Plan>& s) : p_(p), s_(s) {}
  __device__ __forceinline__ bool joined() const { return Plan::kLoadWarps > 0 && s_.notes->blocks > 0; }

  // Where a block's groups add up all rows at once: behind what is sent to it.
  __device__ __forceinline__ float* lines() const {
    return reinterpret_cast<float*>(bases() + Plan::kMostCluster * Plan::kRows);
  }
  // This block's sum of vector `at`. shift: the notes'.
  __device__ __forceinline__ void send(int at, int columns, int shift, const DecodeSum& sum) const {
    const int to = at >> shift, place = at - (to << shift), row = decode_line(p_, at);
    const int rank = static_cast<int>(cluster_rank());
    float4* const y = sums() + (rank << shift) + place;
    float2* const base = bases() + rank * Plan::kRows + row;
    const bool first = place == 0 || at == row * columns;  // once for every slice that has a part of the row
    if (to == rank) {
      *y = sum.y;
      if (first) *base = make_float2(sum.most, sum.total);
    } else {
      cluster_store_async(y, s_.arrived, to, sum.y);
      if (first) cluster_store_async(base, s_.arrived, to, make_float2(sum.most, sum.total));
    }
  }

  // The slice of this block.
  __device__ __forceinline__ void finish(int sequence, const DecodeItem& item, int columns) const {
    const int rank = static_cast<int>(cluster_rank()), blocks = s_.notes->blocks, teams = s_.notes->teams;
    const int each = 1 << s_.notes->shift, first = rank * each, count = min(each, item.rows * columns - first);
    if (count <= 0) return;
    const auto write = [&](int at, const DecodeSum& sum) {
      const int row = decode_line(p_, at);
      decode_write(p_, sequence, decode_place(p_, item, row), (at - row * columns) * 4, sum.y, sum.most, sum.total);
    };
    const int first_row = decode_line(p_, first), rows = decode_line(p_, first + count - 1) - first_row + 1;
    if (threadIdx.x == 0) mbarrier_expect(s_.arrived, (blocks - 1) * (count * 16 + rows * 8));
    decode_sync<Plan>();  // this block's own
    mbarrier_wait(s_.arrived, 0);
    const auto add = [&](int i) {
      return decode_add<4, false>(sums() + i, each, bases() + decode_line(p_, first + i), Plan::kRows, blocks);
    };
    if (teams == 1) {
      for (int i = threadIdx.x; i < count; i += decode_threads<Plan>()) write(first + i, add(i));
      return;
    }
    // Of all teams, in the workspace, which has room for a state of every block: [items, teams, room]
    const int team = static_cast<int>(p_.cluster.divide(blockIdx.x)), room = p_.slot_rows * columns;
    const int number = static_cast<int>(p_.parts.divide(blockIdx.x));  // the item's
    float4* const all_sums = reinterpret_cast<float4*>(p_.states);
    float2* const all_bases = reinterpret_cast<float2*>(all_sums + p_.clusters * room);
    for (int i = threadIdx.x; i < count; i += decode_threads<Plan>()) {
      const DecodeSum sum = add(i);
      const int at = team * room + first + i;
      all_sums[at] = sum.y, all_bases[at] = make_float2(sum.most, sum.total);
    }
    decode_sync<Plan>();
    if (threadIdx.x == 0) {
      uint32_t* const counter = &p_.counters[number * p_.cluster.divisor + rank];
      const bool last = atomic_add_ordered(counter, 1u) + 1 == static_cast<uint32_t>(teams);
      if (last) *counter = 0;
      s_.notes->last = last;
    }
    decode_sync<Plan>();
    if (!s_.notes->last) return;
    const int from = number * p_.teams * room + first;
    for (int i = threadIdx.x; i < count; i += decode_threads<Plan>())
      write(first + i,
            decode_add<Plan::kStatesAtOnce, true>(all_sums + from + i, room, all_bases + from + i, room, teams));
  }

 private:
  // What was sent to this block: sums [blocks, each], and behind them maxima and totals [blocks, kRows].
  __device__ __forceinline__ float4* sums() const { return reinterpret_cast<float4*>(s_.ring); }
  __device__ __forceinline__ float2* bases() const {
    return reinterpret_cast<float2*>(sums() + 2 * (Plan::kRows * Plan::kDim / 4));
  }

  const DecodeParams& p_;
  const DecodeSmem<Plan>& s_;
};

}  // namespace ek
