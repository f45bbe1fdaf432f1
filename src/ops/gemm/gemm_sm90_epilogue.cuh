// SPDX-License-Identifier: Apache-2.0
// From the accumulators of a warpgroup to d (GemmFinish):
//   kPlain  16-bit d = alpha * out_scale * acc: by stmatrix and TMA, chunk by chunk, while the next tile is multiplied
//   kFull   bias, activations and c: the same way, where d is of 16 bits and the copy engine takes it and c (boxes). Else sums
//           in f32 through shared memory, and from there by gemm_store.cuh, eight columns to a thread
// In a warpgroup's 64 x kCols result, thread t holds rows 16 (t / 32) + t % 32 / 4 and 8 further down, columns
// 8 j + 2 (t % 4) and the next: acc[4 j .. 4 j + 3].
#pragma once

#include "cuda/mma.cuh"
#include "cuda/swizzle.cuh"
#include "cuda/traffic.cuh"
#include "cuda/vec.cuh"
#include "ops/gemm/gemm_sm90.cuh"
#include "ops/gemm/gemm_sm90_join.cuh"

namespace ek {

// Which chunks of a warpgroup's part of a tile it stores itself.
enum class GemmChunks { kAll, kFirstHalf, kSecondHalf };

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
        join_(p, smem, wg, place, worker),
        staging_(smem.staging + wg * Tile::kStagingBytes) {}

  // Where a warpgroup's part of a tile begins.
  static __device__ __forceinline__ int row_of(const GemmOrigin<Tile>& at, int wg) {
    return at.row + (Tile::kGroups == GemmGroups::kRows ? wg * Tile::kWgRows : 0);
  }
  static __device__ __forceinline__ int col_of(const GemmOrigin<Tile>& at, int wg) {
    return at.col + (Tile::kGroups == GemmGroups::kCols ? wg * kCols : 0);
  }
  // The first column and row of a part's chunk t in the caller's d, and the batch.
  static __device__ __forceinline__ int3 chunk_at(int row, int col, int batch, int t) {
    const int part = kParts == 1 ? 0 : t / kAcross;
    const int down = row + part * 64, across = col + first_col<kChunkCols>(t - part * kAcross);
    return Tile::kTurned ? make_int3(down, across, batch) : make_int3(across, down, batch);
  }
  // A chunk of c, to where nobody reads. By one thread.
  static __device__ __forceinline__ void ask(const GemmSm90Params& p, uint64_t* full, char* to, int3 at) {
    mbarrier_expect(full, Tile::kChunkBytes);
    tma_load(to, &p.c, at.x, at.y, at.z * p.c_batch, full);
  }
  // Whether the last tile of a block, this work, has c's later chunks in the ring.
  static __device__ __forceinline__ bool rest_in_ring(const GemmSm90Params& p, const GemmWork& last) {
    return Tile::kRest > 0 && p.boxes && p.out.c.data && last.k_count == p.schedule.k_blocks;
  }

  static __device__ __forceinline__ char* rest_at(const GemmSmem<Tile>& smem, int wg, int t) {
    return smem.ring + (2 * (t - Tile::kBuffers) + wg) * Tile::kChunkBytes;
  }

  // Before the product: where the result will go. last: it is the block's last tile.
  __device__ __forceinline__ void begin(const GemmWork& work, GemmChunks chunks, bool last) {
    const GemmOrigin<Tile> at(p_.schedule, work.tile, place_);
    row_ = row_of(at, wg_);
    col_ = col_of(at, wg_);
    batch_ = at.batch;
    whole_ = work.k_count == p_.schedule.k_blocks;
    asked_ = false;
    rest_ = last && rest_in_ring(p_, work);
    if constexpr (Tile::kShares) {
      later_ = p_.shares && !last && work.k_count >= kLongProduct;
      first_ = chunks == GemmChunks::kSecondHalf ? kChunks / 2 : 0;
      last_ = chunks == GemmChunks::kFirstHalf ? kChunks / 2 : kChunks;
    }
    if constexpr (Tile::kSplits)
      if (p_.schedule.split > 1) join_.begin_split(&first_, &last_);
  }

  // During the product: bias and the first chunks of c on their way to shared memory, unless these come later; c to L2 where
  // another block may be the one that stores, or it is read from there. (Chunks that have no buffer yet to L2 as well: slower.)
  __device__ __forceinline__ void during() {
    if constexpr (!Tile::kPlain) {
      const bool with_c = p_.out.c.data;
      if constexpr (Tile::kBoxes)
        if (p_.boxes) {
          if (p_.out.epilogue.bias) fetch_bias();
          if (with_c && whole() && !later_) ask_first();
        }
      if (with_c && !asked_ && !later_) prefetch_c();
    }
  }

  // Part of a sum over k: true for a block that gets whole sums and goes on.
  __device__ __forceinline__ bool join(const GemmWork& work, Acc& acc) {
    if constexpr (Tile::kSplits)
      if (p_.schedule.split > 1) return join_.split(acc, first_, last_);
    if constexpr (Tile::kFew) return join_.pieces(work, acc);
    return true;
  }

  // The second half of the sums, through the ring, which nobody fills any more, to the other warpgroup.
  __device__ __forceinline__ void give_half(const Acc& acc) const {
#pragma unroll
    for (int v = kVectors / 2; v < kVectors; ++v) {
      const float* x = &acc[v / (kCols / 8)][v % (kCols / 8) * 4];
      *half_at(v) = make_float4(x[0], x[1], x[2], x[3]);
    }
    barrier_arrive(kHalfBarrier, 256);
  }
  // The other one gives: once it has, the second half of the chunks can be stored.
  __device__ __forceinline__ void take_half() {
    during();
    barrier_sync(kHalfBarrier, 256);
  }

  __device__ __forceinline__ void store(Acc& acc) {
    if constexpr (Tile::kSplits && kSome) {
      if (p_.schedule.split > 1) return store_some(acc);
      first_ = 0, last_ = kChunks;  // as they are: what follows is faster where the compiler knows
    }
    store_some(acc);
  }

  __device__ __forceinline__ void end() {
    if ((Tile::kPlain || p_.boxes) && leads()) tma_store_wait_read();
  }

 private:
  // From the first of our chunks to the last.
  __device__ __forceinline__ void store_some(Acc& acc) {
    if constexpr (!Tile::kPlain) {
      if constexpr (Tile::kBoxes)
        if (Tile::kBoxesOnly || p_.boxes) return store_boxes(acc);
      if constexpr (!Tile::kBoxesOnly) store_columns(acc);
    } else {
      store_tile(acc);
    }
  }

  static constexpr int kVectors = kParts * kCols / 8;  // of four accumulators each
  // Where the v-th vector goes, one of the second half of them.
  __device__ __forceinline__ float4* half_at(int v) const {
    return reinterpret_cast<float4*>(smem_.ring) + (v - kVectors / 2) * 128 + thread_;
  }

  // ---- plain: 64 rows by 64 columns (32 where those do not divide it) at a time, in kBuffers buffers in turn ----
  // A turned chunk is 64 of the caller's columns by kChunkCols of its rows. Stores leave a group at a time: fence and barrier
  // take longer than a chunk.

  static constexpr int kChunkCols = Tile::kChunkCols, kAcross = Tile::kAcross;
  static constexpr int kChunks = Tile::kChunks, kBuffers = Tile::kBuffers, kGroup = Tile::kGroup;

  // The first column of the i-th of the chunks, of kWide columns each, that cover a row. Where they do not divide it the second
  // one overlaps the first: both are stored at once, with the same bits in what they share, and their c was read before.
  template <int kWide>
  static __host__ __device__ constexpr int first_col(int i) {
    return i == 0 ? 0 : kCols - ((kCols + kWide - 1) / kWide - i) * kWide;
  }

  __device__ __forceinline__ bool whole() const { return Tile::kWhole || whole_; }

  // Always the same thread of the warpgroup: the stores that it waits for are its own.
  __device__ __forceinline__ bool leads() const { return warp_ == 0 && elect_one(); }

  // K blocks that take longer than what ends a tile, c's way to us included. With so many, the other warpgroup's product hides it,
  // and c need not come between the last loads of our own.
  static constexpr int kLongProduct = 6 * Tile::kAskAhead;

  static constexpr bool kSome = Tile::kShares || (Tile::kSplits && kChunks > 1);
  __device__ __forceinline__ int first() const { return kSome ? first_ : 0; }
  __device__ __forceinline__ int last() const { return kSome ? last_ : kChunks; }
  // Whether a group of chunks ends with t, and its first. Groups count from the first chunk that is ours.
  __device__ __forceinline__ bool ends_group(int t) const {
    return (t - first()) % kGroup == kGroup - 1 || t == last() - 1;
  }
  __device__ __forceinline__ int group_of(int t) const { return t - (t - first()) % kGroup; }
  __device__ __forceinline__ int turn_of(int t) const {
    return kBuffers == kChunks || (Tile::kRest > 0 && rest_) ? t : t % kBuffers;
  }
  // A chunk's place: one of the buffers in turn, or, for c's later chunks of the last tile, where the producer put it.
  __device__ __forceinline__ char* buffer(int t) const {
    if (Tile::kRest > 0 && t >= kBuffers && rest_) return rest_at(smem_, wg_, t);
    return staging_ + turn_of(t) * Tile::kChunkBytes;
  }
  // Where 8 columns, the c8-th of a chunk of kWide, of a row lie in its buffer: swizzled as the copy engine does.
  template <int kWide>
  static __device__ __forceinline__ int staged_at(int row, int c8) {
    return row * kWide * 2 + (swizzled_unit<kWide * 2>(row, c8) << 4);
  }

  // The buffer of chunk t is free: at the first chunk all of them, later all of a group that was stored. Groups are more than
  // half of the buffers, so that it was the last; or single chunks.
  __device__ __forceinline__ void begin_chunk(int t) {
    const int done = t - first();
    if (done > 0 && (done < kBuffers || (done - kBuffers) % kGroup)) return;
    if (leads()) done == 0 ? tma_store_wait_read() : tma_store_wait_read<kGroup == 1 ? kBuffers - 1 : 0>();
    barrier_sync(kStoreBarrier + wg_, 128);
  }
  __device__ __forceinline__ void end_group(int first) {
    fence_async();
    barrier_sync(kStoreBarrier + wg_, 128);
    if (warp_ != 0) return;
#pragma unroll
    for (int i = 0; i < kGroup; ++i) {
      if (first + i >= last()) break;
      const int3 at = chunk_at(first + i);
      char* const from = buffer(in_warp(first + i));
      if (elect_one()) tma_store(&p_.d, from, at.x, at.y, at.z);
    }
    if (elect_one()) tma_store_commit();
  }
  // Chunks of plain results are unrolled, and the compiler knows what is the same in all threads of a warp.
  static __device__ __forceinline__ int in_warp(int x) { return Tile::kPlain ? x : warp_uniform(x); }
  // For whole warps.
  __device__ __forceinline__ int3 chunk_at(int t) const {
    const int3 at = chunk_at(row_, col_, batch_, t);
    return make_int3(in_warp(at.x), in_warp(at.y), in_warp(at.z));
  }
  // Where the 16 columns of 16 rows of a chunk that a warp holds lie in its buffer, this lane's part of the matrices: columns
  // from 8 j on. Turned: the caller's columns 0-7 and 8-15 of 8 rows, then of the next 8 rows.
  __device__ __forceinline__ int matrices_at(int thread, int j) const {
    const int lane = thread % 32, first = thread / 32 * 16;
    if constexpr (Tile::kTurned)
      return staged_at<64>(j * 8 + lane / 16 * 8 + lane % 8, first / 8 + lane / 8 % 2);
    else
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
    for (int t = 0; t < kChunks; ++t) {
      if (t < first() || t >= last()) continue;
      begin_chunk(t);
#pragma unroll
      for (int j = 0; j < kChunkCols / 8; j += 2)
        stage_8x8<Tile::kTurned>(smem_address(buffer(t)) + matrices_at(thread, j),
                                 &acc[t / kAcross][first_col<kChunkCols>(t % kAcross) / 2 + j * 4]);
      if (ends_group(t)) end_group(group_of(t));
    }
  }

  // ---- boxes: the same with an epilogue, c in place of what is stored ----

  // Chunk t of c, into a buffer that nobody reads. By the first warp.
  __device__ __forceinline__ void ask(int t) const {
    const int3 at = chunk_at(t);
    const int turn = in_warp(turn_of(t));
    if (elect_one()) ask(p_, &smem_.c_full[kChunks * wg_ + turn], staging_ + turn * Tile::kChunkBytes, at);
  }
  __device__ __forceinline__ void ask_first() {
    asked_ = true;
    if (warp_ != 0) return;
    __syncwarp();
    if (elect_one()) tma_store_wait_read();
    __syncwarp();
#pragma unroll 1
    for (int t = first(); t < first() + kBuffers && t < last(); ++t) ask(t);
  }
  // In the place of a group that has just been stored.
  __device__ __forceinline__ void ask_next(int first) const {
    if (kBuffers == kChunks || rest_ || first + kBuffers >= last() || warp_ != 0) return;
    if (elect_one()) tma_store_wait_read();
    __syncwarp();
#pragma unroll 1
    for (int t = first + kBuffers; t < first + kBuffers + kGroup && t < last(); ++t) ask(t);
  }

  // Bias of the tile's columns; turned, of its rows. Pairs of it: n is even.
  __device__ __forceinline__ void fetch_bias() const {
    const T* const bias = static_cast<const T*>(p_.out.epilogue.bias);
    const int col = (Tile::kTurned ? row_ : col_) + 2 * thread_;
    if (thread_ < Tile::kBiasBytes / 4 && col < p_.out.n)
      copy_async_word(smem_address(smem_.bias) + wg_ * Tile::kBiasBytes + thread_ * 4, bias + col, true);
    copy_commit();
  }
  // scale * bias for the accumulators of chunk t: of columns 8 g + 2 (lane % 4) and the next; turned, of this lane's two rows.
  static constexpr int kBiases = Tile::kTurned ? 1 : kChunkCols / 8;
  __device__ __forceinline__ void get_bias(int t, int thread, float scale, float2 (&to)[kBiases]) const {
#pragma unroll
    for (int g = 0; g < kBiases; ++g) to[g] = make_float2(0.f, 0.f);
    if (!p_.out.epilogue.bias) return;
    const T* const bias = reinterpret_cast<const T*>(smem_.bias + wg_ * Tile::kBiasBytes);
    const int lane = thread % 32, part = kParts == 1 ? 0 : t / kAcross;
    if constexpr (Tile::kTurned) {
      const T* const from = bias + part * 64 + thread / 32 * 16 + lane / 4;
      to[0] = make_float2(to_float(from[0]) * scale, to_float(from[8]) * scale);
    } else {
      const T* const from = bias + first_col<kChunkCols>(t - part * kAcross) + lane % 4 * 2;
#pragma unroll
      for (int g = 0; g < kBiases; ++g) {
        const float2 b = unpack_pair<T>(*reinterpret_cast<const uint32_t*>(from + g * 8));
        to[g] = make_float2(b.x * scale, b.y * scale);
      }
    }
  }
  static __device__ __forceinline__ float bias_of(const float2 (&bias)[kBiases], int i) {
    const float2 b = bias[Tile::kTurned ? 0 : i / 4];
    return (Tile::kTurned ? i / 2 : i) % 2 ? b.y : b.x;
  }
  // To its buffer, with c.
  __device__ __forceinline__ void put_chunk(int t, int thread, float (&z)[kChunkCols / 2]) {
    const bool with_c = p_.out.c.data;
    const float beta = p_.out.epilogue.beta;
    const int turn = turn_of(t);
    const uint32_t to = smem_address(buffer(t));
    if (!with_c) {
      begin_chunk(t);
    } else {
      mbarrier_wait(&smem_.c_full[kChunks * wg_ + turn], c_phase_ >> turn & 1);
      c_phase_ ^= 1 << turn;
      uint32_t c[kChunkCols / 16][4];
#pragma unroll
      for (int j = 0; j < kChunkCols / 16; ++j) ldmatrix<Tile::kTurned>(c[j], to + matrices_at(thread, 2 * j));
#pragma unroll
      for (int i = 0; i < kChunkCols / 4; ++i) {
        const float2 x = unpack_pair<T>(c[i / 4][i % 4]);
        z[2 * i] = fmaf(beta, x.x, z[2 * i]), z[2 * i + 1] = fmaf(beta, x.y, z[2 * i + 1]);
      }
    }
#pragma unroll
    for (int j = 0; j < kChunkCols / 16; ++j) {
      uint32_t y[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) y[i] = pack_pair<T>(z[j * 8 + i * 2], z[j * 8 + i * 2 + 1]);
      const uint32_t at = to + matrices_at(thread, 2 * j);
      Tile::kTurned ? stmatrix_x4_trans(at, y) : stmatrix_x4(at, y);
    }
  }

  // Whether our sums are those that the other one gave, in the ring, and not in registers. They go the way of all others: code of
  // their own would be fetched for a single use, and at the end of the kernel nothing hides that.
  __device__ __forceinline__ bool given() const { return Tile::kShares && first_ > 0; }
  __device__ __forceinline__ void get_given(int t, float (&z)[kChunkCols / 2]) const {
    const int first = t / kAcross * (kCols / 8) + first_col<kChunkCols>(t % kAcross) / 8;
#pragma unroll
    for (int j = 0; j < kChunkCols / 8; ++j) {
      const float4 x = *half_at(first + j);
      z[4 * j] = x.x, z[4 * j + 1] = x.y, z[4 * j + 2] = x.z, z[4 * j + 3] = x.w;
    }
  }

  __device__ __forceinline__ void store_boxes(Acc& acc) {
    const GemmEpilogue& e = p_.out.epilogue;
    const bool with_c = p_.out.c.data;
    const int thread = computed_here(thread_);
    if (with_c && (Tile::kShares ? later_ : !Tile::kWhole && !asked_)) ask_first();
    copy_wait<0>();
    barrier_sync(kStoreBarrier + wg_, 128);  // all of bias is there
    const auto of = [&](int t) { return &acc[t / kAcross][first_col<kChunkCols>(t % kAcross) / 2]; };
    const auto end = [&](int t) {  // a chunk is in its buffer
      if (!ends_group(t)) return;
      end_group(group_of(t));
      if (with_c) ask_next(group_of(t));
    };
    float z[kChunkCols / 2];
    float2 bias[kBiases];
    const auto add_bias = [&](const float* x, float scale) {
#pragma unroll
      for (int i = 0; i < kChunkCols / 2; ++i) z[i] = fmaf(x[i], scale, bias_of(bias, i));
    };
    if (!Tile::kBoxesOnly && e.act == EK_ACTIVATION_NONE) {
#pragma unroll
      for (int t = 0; t < kChunks; ++t) {
        if (t < first() || t >= last()) continue;
        get_bias(t, thread, e.out_scale, bias);
        if (t >= kChunks / 2 && given())
          get_given(t, z), add_bias(z, e.alpha * e.out_scale);
        else
          add_bias(of(t), e.alpha * e.out_scale);
        put_chunk(t, thread, z);
        end(t);
      }
      return;
    }
    // One loop whose body is small: unrolled over a tile, activations were 100 KB of instructions, each of which had to be
    // fetched for a single use.
#pragma unroll 1
    for (int t = first(); t < last(); ++t) {
      get_bias(t, thread, 1.f, bias);
      const int place = given() ? kChunks : t;  // of the sums: a chunk in registers, or the ring
#pragma unroll
      for (int c = 0; c < kChunks; ++c)
        if (c == place) add_bias(of(c), e.alpha);
      if (Tile::kShares && place == kChunks) get_given(t, z), add_bias(z, e.alpha);
      gemm_activate<T>(e.act, z);
      if (e.out_scale != 1.f)
#pragma unroll
        for (int i = 0; i < kChunkCols / 2; ++i) z[i] *= e.out_scale;
      put_chunk(t, thread, z);
      end(t);
    }
  }

  // ---- full: sums in f32, a chunk of the caller's rows and columns at a time: whatever else there is ----

  static constexpr int kSumCols = Tile::kSumCols, kSumsAcross = (kCols + kSumCols - 1) / kSumCols;
  static constexpr int kSums = kParts * kSumsAcross, kTwice = kSumsAcross * kSumCols - kCols;  // columns in two chunks
  static constexpr int kWide = Tile::kTurned ? 64 : kSumCols, kTall = Tile::kTurned ? kSumCols : 64;
  static constexpr int kPitch = kWide + 4, kThreads = kWide / 8;
  static_assert(!Tile::kSplits || kSums == Tile::kChunks, "chunks are dealt out");

  // The first row and column of chunk t in the caller's z.
  __device__ __forceinline__ int2 sums_at(int t) const {
    const int down = t / kSumsAcross * 64, across = first_col<kSumCols>(t % kSumsAcross);
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
#pragma unroll
    for (int j = 0; j < kSumCols / 8; ++j) {
      const float* x = &acc[t / kSumsAcross][first_col<kSumCols>(t % kSumsAcross) / 2 + j * 4];
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
    for (int t = Tile::kSplits ? first() : 0; t < (Tile::kSplits ? last() : kSums); ++t) {
      __syncwarp();
      barrier_sync(kStoreBarrier + wg_, 128);  // what was there before has been read
#pragma unroll
      for (int i = 0; i < kSums; ++i)
        if (i == t) put_sums(acc, i, staging);
      const int2 at = sums_at(t);
      const int64_t col = at.y + eight;
      const int done = t % kSumsAcross == 1 ? kTwice : 0;  // columns, turned rows, that the chunk before had too
      const bool again = !Tile::kTurned && eight < done;
      const int count = again ? 0 : out.n - col < 8 ? static_cast<int>(out.n - col) : 8;
      float bias[8] = {};
      if (const T* from = static_cast<const T*>(out.epilogue.bias))
#pragma unroll
        for (int e = 0; e < 8; ++e)
          if (e < count) bias[e] = static_cast<float>(from[col + e]);
      barrier_sync(kStoreBarrier + wg_, 128);
#pragma unroll 1
      for (int r = line + (Tile::kTurned ? done : 0); r < kTall && count > 0; r += 128 / kThreads) {
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
  const GemmSm90Join<Tile> join_;
  char* const staging_;
  int row_, col_, batch_;
  int first_ = 0, last_ = Tile::kChunks;  // chunks that this warpgroup stores, where tiles are shared or split
  bool whole_, asked_;                    // all of k is this block's; c's first chunks are on their way
  bool later_ = false;                    // c is asked for when the product is over
  bool rest_ = false;                     // c's later chunks come to the ring
  uint32_t c_phase_ = 0;                  // of c_full, a bit each
};

}  // namespace ek
