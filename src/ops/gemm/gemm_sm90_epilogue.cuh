// SPDX-License-Identifier: Apache-2.0
// From the accumulators of a warpgroup to d (GemmFinish):
//   kPlain, kFull  16-bit d: through shared memory, c in and d out by TMA, while the next tile is multiplied. Plain has no
//                  activation and no gate, which are most of the code.
//   kF32           f32 d: straight from registers to memory; no activation
//   kSwap          d^T was computed: transposed through shared memory; all of it
// In a warpgroup's 64 x kCols result, thread t holds rows 16 (t / 32) + t % 32 / 4 and 8 further down, columns
// 8 j + 2 (t % 4) and the next: acc[4 j .. 4 j + 3]. Gate and up of a gated product are such a pair.
#pragma once

#include "cuda/traffic.cuh"
#include "ops/gemm/gemm_sm90.cuh"

namespace ek {

constexpr int kStoreBarrier = 1;  // one for each warpgroup, among its own threads
constexpr int kOrderBarrier = 3;  // ping-pong: one for each warpgroup, whose turn it is
constexpr int kFillBarrier = 5;   // among the producers

__device__ __forceinline__ uint32_t pack2(bf16*, float a, float b) {
  const __nv_bfloat162 v = __floats2bfloat162_rn(a, b);
  return reinterpret_cast<const uint32_t&>(v);
}
__device__ __forceinline__ uint32_t pack2(half*, float a, float b) {
  const __half2 v = __floats2half2_rn(a, b);
  return reinterpret_cast<const uint32_t&>(v);
}
__device__ __forceinline__ float2 unpack2(bf16*, uint32_t v) {
  return __bfloat1622float2(reinterpret_cast<const __nv_bfloat162&>(v));
}
__device__ __forceinline__ float2 unpack2(half*, uint32_t v) {
  return __half22float2(reinterpret_cast<const __half2&>(v));
}

template <class Tile>
class GemmSm90Epilogue {
 public:
  using T = typename Tile::T;
  static constexpr int kParts = Tile::kWgRows / 64;
  static constexpr int kCols = Tile::kWgCols;
  using Acc = float[kParts][kCols / 2];

  __device__ GemmSm90Epilogue(const GemmSm90Params& p, const GemmSmem<Tile>& smem, int wg,
                              const typename Tile::Place& place, int worker)
      : p_(p), smem_(smem), wg_(wg), thread_(threadIdx.x % 128), place_(place), worker_(worker) {
    staging_ = smem.staging + wg * Tile::kStagingBytes;
    bias_ = smem.bias + wg * kCols;
  }

  // Before the product: where the result will go, and what is needed for it from memory, so that it comes in meanwhile.
  __device__ __forceinline__ void begin(const GemmWork& work) {
    const GemmOrigin<Tile> at(p_.schedule, work.tile, place_);
    row_ = at.row + (Tile::kGroups == GemmGroups::kRows ? wg_ * Tile::kWgRows : 0);
    col_ = at.col + (Tile::kGroups == GemmGroups::kCols ? wg_ * kCols : 0);
    batch_ = at.batch;
    c_asked_ = false;
    whole_ = work.k_count == p_.schedule.k_blocks;
    if constexpr (!Tile::kTurned) {
      if (p_.epilogue.bias) {
#pragma unroll
        for (int i = 0; i < kBiasRegisters; ++i) {
          const int c = thread_ + 128 * i;
          const bool in = c < kCols && col_ + c < p_.cols;
          bias_ahead_[i] = in ? static_cast<float>(static_cast<const T*>(p_.epilogue.bias)[col_ + c]) : 0.f;
        }
      }
    }
  }

  // During the product, once the stores of the tile before have surely been read.
  __device__ __forceinline__ void during() {
    if (kHoldsC && p_.c_data && whole_) ask_for_c();
  }

  // Part of a sum over k: true for the one block that gets the whole sum and goes on.
  __device__ __forceinline__ bool join(const GemmWork& work, Acc& acc) {
    if constexpr (!Tile::kPingpong)
      if (p_.schedule.split > 1) return join_split(acc);
    return join_pieces(work, acc);
  }

  __device__ __forceinline__ void store(Acc& acc) {
    if constexpr (Tile::kSwap) {
      store_swapped(acc);
    } else {
      if (!Tile::kTurned && p_.epilogue.bias) {
        if (!Tile::kStaged) barrier_sync(kStoreBarrier + wg_, 128);  // the bias of the tile before has been read
#pragma unroll
        for (int i = 0; i < kBiasRegisters; ++i)
          if (thread_ + 128 * i < kCols) bias_[thread_ + 128 * i] = bias_ahead_[i];
      }
      if constexpr (kHoldsC) {
        if (p_.c_data) {
          if (!c_asked_) ask_for_c();
        } else if (thread_ == 0) {
          tma_store_wait_read();
        }
      }
      if constexpr (!kChunked) barrier_sync(kStoreBarrier + wg_, 128);
      if (kHoldsC && p_.c_data) {
        mbarrier_wait(&smem_.c_full[wg_], c_phase_);
        c_phase_ ^= 1;
      }
      if constexpr (kHoldsC && !Tile::kTurned && kCols % 64 == 0) {
        if (p_.gated) return store_tile<true>(acc);
      }
      if constexpr (Tile::kTurned)
        store_turned(acc);
      else
        store_tile<false>(acc);
    }
  }

  __device__ __forceinline__ void end() {
    if (Tile::kStaged && thread_ == 0) tma_store_wait_read();
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

  static constexpr int kBiasRegisters = (kCols + 127) / 128;
  static constexpr int kVectors = kParts * kCols / 8;  // of four accumulators each
  static constexpr bool kChunked = Tile::kFinish == GemmFinish::kPlain;
  static constexpr bool kHoldsC = Tile::kFinish == GemmFinish::kFull;

  // Columns of a box of the TMA store: 64, or 32 where the tile is not a multiple of that.
  static constexpr int chunk(int cols) { return cols % 64 == 0 ? 64 : 32; }
  static constexpr int kChunkCols = chunk(kCols);
  static constexpr bool kOddChunks = kParts * (kCols / kChunkCols) % 2 == 1;

  // Where 8 columns, the c8-th of the tile, of a row lie in the staging: swizzled as the TMA store expects.
  template <int kOutCols>
  __device__ __forceinline__ uint32_t staged_at(int row, int c8) const {
    constexpr int kChunk = chunk(kOutCols), kPitch = kChunk * 2;
    const int in_chunk = c8 % (kChunk / 8);
    const int swizzled = in_chunk ^ (kChunk == 64 ? row & 7 : row >> 1 & 3);
    return c8 / (kChunk / 8) * (Tile::kWgRows * kPitch) + row * kPitch + swizzled * 16;
  }

  __device__ __forceinline__ float4* piece(int tile, int worker) const {
    const int64_t slot = gemm_piece_slot(p_.schedule, tile, worker) * Tile::kCluster + place_.rank() % Tile::kCluster;
    float* at = p_.partials + slot * Tile::kRows * Tile::kCols + (Tile::kPingpong ? 0 : wg_ * (Tile::kWgRows * kCols));
    return reinterpret_cast<float4*>(at) + thread_;
  }

  __device__ __forceinline__ void ask_for_c() {
    c_asked_ = true;
    if (thread_ != 0) return;
    tma_store_wait_read();
    mbarrier_expect(&smem_.c_full[wg_], Tile::kWgRows * (p_.gated ? kCols / 2 : kCols) * 2);
    if constexpr (Tile::kTurned && kHoldsC) {
      constexpr int kChunks = kCols / kChunkCols;
      for (int i = 0; i < kParts * kChunks; ++i)
        tma_load(staging_ + i * Tile::kChunkBytes, &p_.c, row_ + i / kChunks * 64, col_ + i % kChunks * kChunkCols,
                 batch_ * p_.c_batch, &smem_.c_full[wg_]);
    } else {
      const int cols = p_.gated ? kCols / 2 : kCols, width = chunk(cols);
      for (int c = 0; c < cols; c += width)
        tma_load(staging_ + c * Tile::kWgRows * 2, &p_.c, (p_.gated ? col_ / 2 : col_) + c, row_, batch_ * p_.c_batch,
                 &smem_.c_full[wg_]);
    }
  }

  template <bool kGated>
  __device__ __forceinline__ void store_tile(Acc& acc) {
    constexpr int kOutCols = kGated ? kCols / 2 : kCols;
    const int thread = computed_here(thread_), lane = thread % 32, first_row = thread / 32 * 16;
#pragma unroll
    for (int i = 0; i < kParts; ++i) {
#pragma unroll
      for (int g = 0; g < kCols / 32; ++g) {  // 32 columns at a time: 16 values
        if (kChunked && g * 32 % kChunkCols == 0) wait_for_chunk(i == 0 && g == 0);
        float z[16];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          float2 bias = {0.f, 0.f};
          if (p_.epilogue.bias) bias = *reinterpret_cast<const float2*>(bias_ + g * 32 + j * 8 + lane % 4 * 2);
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            z[j * 4 + h * 2] = acc[i][(g * 4 + j) * 4 + h * 2] * p_.epilogue.alpha + bias.x;
            z[j * 4 + h * 2 + 1] = acc[i][(g * 4 + j) * 4 + h * 2 + 1] * p_.epilogue.alpha + bias.y;
          }
        }
        if constexpr (kGated) {
          float y[8];
#pragma unroll
          for (int e = 0; e < 8; ++e) y[e] = z[2 * e];
          gemm_activate<T>(p_.epilogue.act, y);
#pragma unroll
          for (int e = 0; e < 8; ++e) y[e] *= z[2 * e + 1] * p_.epilogue.out_scale;
          stage_gated(i * 64 + first_row, g, lane, y);
        } else {
          if constexpr (Tile::kFinish == GemmFinish::kFull) gemm_activate<T>(p_.epilogue.act, z);
#pragma unroll
          for (int e = 0; e < 16; ++e) z[e] *= p_.epilogue.out_scale;
          if constexpr (Tile::kStaged)
            stage(i * 64 + first_row, g, lane, z);
          else
            store_f32(i * 64 + first_row, g * 32 + lane % 4 * 2, lane, z);
        }
        if (kChunked && (g + 1) * 32 % kChunkCols == 0) store_chunk(i, (g * 32) / kChunkCols);
      }
    }
    if (!kHoldsC) return;
    fence_async();
    barrier_sync(kStoreBarrier + wg_, 128);
    if (thread_ == 0) {
      constexpr int kChunk = chunk(kOutCols);
#pragma unroll
      for (int c = 0; c < kOutCols; c += kChunk)
        tma_store(&p_.d, staging_ + c * Tile::kWgRows * 2, (kGated ? col_ / 2 : col_) + c, row_, batch_);
      tma_store_commit();
    }
  }

  // acc[r, c] belongs to row c, column r of the caller's d: transposed on the way into the staging. A chunk is 64 of the
  // caller's columns and kChunkCols of its rows. (kPlain: in turn in the two halves of the staging.)
  __device__ __forceinline__ void store_turned(Acc& acc) {
    constexpr int kChunks = kCols / kChunkCols;
    const int thread = computed_here(thread_), lane = thread % 32, first = thread / 32 * 16;
#pragma unroll
    for (int i = 0; i < kParts; ++i) {
      float bias[2] = {0.f, 0.f};
      if (p_.epilogue.bias) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const int r = row_ + i * 64 + first + lane / 4 + 8 * h;
          if (r < p_.rows) bias[h] = static_cast<float>(static_cast<const T*>(p_.epilogue.bias)[r]);
        }
      }
#pragma unroll
      for (int chunk = 0; chunk < kChunks; ++chunk) {
        const int turn = i * kChunks + chunk;
        if (kChunked) wait_for_chunk(turn == 0);
        char* staging = staging_ + (kChunked ? turn % 2 : turn) * Tile::kChunkBytes;
#pragma unroll
        for (int j = 0; j < kChunkCols / 8; j += 2) {
          float z[8];
#pragma unroll
          for (int e = 0; e < 8; ++e)
            z[e] = acc[i][(chunk * (kChunkCols / 8) + j) * 4 + e] * p_.epilogue.alpha + bias[e % 4 / 2];
          if constexpr (Tile::kFinish == GemmFinish::kFull) gemm_activate<T>(p_.epilogue.act, z);
#pragma unroll
          for (int e = 0; e < 8; ++e) z[e] *= p_.epilogue.out_scale;
          // Four matrices of 8x8: the caller's columns 0-7 and 8-15 of 8 rows, then of the next 8 rows.
          const int r = j * 8 + lane / 16 * 8 + lane % 8, c8 = first / 8 + lane / 8 % 2;
          stage_8x8<true>(smem_address(staging) + r * 128 + ((c8 ^ (r & 7)) << 4), z);
        }
        fence_async();
        barrier_sync(kStoreBarrier + wg_, 128);
        if (thread_ == 0) {
          tma_store(&p_.d, staging, row_ + i * 64, col_ + chunk * kChunkCols, batch_);
          tma_store_commit();
        }
      }
    }
  }

  // kPlain: the chunk before the last one has left its half of the staging. With an odd number of chunks a tile begins with
  // the half that the one before ended with, and that one must have left too.
  __device__ __forceinline__ void wait_for_chunk(bool first) {
    if (thread_ == 0) {
      if (kOddChunks && first)
        tma_store_wait_read();
      else
        tma_store_wait_read<1>();
    }
    barrier_sync(kStoreBarrier + wg_, 128);
  }

  // Four matrices of 8x8 into the staging, c added that is there.
  template <bool kTrans>
  __device__ __forceinline__ void stage_8x8(uint32_t at, float* x) {
    uint32_t v[4];
    if (kHoldsC && p_.c_data) {
      kTrans ? ldmatrix_x4_trans(at, v) : ldmatrix_x4(at, v);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float2 c = unpack2(static_cast<T*>(nullptr), v[e]);
        x[2 * e] += p_.epilogue.beta * c.x;
        x[2 * e + 1] += p_.epilogue.beta * c.y;
      }
    }
#pragma unroll
    for (int e = 0; e < 4; ++e) v[e] = pack2(static_cast<T*>(nullptr), x[2 * e], x[2 * e + 1]);
    kTrans ? stmatrix_x4_trans(at, v) : stmatrix_x4(at, v);
  }

  // kPlain: 64 rows and 64 (or 32) columns at a time, in turn in the two halves of the staging.
  __device__ __forceinline__ void store_chunk(int part, int chunk) {
    fence_async();
    barrier_sync(kStoreBarrier + wg_, 128);
    if (thread_ == 0) {
      const int turn = (part * (kCols / kChunkCols) + chunk) % 2;
      tma_store(&p_.d, staging_ + turn * (64 * kChunkCols * 2), col_ + chunk * kChunkCols, row_ + part * 64, batch_);
      tma_store_commit();
    }
  }

  // 16 rows from `row` on, 32 columns: two times four 8x8 matrices.
  __device__ __forceinline__ void stage(int row, int g, int lane, float (&z)[16]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int c8 = g * 4 + half * 2 + lane / 16, r = row + lane % 16;
      uint32_t at = smem_address(staging_);
      if constexpr (kChunked) {
        const int turn = (row / 64 * (kCols / kChunkCols) + g * 32 / kChunkCols) % 2;
        at += turn * (64 * kChunkCols * 2) + staged_at<kChunkCols>(r % 64, c8 % (kChunkCols / 8));
      } else {
        at += staged_at<kCols>(r, c8);
      }
      stage_8x8<false>(at, z + half * 8);
    }
  }

  // Gated: the 16 results of a row's 32 columns are one in each thread, not pairs; two bytes at a time.
  __device__ __forceinline__ void stage_gated(int row, int g, int lane, float (&y)[8]) {
#pragma unroll
    for (int j = 0; j < 4; ++j)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int r = row + lane / 4 + 8 * h;
        const int col = j % 2 * 4 + lane % 4;
        T* at = reinterpret_cast<T*>(staging_ + staged_at<kCols / 2>(r, g * 2 + j / 2)) + col;
        float v = y[j * 2 + h];
        if (p_.c_data) v += p_.epilogue.beta * static_cast<float>(*at);
        *at = static_cast<T>(v);
      }
  }

  // Two neighbours of a row at a time; d and c start on multiples of 8 bytes.
  __device__ __forceinline__ void store_f32(int row, int col, int lane, float (&v)[16]) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int64_t r = row_ + row + lane / 4 + 8 * h;
      if (r >= p_.rows) continue;
      float* d = static_cast<float*>(p_.d_data) + batch_ * p_.d_batch_stride + r * p_.d_row + col_ + col;
      const float* c = static_cast<const float*>(p_.c_data) + batch_ * p_.c_batch_stride + r * p_.c_row + col_ + col;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        float2 x = {v[(j * 2 + h) * 2], v[(j * 2 + h) * 2 + 1]};
        if (col_ + col + j * 8 + 1 < p_.cols) {
          if (p_.c_data) {
            const float2 y = *reinterpret_cast<const float2*>(c + j * 8);
            x.x += p_.epilogue.beta * y.x, x.y += p_.epilogue.beta * y.y;
          }
          *reinterpret_cast<float2*>(d + j * 8) = x;
        } else if (col_ + col + j * 8 < p_.cols) {
          if (p_.c_data) x.x += p_.epilogue.beta * c[j * 8];
          d[j * 8] = x.x;
        }
      }
    }
  }

  // acc[r, c] belongs to row c, column r of the caller's d. In shared memory as [c][r]; then a thread takes 8 columns of
  // the caller's, the same ones in every pass.
  __device__ __forceinline__ void store_swapped(Acc& acc) {
    float* staging = reinterpret_cast<float*>(staging_);
    const int lane = thread_ % 32, first = thread_ / 32 * 16 + lane / 4;
    constexpr int kThreads = 8;  // for 64 columns of the caller's
#pragma unroll
    for (int i = 0; i < kParts; ++i) {
      barrier_sync(kStoreBarrier + wg_, 128);  // what was there before has been read
#pragma unroll
      for (int j = 0; j < kCols / 8; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e)
          staging[(j * 8 + lane % 4 * 2 + e % 2) * Tile::kSwapPitch + first + e / 2 * 8] = acc[i][j * 4 + e];
      barrier_sync(kStoreBarrier + wg_, 128);

      const int col = row_ + i * 64 + thread_ % kThreads * 8;
      if (col >= p_.rows) continue;
      float bias[8] = {};
      if (p_.epilogue.bias) {
#pragma unroll
        for (int e = 0; e < 8; ++e)
          if (col + e < p_.rows) bias[e] = static_cast<float>(static_cast<const T*>(p_.epilogue.bias)[col + e]);
      }
#pragma unroll 1
      for (int pass = 0; pass < (kCols * kThreads + 127) / 128; ++pass) {
        const int r = pass * (128 / kThreads) + thread_ / kThreads;
        if (r >= kCols || col_ + r >= p_.cols) break;
        const float* from = staging + r * Tile::kSwapPitch + thread_ % kThreads * 8;
        float z[8];
        *reinterpret_cast<float4*>(z) = *reinterpret_cast<const float4*>(from);
        *reinterpret_cast<float4*>(z + 4) = *reinterpret_cast<const float4*>(from + 4);
        finish_run(col_ + r, col, z, bias);
      }
    }
  }

  // 8 columns of a row of the caller's.
  __device__ __forceinline__ void finish_run(int row, int col, float (&z)[8], const float (&bias)[8]) {
#pragma unroll
    for (int e = 0; e < 8; ++e) z[e] = z[e] * p_.epilogue.alpha + bias[e];
    if (p_.gated) {
      float y[4];
#pragma unroll
      for (int e = 0; e < 4; ++e) y[e] = z[2 * e];
      activate(y);
#pragma unroll
      for (int e = 0; e < 4; ++e) y[e] *= z[2 * e + 1] * p_.epilogue.out_scale;
      store_run(row, col / 2, y);
    } else {
      activate(z);
#pragma unroll
      for (int e = 0; e < 8; ++e) z[e] *= p_.epilogue.out_scale;
      store_run(row, col, z);
    }
  }

  template <int N>
  __device__ __forceinline__ void activate(float (&z)[N]) {
    p_.out_f32 ? gemm_activate<float>(p_.epilogue.act, z) : gemm_activate<T>(p_.epilogue.act, z);
  }

  // N neighbours of a row of the caller's d.
  template <int N>
  __device__ __forceinline__ void store_run(int64_t row, int64_t col, float (&v)[N]) {
    const int64_t cols = p_.gated ? p_.rows / 2 : p_.rows;
    const int64_t d_at = batch_ * p_.d_batch_stride + row * p_.d_row + col;
    const int64_t c_at = batch_ * p_.c_batch_stride + row * p_.c_row + col;
#pragma unroll
    for (int e = 0; e < N; ++e) {
      if (!p_.c_data || col + e >= cols) continue;
      v[e] += p_.epilogue.beta * (p_.out_f32 ? static_cast<const float*>(p_.c_data)[c_at + e]
                                             : static_cast<float>(static_cast<const T*>(p_.c_data)[c_at + e]));
    }
    if (p_.out_f32) {
      float* d = static_cast<float*>(p_.d_data) + d_at;
#pragma unroll
      for (int e = 0; e < N; ++e)
        if (col + e < cols) d[e] = v[e];
      return;
    }
    T* d = static_cast<T*>(p_.d_data) + d_at;
    if (p_.wide && col + N <= cols) {
      uint32_t r[N / 2];
#pragma unroll
      for (int e = 0; e < N / 2; ++e) r[e] = pack2(static_cast<T*>(nullptr), v[2 * e], v[2 * e + 1]);
      if constexpr (N == 8)
        *reinterpret_cast<uint4*>(d) = make_uint4(r[0], r[1], r[2], r[3]);
      else
        *reinterpret_cast<uint2*>(d) = make_uint2(r[0], r[1]);
    } else {
#pragma unroll
      for (int e = 0; e < N; ++e)
        if (col + e < cols) d[e] = static_cast<T>(v[e]);
    }
  }

  const GemmSm90Params& p_;
  const GemmSmem<Tile>& smem_;
  const int wg_, thread_;
  const typename Tile::Place place_;
  const int worker_;
  char* staging_;
  float* bias_;
  int row_, col_, batch_;
  bool c_asked_, whole_;
  uint32_t c_phase_ = 0;
  float bias_ahead_[kBiasRegisters];
};

}  // namespace ek
