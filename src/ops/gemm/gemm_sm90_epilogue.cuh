// SPDX-License-Identifier: Apache-2.0
// From the accumulators of a warpgroup to d (GemmFinish):
//   kPlain  16-bit d = alpha * out_scale * acc: by stmatrix and TMA, chunk by chunk, while the next tile is multiplied
//   kFull   everything else: sums in f32 through shared memory, and from there by gemm_store.cuh, eight columns to a thread
// In a warpgroup's 64 x kCols result, thread t holds rows 16 (t / 32) + t % 32 / 4 and 8 further down, columns
// 8 j + 2 (t % 4) and the next: acc[4 j .. 4 j + 3].
#pragma once

#include "cuda/traffic.cuh"
#include "cuda/vec.cuh"
#include "ops/gemm/gemm_sm90.cuh"

namespace ek {

constexpr int kStoreBarrier = 1;  // one for each warpgroup, among its own threads
constexpr int kOrderBarrier = 3;  // ping-pong: one for each warpgroup, whose turn it is
constexpr int kFillBarrier = 5;   // among the producers

template <class Tile>
class GemmSm90Epilogue {
 public:
  using T = typename Tile::T;
  static constexpr int kParts = Tile::kWgRows / 64;
  static constexpr int kCols = Tile::kWgCols;
  using Acc = float[kParts][kCols / 2];

  __device__ GemmSm90Epilogue(const GemmSm90Params& p, const GemmSmem<Tile>& smem, int wg,
                              const typename Tile::Place& place, int worker)
      : p_(p),
        smem_(smem),
        wg_(wg),
        warp_(warp_index() % 4),
        thread_(threadIdx.x % 128),
        place_(place),
        worker_(worker),
        staging_(smem.staging + wg * Tile::kStagingBytes) {}

  // Before the product: where the result will go.
  __device__ __forceinline__ void begin(const GemmWork& work) {
    const GemmOrigin<Tile> at(p_.schedule, work.tile, place_);
    row_ = at.row + (Tile::kGroups == GemmGroups::kRows ? wg_ * Tile::kWgRows : 0);
    col_ = at.col + (Tile::kGroups == GemmGroups::kCols ? wg_ * kCols : 0);
    batch_ = at.batch;
  }

  // During the product: c on its way to L2.
  __device__ __forceinline__ void during() {
    if constexpr (!Tile::kPlain)
      if (p_.out.c.data) prefetch_c();
  }

  // Part of a sum over k: true for the one block that gets the whole sum and goes on.
  __device__ __forceinline__ bool join(const GemmWork& work, Acc& acc) {
    if constexpr (!Tile::kPingpong)
      if (p_.schedule.split > 1) return join_split(acc);
    if constexpr (Tile::kFew) return join_pieces(work, acc);
    return true;
  }

  __device__ __forceinline__ void store(Acc& acc) {
    if constexpr (!Tile::kPlain)
      store_columns(acc);
    else if constexpr (Tile::kTurned)
      store_turned(acc);
    else
      store_tile(acc);
  }

  __device__ __forceinline__ void end() {
    if (Tile::kPlain && leads()) tma_store_wait_read();
  }

 private:
  // A piece: leave it in memory for whoever comes last.
  __device__ __forceinline__ bool join_pieces(const GemmWork& work, Acc& acc) {
    const GemmPieces pieces = gemm_pieces(p_.schedule, work.tile);
    float4* mine = piece(work.tile, worker_);
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      const float* x = &acc[v / (kCols / 8)][v % (kCols / 8) * 4];
      __stcg(mine + v * 128, make_float4(x[0], x[1], x[2], x[3]));
    }
    barrier_sync(kStoreBarrier + wg_, 128);
    uint32_t* told = reinterpret_cast<uint32_t*>(smem_.arrived + 2) + wg_;
    if (thread_ == 0) {
      // The barrier has put the other threads' stores before this one's release.
      uint32_t* counter =
          p_.counters + (work.tile * Tile::kCluster + place_.rank() % Tile::kCluster) * 2 + (Tile::kPingpong ? 0 : wg_);
      const bool last = atomic_add_ordered(counter, 1) == static_cast<uint32_t>(pieces.last - pieces.first);
      if (last) *counter = 0;
      *told = last;
    }
    barrier_sync(kStoreBarrier + wg_, 128);
    if (!*told) return false;
    // In the order of k, whoever we are: the same bits every time. Several loads at once, or their latency adds up.
    const auto at = [&](int v) { return &acc[v / (kCols / 8)][v % (kCols / 8) * 4]; };
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      const float4 y = __ldcg(piece(work.tile, pieces.first) + v * 128);
      at(v)[0] = y.x, at(v)[1] = y.y, at(v)[2] = y.z, at(v)[3] = y.w;
    }
    constexpr int kLoads = kVectors < 4 ? kVectors : 4;
    for (int w = pieces.first + 1; w <= pieces.last; ++w) {
      const float4* from = piece(work.tile, w);
#pragma unroll
      for (int first = 0; first < kVectors; first += kLoads) {
        float4 y[kLoads];
#pragma unroll
        for (int v = 0; v < kLoads; ++v) y[v] = __ldcg(from + (first + v) * 128);
#pragma unroll
        for (int v = 0; v < kLoads; ++v) {
          float* x = at(first + v);
          x[0] += y[v].x, x[1] += y[v].y, x[2] += y[v].z, x[3] += y[v].w;
        }
        __syncwarp();  // or the compiler puts all loads first, into registers that are not there
      }
    }
    return true;
  }

  // Split: the other blocks of the cluster put their sums into the ring of the first one, which adds them in the order of k.
  __device__ __forceinline__ bool join_split(Acc& acc) {
    constexpr int kBytes = kVectors * 128 * 16;  // of a warpgroup
    const int split = p_.schedule.split;
    const auto slot = [&](int slice) {
      return reinterpret_cast<float4*>(smem_.ring + ((slice - 1) * 2 + wg_) * kBytes) + thread_;
    };
    if (Tile::kCluster == 1) cluster_wait();  // the other blocks have set up their barriers
    if (place_.slice > 0) {
      mbarrier_wait(smem_.room, 0);
      float4* to = slot(place_.slice);
#pragma unroll
      for (int v = 0; v < kVectors; ++v) {
        const float* x = &acc[v / (kCols / 8)][v % (kCols / 8) * 4];
        cluster_store_async(to + v * 128, &smem_.arrived[wg_], place_.rank() % Tile::kCluster,
                            make_float4(x[0], x[1], x[2], x[3]));
      }
      return false;
    }
    barrier_sync(kStoreBarrier + wg_, 128);  // all of this warpgroup's products have ended
    if (thread_ == 0) {
      mbarrier_expect(&smem_.arrived[wg_], (split - 1) * kBytes);
      for (int r = 1; r < split; ++r) mbarrier_arrive(smem_.room, r * Tile::kCluster + place_.rank());
    }
    mbarrier_wait(&smem_.arrived[wg_], 0);
    for (int r = 1; r < split; ++r) {
      const float4* from = slot(r);
#pragma unroll
      for (int v = 0; v < kVectors; ++v) {
        float* x = &acc[v / (kCols / 8)][v % (kCols / 8) * 4];
        const float4 y = from[v * 128];
        x[0] += y.x, x[1] += y.y, x[2] += y.z, x[3] += y.w;
      }
    }
    return true;
  }

  static constexpr int kVectors = kParts * kCols / 8;  // of four accumulators each
  __device__ __forceinline__ float4* piece(int tile, int worker) const {
    const int64_t slot = gemm_piece_slot(p_.schedule, tile, worker) * Tile::kCluster + place_.rank() % Tile::kCluster;
    float* at = p_.partials + slot * Tile::kRows * Tile::kCols + (Tile::kPingpong ? 0 : wg_ * (Tile::kWgRows * kCols));
    return reinterpret_cast<float4*>(at) + thread_;
  }

  // ---- plain: 64 rows by 64 columns (32 where those do not divide it) at a time, in two buffers in turn ----
  // A turned chunk is 64 of the caller's columns by kChunkCols of its rows.

  static constexpr int kChunkCols = Tile::kChunkCols, kAcross = kCols / kChunkCols;

  // Always the same thread of the warpgroup: the stores that it waits for are its own.
  __device__ __forceinline__ bool leads() const { return warp_ == 0 && elect_one(); }

  __device__ __forceinline__ char* buffer(int t) const { return staging_ + t % 2 * Tile::kChunkBytes; }
  // Where 8 columns, the c8-th of a chunk of kWide, of a row lie in its buffer: swizzled as the copy engine does.
  template <int kWide>
  static __device__ __forceinline__ int staged_at(int row, int c8) {
    return row * kWide * 2 + ((c8 ^ (kWide == 64 ? row & 7 : row >> 1 & 3)) << 4);
  }

  // The buffer of chunk t is free.
  __device__ __forceinline__ void begin_chunk(int t) {
    if (t == 1) return;  // both were, at chunk 0
    if (leads()) t == 0 ? tma_store_wait_read() : tma_store_wait_read<1>();
    barrier_sync(kStoreBarrier + wg_, 128);
  }
  __device__ __forceinline__ void end_chunk(int t) {
    fence_async();
    barrier_sync(kStoreBarrier + wg_, 128);
    if (!leads()) return;
    const int down = t / kAcross * 64, across = t % kAcross * kChunkCols;
    if constexpr (Tile::kTurned)
      tma_store(&p_.d, buffer(t), row_ + down, col_ + across, batch_);
    else
      tma_store(&p_.d, buffer(t), col_ + across, row_ + down, batch_);
    tma_store_commit();
  }

  // 16 accumulators, scaled, as four 8x8 matrices in two halves.
  template <bool kTrans>
  __device__ __forceinline__ void stage_8x8(uint32_t at, const float* x) const {
    const float scale = p_.scale;
    uint32_t v[4];
#pragma unroll
    for (int e = 0; e < 4; ++e) v[e] = pack_pair<T>(x[2 * e] * scale, x[2 * e + 1] * scale);
    kTrans ? stmatrix_x4_trans(at, v) : stmatrix_x4(at, v);
  }

  __device__ __forceinline__ void store_tile(Acc& acc) {
    const int thread = computed_here(thread_), lane = thread % 32, row = thread / 32 * 16 + lane % 16;
#pragma unroll
    for (int t = 0; t < kParts * kAcross; ++t) {
      begin_chunk(t);
#pragma unroll
      for (int j = 0; j < kChunkCols / 8; j += 2)
        stage_8x8<false>(smem_address(buffer(t)) + staged_at<kChunkCols>(row, j + lane / 16),
                         &acc[t / kAcross][(t % kAcross * (kChunkCols / 8) + j) * 4]);
      end_chunk(t);
    }
  }

  // acc[r, c] belongs to row c, column r of the caller's d: transposed on the way into the staging.
  __device__ __forceinline__ void store_turned(Acc& acc) {
    const int thread = computed_here(thread_), lane = thread % 32, first = thread / 32 * 16;
#pragma unroll
    for (int t = 0; t < kParts * kAcross; ++t) {
      begin_chunk(t);
#pragma unroll
      for (int j = 0; j < kChunkCols / 8; j += 2) {
        // Four matrices of 8x8: the caller's columns 0-7 and 8-15 of 8 rows, then of the next 8 rows.
        const int r = j * 8 + lane / 16 * 8 + lane % 8, c8 = first / 8 + lane / 8 % 2;
        stage_8x8<true>(smem_address(buffer(t)) + staged_at<64>(r, c8),
                        &acc[t / kAcross][(t % kAcross * (kChunkCols / 8) + j) * 4]);
      }
      end_chunk(t);
    }
  }

  // ---- full: sums in f32, a chunk of the caller's rows and columns at a time ----
  // One loop whose body is small: unrolled over a tile, activations were 100 KB of instructions, each of which had to be
  // fetched for a single use.

  static constexpr int kSumCols = Tile::kSumCols, kSums = kParts * (kCols / kSumCols);
  static constexpr int kWide = Tile::kTurned ? 64 : kSumCols, kTall = Tile::kTurned ? kSumCols : 64;
  static constexpr int kPitch = kWide + 4, kThreads = kWide / 8;
  static constexpr int kLines = 128 / kThreads, kPasses = (kTall + kLines - 1) / kLines;

  // The first row and column of chunk t in the caller's z.
  __device__ __forceinline__ int2 sums_at(int t) const {
    const int down = t / (kCols / kSumCols) * 64, across = t % (kCols / kSumCols) * kSumCols;
    if constexpr (Tile::kTurned) return make_int2(col_ + across, row_ + down);
    return make_int2(row_ + down, col_ + across);
  }

  __device__ __forceinline__ void prefetch_c() const {
    const GemmOut& out = p_.out;
    const int bytes = out.f32_out ? 4 : static_cast<int>(sizeof(T)), halved = out.gated ? 1 : 0;
    constexpr int kRows = Tile::kTurned ? kCols : Tile::kWgRows, kColumns = Tile::kTurned ? Tile::kWgRows : kCols;
    const int64_t row0 = Tile::kTurned ? col_ : row_, col0 = Tile::kTurned ? row_ : col_;
    const int step = (out.f32_out ? 32 : 64) << halved;  // columns of z to a line of c
#pragma unroll 1
    for (int r = thread_; r < kRows; r += 128) {
      const int64_t row = row0 + r;
      if (row >= out.m) break;
#pragma unroll 1
      for (int64_t col = col0; col < col0 + kColumns && col < out.n; col += step)
        prefetch_l2(static_cast<const char*>(out.c.data) +
                    (batch_ * out.c.batch + row * out.c.row + (col >> halved)) * bytes);
    }
  }

  __device__ __forceinline__ void put_sums(const Acc& acc, int t, float* to) const {
    const int thread = computed_here(thread_), lane = thread % 32, first = thread / 32 * 16 + lane / 4;
    constexpr int kAll = kCols / kSumCols;
#pragma unroll
    for (int j = 0; j < kSumCols / 8; ++j) {
      const float* x = &acc[t / kAll][(t % kAll * (kSumCols / 8) + j) * 4];
      const int column = j * 8 + lane % 4 * 2;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        if constexpr (Tile::kTurned) {
          to[column * kPitch + first + 8 * h] = x[2 * h];
          to[(column + 1) * kPitch + first + 8 * h] = x[2 * h + 1];
        } else {
          *reinterpret_cast<float2*>(to + (first + 8 * h) * kPitch + column) = make_float2(x[2 * h], x[2 * h + 1]);
        }
      }
    }
  }

  // What a chunk needs beside its sums, for the rows and the eight columns of this thread: 16-bit, whole columns.
  struct Beside {
    uint4 bias, c[kPasses];
  };
  __device__ __forceinline__ void fetch(int t, int line, int eight, Beside* to) const {
    const GemmOut& out = p_.out;
    const int2 at = sums_at(t);
    const int64_t col = at.y + eight;
    const T* const bias = static_cast<const T*>(out.epilogue.bias);
    to->bias = bias && out.n - col >= 8 ? *reinterpret_cast<const uint4*>(bias + col) : uint4{};
    const T* const c = static_cast<const T*>(out.c.data) + batch_ * out.c.batch + col;
#pragma unroll
    for (int i = 0; i < kPasses; ++i) {
      const int64_t row = at.x + line + i * kLines;
      to->c[i] = uint4{};
      if (out.c.data && out.n - col >= 8 && row < out.m)
        to->c[i] = __ldcg(reinterpret_cast<const uint4*>(c + row * out.c.row));
    }
  }

  __device__ __forceinline__ void store_columns(Acc& acc) {
    const GemmOut& out = p_.out;
    float* const staging = reinterpret_cast<float*>(staging_);
    const int line = thread_ / kThreads, eight = thread_ % kThreads * 8;
    const bool whole = out.wide_d && !out.f32_out && !out.gated && (!out.c.data || out.wide_c) &&
                       reinterpret_cast<uintptr_t>(out.epilogue.bias) % 16 == 0;
    Beside next;
    if (whole) fetch(0, line, eight, &next);
#pragma unroll 1
    for (int t = 0; t < kSums; ++t) {
      __syncwarp();
      barrier_sync(kStoreBarrier + wg_, 128);  // what was there before has been read
#pragma unroll
      for (int i = 0; i < kSums; ++i)
        if (i == t) put_sums(acc, i, staging);
      const int2 at = sums_at(t);
      const int64_t col = at.y + eight;
      const int count = out.n - col < 8 ? static_cast<int>(out.n - col) : 8;
      barrier_sync(kStoreBarrier + wg_, 128);
      // While this chunk is computed. Threads beyond n too: the next chunk may be 64 rows further down and inside again.
      Beside now = next;
      if (whole && t + 1 < kSums) fetch(t + 1, line, eight, &next);
      if (whole && count == 8) {
        if (line < kTall) store_whole(staging + line * kPitch + eight, at.x + line, col, &now);
        continue;
      }
      float bias[8] = {};
      if (const T* from = static_cast<const T*>(out.epilogue.bias))
#pragma unroll
        for (int e = 0; e < 8; ++e)
          if (e < count) bias[e] = static_cast<float>(from[col + e]);
#pragma unroll 1
      for (int r = line; r < kTall && count > 0; r += kLines) {
        const int64_t row = at.x + r;
        if (row >= out.m) break;
        float z[8];
        get_sums(staging + r * kPitch + eight, bias, z);
        if (out.f32_out)
          gemm_finish_sums<float>(out, batch_, row, col, count, z);
        else
          gemm_finish_sums<T>(out, batch_, row, col, count, z);
      }
    }
    __syncwarp();  // what follows, a barrier or a product, wants whole warps
  }

  // Eight columns of a row: z, before the activation.
  __device__ __forceinline__ void get_sums(const float* from, const float (&bias)[8], float* z) const {
    const float4 low = reinterpret_cast<const float4*>(from)[0], high = reinterpret_cast<const float4*>(from)[1];
    const float x[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
    for (int e = 0; e < 8; ++e) z[e] = fmaf(x[e], p_.out.epilogue.alpha, bias[e]);
  }

  // Eight whole 16-bit columns of every kLines-th row from `row` on, with their c (0: none), two rows at a time: one alone would
  // wait for itself most of the time, with a warp to a scheduler.
  __device__ __forceinline__ void store_whole(const float* from, int64_t row, int64_t col, Beside* beside) const {
    constexpr int kAtOnce = kPasses % 2 ? 1 : 2;
    const GemmOut& out = p_.out;
    const float scale = out.epilogue.out_scale, beta = out.c.data ? out.epilogue.beta : 0.f;
    T* to = static_cast<T*>(out.d.data) + batch_ * out.d.batch + row * out.d.row + col;
    uint4(&c)[kPasses] = beside->c;
    float bias[8];
    const uint32_t biases[4] = {beside->bias.x, beside->bias.y, beside->bias.z, beside->bias.w};
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float2 x = unpack_pair<T>(biases[e]);
      bias[2 * e] = x.x, bias[2 * e + 1] = x.y;
    }
#pragma unroll 1
    for (int i = 0; i < kPasses; i += kAtOnce, from += kAtOnce * kLines * kPitch, to += kAtOnce * kLines * out.d.row) {
      float z[kAtOnce * 8];
#pragma unroll
      for (int r = 0; r < kAtOnce; ++r) get_sums(from + r * kLines * kPitch, bias, z + r * 8);
      gemm_activate<T>(out.epilogue.act, z);
#pragma unroll
      for (int r = 0; r < kAtOnce; ++r) {
        const uint32_t pairs[4] = {c[r].x, c[r].y, c[r].z, c[r].w};
        uint32_t y[4];
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const float2 x = unpack_pair<T>(pairs[e]);
          const float* v = z + r * 8 + 2 * e;
          y[e] = pack_pair<T>(fmaf(beta, x.x, v[0] * scale), fmaf(beta, x.y, v[1] * scale));
        }
        if (row + (i + r) * kLines < out.m)
          *reinterpret_cast<uint4*>(to + r * kLines * out.d.row) = make_uint4(y[0], y[1], y[2], y[3]);
      }
      // The next ones': an index would not be known to the compiler.
#pragma unroll
      for (int j = 0; j + kAtOnce < kPasses; ++j) c[j] = c[j + kAtOnce];
    }
  }

  const GemmSm90Params& p_;
  const GemmSmem<Tile>& smem_;
  const int wg_, warp_, thread_;
  const typename Tile::Place place_;
  const int worker_;
  char* const staging_;
  int row_, col_, batch_;
};

}  // namespace ek
