// SPDX-License-Identifier: Apache-2.0
// Where the k of a tile is in several blocks: how their sums come together.
//   pieces  of a stream: through memory; whoever comes last adds them up and ends the tile
//   split   in a cluster: the tile's chunks are dealt out to its blocks, each of which puts its sums of the others' chunks into
//           their shared memory, adds up its own ones and ends them
// Both add in an order that does not depend on who is faster.
#pragma once

#include "cuda/cluster.cuh"
#include "cuda/traffic.cuh"
#include "ops/gemm/gemm_sm90.cuh"

namespace ek {

constexpr int kStoreBarrier = 1;  // one for each warpgroup, among its own threads
constexpr int kOrderBarrier = 3;  // ping-pong: one for each warpgroup, whose turn it is
constexpr int kFillBarrier = 5;   // among the producers
constexpr int kHalfBarrier = 6;   // ping-pong: half of the last tile is in the ring

// The sums of one warpgroup.
template <class Tile>
class GemmSm90Join {
 public:
  static constexpr int kCols = Tile::kWgCols, kChunks = Tile::kChunks;
  static constexpr int kVectors = Tile::kWgRows / 64 * kCols / 8;  // of four accumulators each
  using Acc = float[Tile::kWgRows / 64][kCols / 2];

  __device__ __forceinline__ GemmSm90Join(const GemmSm90Params& p, const GemmSmem<Tile>& smem, int wg,
                                          const typename Tile::Place& place, int worker)
      : p_(p), smem_(smem), wg_(wg), thread_(threadIdx.x % 128), place_(place), worker_(worker) {}

  // A piece: left in memory for whoever comes last, who gets true and the whole sums.
  __device__ __forceinline__ bool pieces(const GemmWork& work, Acc& acc) const {
    const GemmPieces pieces = gemm_pieces(p_.schedule, work.tile);
    float4* mine = piece(work.tile, worker_);
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      const float* x = vector(acc, v);
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
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      const float4 y = __ldcg(piece(work.tile, pieces.first) + v * 128);
      float* x = vector(acc, v);
      x[0] = y.x, x[1] = y.y, x[2] = y.z, x[3] = y.w;
    }
    constexpr int kLoads = kVectors < 4 ? kVectors : 4;
#pragma unroll 1
    for (int w = pieces.first + 1; w <= pieces.last; ++w) {
      const float4* from = piece(work.tile, w);
#pragma unroll
      for (int first = 0; first < kVectors; first += kLoads) {
        float4 y[kLoads];
#pragma unroll
        for (int v = 0; v < kLoads; ++v) y[v] = __ldcg(from + (first + v) * 128);
#pragma unroll
        for (int v = 0; v < kLoads; ++v) add(vector(acc, first + v), y[v]);
        __syncwarp();  // or the compiler puts all loads first, into registers that are not there
      }
    }
    return true;
  }

  // Split, before the product: which chunks of this warpgroup the block ends.
  __device__ __forceinline__ void begin_split(int* first, int* last) const {
    const int each = p_.each.divisor, before = place_.slice * each - wg_ * kChunks;  // the first of the block's
    // The compiler knows that shuffles give all threads of a warp the same; without, the main loop leaves the uniform registers.
    *first = warp_uniform(min(max(before, 0), kChunks));
    *last = warp_uniform(min(max(before + each, 0), kChunks));
    if (thread_ == 0) mbarrier_expect(&smem_.arrived[wg_], (*last - *first) * (p_.schedule.split - 1) * kChunkBytes);
  }

  // After it: sums go where they belong, and those of chunks [first, last) become whole: the block's part of k first, then those of
  // the others in order. Whether there are any.
  __device__ __forceinline__ bool split(Acc& acc, int first, int last) const {
    const int others = p_.schedule.split - 1, slice = place_.slice, each = p_.each.divisor;
    const uint32_t first_rank = place_.rank() % Tile::kCluster;  // of the blocks with the same tile
    if (p_.sums == 0) {
      barrier_sync(kStoreBarrier + wg_, 128);  // all of this warpgroup's products have ended
      if (thread_ == 0)
        for (int r = 0; r <= others; ++r)
          if (r != slice) mbarrier_arrive(smem_.room, r * Tile::kCluster + first_rank);
      mbarrier_wait(smem_.room, 0);  // the rings of all others are free
    }
    float4* const sums = reinterpret_cast<float4*>(smem_.ring + p_.sums) + thread_;
#pragma unroll
    for (int t = 0; t < kChunks; ++t) {
      const int chunk = wg_ * kChunks + t, to = warp_uniform(p_.each.divide(chunk));  // whose it is
      if (to == slice) continue;
      float4* const at = sums + ((slice - (slice > to)) * each + chunk - to * each) * (kPerChunk * 128);
#pragma unroll
      for (int i = 0; i < kPerChunk; ++i) {
        const float* x = vector(acc, t * kPerChunk + i);
        cluster_store_async(at + i * 128, &smem_.arrived[wg_], to * Tile::kCluster + first_rank,
                            make_float4(x[0], x[1], x[2], x[3]));
      }
    }
    // Of several chunks a warpgroup that ends none goes on too, and finds nothing to do: the compiler makes more of that.
    if (kChunks == 1 && first == last) return false;
    mbarrier_wait(&smem_.arrived[wg_], 0);
#pragma unroll
    for (int t = 0; t < kChunks; ++t) {
      if (t < first || t >= last) continue;
      const float4* from = sums + (wg_ * kChunks + t - slice * each) * (kPerChunk * 128);
#pragma unroll 1  // code that runs once is fetched for that
      for (int r = 0; r < others; ++r, from += each * (kPerChunk * 128))
#pragma unroll
        for (int i = 0; i < kPerChunk; ++i) add(vector(acc, t * kPerChunk + i), from[i * 128]);
    }
    return true;
  }

 private:
  static constexpr int kPerChunk = kVectors / kChunks;
  static constexpr int kChunkBytes = kPerChunk * 128 * 16;  // of a chunk's sums

  static __device__ __forceinline__ float* vector(Acc& acc, int v) {
    return &acc[v / (kCols / 8)][v % (kCols / 8) * 4];
  }
  static __device__ __forceinline__ void add(float* x, float4 y) { x[0] += y.x, x[1] += y.y, x[2] += y.z, x[3] += y.w; }

  __device__ __forceinline__ float4* piece(int tile, int worker) const {
    const int64_t slot = gemm_piece_slot(p_.schedule, tile, worker) * Tile::kCluster + place_.rank() % Tile::kCluster;
    float* at = p_.partials + slot * Tile::kRows * Tile::kCols + (Tile::kPingpong ? 0 : wg_ * (Tile::kWgRows * kCols));
    return reinterpret_cast<float4*>(at) + thread_;
  }

  const GemmSm90Params& p_;
  const GemmSmem<Tile>& smem_;
  const int wg_, thread_;
  const typename Tile::Place place_;
  const int worker_;
};

}  // namespace ek
