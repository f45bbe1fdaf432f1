// SPDX-License-Identifier: Apache-2.0
// From the accumulators of a warpgroup to d (GemmFinish):
//   kPlain  16-bit d = alpha * out_scale * acc: by stmatrix and TMA, chunk by chunk, while the next tile is multiplied
//   kFull   bias, activations and c: the same way, where d is of 16 bits and the copy engine takes it and c (boxes). Else sums
//           in f32 through shared memory, and from there by gemm_store.cuh, eight columns to a thread
// In a warpgroup's 64 x kCols result, thread t holds rows 16 (t / 32) + t % 32 / 4 and 8 further down, columns
// 8 j + 2 (t % 4) and the next: acc[4 j .. 4 j + 3].
#pragma once

#include "cuda/mma.cuh"
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
    whole_ = work.k_count == p_.schedule.k_blocks;
    asked_ = false;
  }

  // During the product: c on its way to L2, and its first chunks to shared memory, unless another block may be the last.
  __device__ __forceinline__ void during() {
    if constexpr (!Tile::kPlain)
      if (p_.out.c.data) {
        prefetch_c();
        if constexpr (Tile::kBoxes)
          if (p_.boxes && whole_) ask_first();
      }
  }

  // Part of a sum over k: true for the one block that gets the whole sum and goes on.
  __device__ __forceinline__ bool join(const GemmWork& work, Acc& acc) {
    if constexpr (!Tile::kPingpong)
      if (p_.schedule.split > 1) return join_split(acc);
    if constexpr (Tile::kFew) return join_pieces(work, acc);
    return true;
  }

  __device__ __forceinline__ void store(Acc& acc) {
    if constexpr (!Tile::kPlain) {
      if constexpr (Tile::kBoxes)
        if (p_.boxes) return store_boxes(acc);
      store_columns(acc);
    } else {
      store_tile(acc);
    }
  }

  __device__ __forceinline__ void end() {
    if ((Tile::kPlain || p_.boxes) && leads()) tma_store_wait_read();
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
    uint32_t* told = smem_.told + wg_;
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
    if (warp_ != 0) return;
    const int3 at = chunk_at(t);
    char* const from = buffer(in_warp(t));
    if (!elect_one()) return;
    tma_store(&p_.d, from, at.x, at.y, at.z);
    tma_store_commit();
  }
  // Chunks of plain results are unrolled, and the compiler knows what is the same in all threads of a warp.
  static __device__ __forceinline__ int in_warp(int x) { return Tile::kPlain ? x : warp_uniform(x); }
  // The first column and row of chunk t in the caller's d, and the batch. For whole warps.
  __device__ __forceinline__ int3 chunk_at(int t) const {
    const int down = in_warp(row_ + t / kAcross * 64), across = in_warp(col_ + t % kAcross * kChunkCols);
    const int batch = in_warp(batch_);
    return Tile::kTurned ? make_int3(down, across, batch) : make_int3(across, down, batch);
  }
  // Where the 16 columns of 16 rows of a chunk that a warp holds lie in its buffer, this lane's part of the matrices: columns
  // from 8 j on. Turned: the caller's columns 0-7 and 8-15 of 8 rows, then of the next 8 rows.
  __device__ __forceinline__ int matrices_at(int thread, int j) const {
    const int lane = thread % 32, first = thread / 32 * 16;
    if constexpr (Tile::kTurned) return staged_at<64>(j * 8 + lane / 16 * 8 + lane % 8, first / 8 + lane / 8 % 2);
    return staged_at<kChunkCols>(first + lane % 16, j + lane / 16);
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

  // Turned: acc[r, c] belongs to row c, column r of the caller's d: transposed on the way into the staging.
  __device__ __forceinline__ void store_tile(Acc& acc) {
    const int thread = computed_here(thread_);
#pragma unroll
    for (int t = 0; t < kParts * kAcross; ++t) {
      begin_chunk(t);
#pragma unroll
      for (int j = 0; j < kChunkCols / 8; j += 2)
        stage_8x8<Tile::kTurned>(smem_address(buffer(t)) + matrices_at(thread, j),
                                 &acc[t / kAcross][(t % kAcross * (kChunkCols / 8) + j) * 4]);
      end_chunk(t);
    }
  }

  // ---- boxes: the same with an epilogue, 32 columns of accumulators at a time, c in place of what is stored ----
  // One loop whose body is small: unrolled over a tile, activations were 100 KB of instructions, each of which had to be
  // fetched for a single use.

  static constexpr int kHalves = kChunkCols / 32, kChunks = kParts * kAcross;

  // Chunk t of c, once all stores have read their buffers. By the first warp.
  __device__ __forceinline__ void ask(int t) const {
    const int3 at = chunk_at(t);
    const int half = in_warp(t % 2);
    if (!elect_one()) return;
    uint64_t* const full = &smem_.c_full[2 * wg_ + half];
    tma_store_wait_read();
    mbarrier_expect(full, Tile::kChunkBytes);
    tma_load(buffer(half), &p_.c, at.x, at.y, at.z * p_.c_batch, full);
  }
  __device__ __forceinline__ void ask_first() {
    asked_ = true;
    if (warp_ != 0) return;
    __syncwarp();
    ask(0);
    if (kChunks > 1) ask(1);
  }

  // Bias of the columns of a half: of 8 g + 2 (lane % 4) and the next; turned, of this lane's two rows of accumulators.
  __device__ __forceinline__ void fetch_bias(int h, int thread, uint32_t (&words)[4]) const {
    const T* const bias = static_cast<const T*>(p_.out.epilogue.bias);
    const int t = h / kHalves, lane = thread % 32;
#pragma unroll
    for (int g = 0; g < 4; ++g) {
      words[g] = 0;
      if constexpr (Tile::kTurned) {
        const int col = row_ + t / kAcross * 64 + thread / 32 * 16 + lane / 4 + g * 8;
        if (g < 2 && bias && col < p_.out.n) words[g] = reinterpret_cast<const uint16_t*>(bias)[col];
      } else {
        const int col = col_ + (t % kAcross * kHalves + h % kHalves) * 32 + g * 8 + lane % 4 * 2;
        if (bias && col < p_.out.n) words[g] = *reinterpret_cast<const uint32_t*>(bias + col);
      }
    }
  }

  __device__ __forceinline__ void store_boxes(Acc& acc) {
    const GemmEpilogue& e = p_.out.epilogue;
    const bool with_c = p_.out.c.data;
    const int thread = computed_here(thread_);
    if (with_c && !asked_) ask_first();
    uint32_t words[4];
    fetch_bias(0, thread, words);
#pragma unroll 1
    for (int h = 0; h < kChunks * kHalves; ++h) {
      const int t = h / kHalves, half = h % kHalves;
      if (half == 0 && with_c) {
        mbarrier_wait(&smem_.c_full[2 * wg_ + t % 2], c_phase_ >> t % 2 & 1);
        c_phase_ ^= 1 << t % 2;
      } else if (half == 0) {
        begin_chunk(t);
      }
      float2 bias[4];
#pragma unroll
      for (int g = 0; g < 4; ++g) bias[g] = unpack_pair<T>(words[g]);
      float z[16];
#pragma unroll
      for (int i = 0; i < kChunks * kHalves; ++i) {
        if (i != h) continue;
        const float* x = &acc[i * 16 / (kCols / 2)][i * 16 % (kCols / 2)];
#pragma unroll
        for (int j = 0; j < 16; ++j) {
          const float b = Tile::kTurned ? bias[j / 2 % 2].x : j % 2 ? bias[j / 4].y : bias[j / 4].x;
          z[j] = fmaf(x[j], e.alpha, b);
        }
      }
      if (h + 1 < kChunks * kHalves) fetch_bias(h + 1, thread, words);
      gemm_activate<T>(e.act, z);
      // The chunk before this one has been read by now, and the next one's c can come into its place.
      if (with_c && half == kHalves - 1 && t > 0 && t + 1 < kChunks && warp_ == 0) ask(t + 1);
      const uint32_t to = smem_address(buffer(t));
#pragma unroll
      for (int u = 0; u < 2; ++u) {
        const uint32_t at = to + matrices_at(thread, half * 4 + u * 2);
        uint32_t c[4] = {}, y[4];
        if (with_c) ldmatrix<Tile::kTurned>(c, at);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float2 x = unpack_pair<T>(c[i]);
          const float* v = z + u * 8 + i * 2;
          y[i] = pack_pair<T>(fmaf(e.beta, x.x, v[0] * e.out_scale), fmaf(e.beta, x.y, v[1] * e.out_scale));
        }
        Tile::kTurned ? stmatrix_x4_trans(at, y) : stmatrix_x4(at, y);
      }
      if (half == kHalves - 1) end_chunk(t);
    }
  }

  // ---- full: sums in f32, a chunk of the caller's rows and columns at a time: whatever else there is ----

  static constexpr int kSumCols = Tile::kSumCols, kSums = kParts * (kCols / kSumCols);
  static constexpr int kWide = Tile::kTurned ? 64 : kSumCols, kTall = Tile::kTurned ? kSumCols : 64;
  static constexpr int kPitch = kWide + 4, kThreads = kWide / 8;

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

  __device__ __forceinline__ void store_columns(Acc& acc) {
    const GemmOut& out = p_.out;
    float* const staging = reinterpret_cast<float*>(staging_);
    const int line = thread_ / kThreads, eight = thread_ % kThreads * 8;
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
      float bias[8] = {};
      if (const T* from = static_cast<const T*>(out.epilogue.bias))
#pragma unroll
        for (int e = 0; e < 8; ++e)
          if (e < count) bias[e] = static_cast<float>(from[col + e]);
      barrier_sync(kStoreBarrier + wg_, 128);
#pragma unroll 1
      for (int r = line; r < kTall && count > 0; r += 128 / kThreads) {
        const int64_t row = at.x + r;
        if (row >= out.m) break;
        const float4* from = reinterpret_cast<const float4*>(staging + r * kPitch + eight);
        const float4 low = from[0], high = from[1];
        float z[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
        for (int e = 0; e < 8; ++e) z[e] = fmaf(z[e], out.epilogue.alpha, bias[e]);
        if (out.f32_out)
          gemm_finish_sums<float>(out, batch_, row, col, count, z);
        else
          gemm_finish_sums<T>(out, batch_, row, col, count, z);
      }
    }
  }

  const GemmSm90Params& p_;
  const GemmSmem<Tile>& smem_;
  const int wg_, warp_, thread_;
  const typename Tile::Place place_;
  const int worker_;
  char* const staging_;
  int row_, col_, batch_;
  bool whole_, asked_;    // all of k is this block's; c's first chunks are on their way
  uint32_t c_phase_ = 0;  // of c_full, a bit each
};

}  // namespace ek
