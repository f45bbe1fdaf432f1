// SPDX-License-Identifier: Apache-2.0
// attention_decode_cuda_split: few rows to a kv head and little work, where time is a chain of latencies. So there is no copy
// engine and no tensor core: page numbers are asked for together with the lengths, then K and V of a warp's first steps all
// at once. A cluster of blocks, or one block, has an item; warps become one state by shuffles, blocks by shared memory, and a
// cluster by stores into the shared memory of the block that finishes that vector of the result.
#pragma once

#include "cuda/pdl.cuh"
#include "ops/attention/attention_decode_cuda_core.cuh"
#include "ops/attention/attention_decode_launch.cuh"

namespace ek {

// Shared memory. A warp's ring becomes its sums. The result, as vectors of four columns, is dealt out to the blocks of a cluster,
// one to each in turn: all send a block their states of its vectors.
template <class Plan>
struct DecodeCoreSmem {
  static constexpr int kSumsEach = Plan::kRingBytes / 4;  // floats from one warp's sums to the next's
  float *sums, *q;                                        // [warps][kRows, kDim]; [kRows, kDim]
  float4* sent;                                           // [parts, each]; each: vectors of a block
  float2 *sent_bases, *bases;                             // [parts, each]; [warps, kRows]
  uint64_t* arrived;                                      // counts the bytes that are sent

  __device__ __forceinline__ DecodeCoreSmem(char* smem, int warps, int parts, int each) {
    sums = reinterpret_cast<float*>(smem), q = sums + warps * kSumsEach;
    sent = reinterpret_cast<float4*>(q + Plan::kRows * Plan::kDim);
    sent_bases = reinterpret_cast<float2*>(sent + parts * each), bases = sent_bases + parts * each;
    arrived = reinterpret_cast<uint64_t*>(bases + warps * Plan::kRows);
  }
  static int bytes(int warps, int parts, int each) {
    return warps * (Plan::kRingBytes + Plan::kRows * 8) + Plan::kRows * Plan::kDim * 4 + parts * each * 24 + 8;
  }
};

template <class Plan>
__global__ void __launch_bounds__(Plan::kWarps * 32)
    attention_decode_cuda_split(const __grid_constant__ DecodeCoreParams p) {
  extern __shared__ __align__(16) char decode_core_smem[];
  constexpr int kRows = Plan::kRows, kDim = Plan::kDim;
  const int warps = blockDim.x / 32, warp = threadIdx.x / 32, parts = 1 << p.parts_shift;
  const int part = blockIdx.x & (parts - 1), kv_head = blockIdx.x >> p.parts_shift, sequence = blockIdx.y;

  // Everything that the first loads of K and V need is asked for at once. Without a window a step's keys are known before the
  // length, and so are the page table's entries; those behind the end of a sequence, whatever they hold, are not looked at.
  constexpr int kRing = Plan::kRing;
  const int step = parts * warps * Plan::kKeys;
  int first = (part * warps + warp) * Plan::kKeys;
  DecodeCore<Plan> core(p, sequence, kv_head, decode_core_smem + warp * Plan::kRingBytes);
  typename DecodeCore<Plan>::Places places[kRing];
  if (p.pages) core.prefetch(first, step);
  pdl_wait();
  pdl_launch();
  const bool ahead = p.mask.window_left == kCoreNoWindow;
  int length = 0, prefix = 0;
  const auto look = [&](int end) {
#pragma unroll
    for (int i = 0; i < kRing; ++i) core.look(places[i], first + i * step, end);
  };
  look(ahead ? p.max_kv : 0);
  load_word(length, p.kv_len + sequence, true);
  load_word(prefix, p.prefix_len + sequence, p.prefix_len);
  core.fetch_query();
  const KeyRangeOf<int> keys = core.see(length, prefix);
  if (!ahead) {
    first += keys.begin;
    look(keys.end);
  }
#pragma unroll
  for (int i = 0; i < kRing; ++i) {
    core.fetch(i, places[i], first + i * step, keys.end);
    copy_commit();
  }
  core.look(places[0], first + kRing * step, keys.end);

  const int columns = p.v_dim / 4, work = p.rows * columns, each = (work + parts - 1) >> p.parts_shift;
  const int count = (work - part + parts - 1) >> p.parts_shift;  // this block's vectors: part, part + parts ...
  const DecodeCoreSmem<Plan> s(decode_core_smem, warps, parts, each);
  if (parts > 1) {
    if (threadIdx.x == 0) {
      mbarrier_init(s.arrived, 1);
      mbarrier_fence();
      mbarrier_expect(s.arrived, parts * count * 24);
    }
    __syncwarp();
    cluster_arrive_relaxed();
  }

  core.share_query(s.q);
  __syncthreads();
  if (parts > 1) cluster_wait();  // all blocks of it have begun; long before they send
#pragma unroll 1
  for (int stage = 0; first < keys.end; first += step) {
    float scores[kRows * Plan::kAtOnce];
    copy_wait<kRing - 1>();
    core.scores(stage, s.q, scores);
    core.weights(first, scores);
    core.values(stage, scores);
    const int next = first + kRing * step;
    if (next < keys.end) {
      core.fetch(stage, places[0], next, keys.end);
      core.look(places[0], next + step, keys.end);
    }
    copy_commit();
    stage = stage + 1 == kRing ? 0 : stage + 1;
  }
  copy_wait<0>();
  __syncwarp();  // the ring becomes the place of the sums

  // One state of the block, vector by vector; its part of those of the cluster; the result.
  core.finish(s.sums + warp * s.kSumsEach, s.bases + warp * kRows);
  __syncthreads();
  const auto row_of = [&](int at) { return kRows == 1 ? 0 : at / columns; };
  const auto block_sums = [&](int at, int row) {
    return reinterpret_cast<const float4*>(s.sums + row * kDim) + (at - row * columns);
  };
  if (parts > 1) {
    for (int at = threadIdx.x; at < work; at += blockDim.x) {
      const int row = row_of(at), to = at & (parts - 1), place = part * each + (at >> p.parts_shift);
      const DecodeSum sum = decode_add<2, false>(block_sums(at, row), s.kSumsEach / 4, s.bases + row, kRows, warps);
      cluster_store_async(s.sent + place, s.arrived, to, sum.y);
      cluster_store_async(s.sent_bases + place, s.arrived, to, make_float2(sum.most, sum.total));
    }
    if (count > 0) mbarrier_wait(s.arrived, 0);
  }
  for (int i = threadIdx.x; i < count; i += blockDim.x) {
    const int at = i * parts + part, row = row_of(at);
    const float4* sums = parts > 1 ? s.sent + i : block_sums(at, row);
    const float2* bases = parts > 1 ? s.sent_bases + i : s.bases + row;
    const DecodeSum sum = decode_add<2, false>(sums, parts > 1 ? each : s.kSumsEach / 4, bases,
                                               parts > 1 ? each : kRows, parts > 1 ? parts : warps);
    decode_write(p.out, sequence, core.place(row), (at - row * columns) * 4, sum.y, sum.most, sum.total);
  }
}

inline DecodeCoreCache decode_core_cache(const KvCache& x, int64_t bytes) {
  const bool tokens = x.scale && (x.scale_page || x.scale_slot);
  const auto stride = [bytes](int64_t n) { return static_cast<int32_t>(n * bytes); };
  return {static_cast<const char*>(x.data),
          x.scale,
          stride(x.page),
          stride(x.slot),
          stride(x.head),
          x.scale && !tokens,
          tokens,
          x.scale_page,
          x.scale_slot,
          x.scale_head};
}

inline DecodeCoreParams decode_core_params(const AttentionCall& c, const DecodeCores& cores, bool prefetch) {
  const auto window = [](int32_t n) { return n >= 0 && n < kCoreNoWindow ? n : kCoreNoWindow; };
  DecodeCoreParams p = {};
  while (1 << p.parts_shift < cores.parts) ++p.parts_shift;
  p.max_kv = static_cast<int32_t>(c.seqs.max_kv), p.q_len = static_cast<int32_t>(c.seqs.q_len);
  p.group = static_cast<int32_t>(c.heads / c.kv_heads), p.rows = p.group * p.q_len;
  p.head_dim = static_cast<int32_t>(c.head_dim), p.v_dim = static_cast<int32_t>(c.v_dim);
  if (prefetch && c.mask.window_left < 0) p.pages = static_cast<int32_t>(c.pages < 0x7fffffff ? c.pages : 0x7fffffff);
  // A page that is longer than all sequences is never left.
  const int64_t size = c.seqs.page_table ? c.seqs.page_size : 0x7fffffff;
  p.page_size = Divider(size < 1 ? 1 : size < 0x7fffffff ? size : 0x7fffffff);
  p.minus_size = -static_cast<int32_t>(p.page_size.divisor);
  p.page_table = c.seqs.page_table, p.kv_len = c.seqs.kv_len, p.prefix_len = c.seqs.prefix_len;
  p.table_stride = static_cast<int32_t>(c.seqs.table_stride * 4);
  p.q = static_cast<const char*>(c.q.data);
  for (int i = 0; i < 3; ++i) p.q_stride[i] = static_cast<int32_t>(c.q.stride[i] * 2);
  p.alibi = c.alibi, p.softcap = c.softcap;
  p.mask = {c.mask.causal, window(c.mask.window_left), window(c.mask.window_right)};
  p.factor = c.scale * (c.softcap > 0.f ? 1.f / c.softcap : kLog2e);
  p.k = decode_core_cache(c.k, dtype_bytes(c.K)), p.v = decode_core_cache(c.v, dtype_bytes(c.K));
  p.out = decode_out(c);
  return p;
}

template <class Plan>
ek_status decode_core_launch(const AttentionCall& call, const Launch& l) {
  constexpr int64_t kSlab = 65535;  // sequences of a launch: blocks of a grid along y
  const DecodeCores cores = decode_cores(call, l.device, l.flags & EK_FLAG_BATCH_INVARIANT);
  Grid grid;
  grid.threads = dim3(static_cast<unsigned>(cores.warps * 32)), grid.cluster = cores.parts;
  for (int64_t b = 0; b < call.batch; b += kSlab) {
    const AttentionCall slab = decode_slab(call, b, call.batch - b < kSlab ? call.batch - b : kSlab);
    const DecodeCoreParams p = decode_core_params(slab, cores, l.flags & EK_FLAG_PDL && l.device.target >= 90);
    const int each = (p.rows * p.v_dim / 4 + cores.parts - 1) / cores.parts;
    grid.smem = DecodeCoreSmem<Plan>::bytes(cores.warps, cores.parts, each);
    grid.blocks = dim3(static_cast<unsigned>(call.kv_heads * cores.parts), static_cast<unsigned>(slab.batch));
    if (const ek_status status = launch(l, attention_decode_cuda_split<Plan>, grid, p)) return status;
  }
  return EK_STATUS_OK;
}

template <class K>
ek_status decode_core_run(const AttentionCall& call, const Launch& l) {
  return with_core_plan<K>(call, [&](auto plan) { return decode_core_launch<decltype(plan)>(call, l); });
}

}  // namespace ek
