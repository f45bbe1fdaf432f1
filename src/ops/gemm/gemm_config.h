// SPDX-License-Identifier: Apache-2.0
// Which tile gemm_sm90 takes for a product, and how the work is dealt out: a pure function of shape and device. It
// predicts a time for every tile from waves, cycles and bytes and takes the least.
#pragma once

#include "ops/gemm/gemm_call.h"
#include "ops/gemm/gemm_schedule.h"

namespace ek {

// What the blocks of a cluster have in common: nothing (no cluster), two of them the tile of b, two the tile of a, or four
// of them, two by two, one of each.
enum class GemmShare { kNone, kB, kA, kBoth };
constexpr bool gemm_shares_a(GemmShare s) { return s == GemmShare::kA || s == GemmShare::kBoth; }
constexpr bool gemm_shares_b(GemmShare s) { return s == GemmShare::kB || s == GemmShare::kBoth; }
constexpr int gemm_sharing(GemmShare s) { return (gemm_shares_a(s) ? 2 : 1) * (gemm_shares_b(s) ? 2 : 1); }
// What the two warpgroups of a block divide: the rows of a tile, its columns, or the tiles (each takes every other one).
enum class GemmGroups { kRows, kCols, kTurns };
// How the accumulators leave: see gemm_sm90_epilogue.cuh.
enum class GemmFinish { kPlain, kFull, kF32, kSwap };

// The tiles that are built. `efficiency`: of the matrix units' rate in the main loop, measured (docs/measured-facts.md).
struct GemmTileInfo {
  const char* name;
  int rows, cols;
  GemmShare share;
  bool pingpong;  // each warpgroup has a tile of its own, and stores it while the other one multiplies
  float efficiency;
  bool full;          // also with activations, gates and c
  bool every_layout;  // also where a or b is not contiguous along k
};
constexpr GemmTileInfo kGemmTiles[] = {
    {"128x256", 128, 256, GemmShare::kB, false, 0.93f, true, true},
    {"256x128", 256, 128, GemmShare::kB, false, 0.92f, false, false},
    {"128x192", 128, 192, GemmShare::kB, false, 0.93f, false, false},
    {"128x128 ping-pong", 128, 128, GemmShare::kB, true, 0.80f, true, false},
    {"128x128 pairs sharing b", 128, 128, GemmShare::kB, false, 0.86f, true, false},
    {"128x128 pairs sharing a", 128, 128, GemmShare::kA, false, 0.86f, true, false},
    {"128x128", 128, 128, GemmShare::kNone, false, 0.85f, true, true},
    {"128x64", 128, 64, GemmShare::kNone, false, 0.62f, true, false},
};
constexpr int kGemmTileCount = sizeof(kGemmTiles) / sizeof(kGemmTiles[0]);
// Swapped: 128 of n by so many of m.
constexpr int kGemmSwapCols[] = {8, 16, 32, 64};
constexpr int kGemmSwapCount = 4;

constexpr bool gemm_tile_built(int tile, bool along_k, GemmFinish finish) {
  const GemmTileInfo& t = kGemmTiles[tile];
  if (finish == GemmFinish::kF32) return t.rows == 128 && t.cols == 128 && t.share == GemmShare::kNone;
  if (!along_k) return t.every_layout;
  return t.full || finish != GemmFinish::kFull;
}

// Whose k can be split: both warpgroups have a part of one tile, and the sums of the others fit into the ring.
constexpr bool gemm_tile_splits(const GemmTileInfo& t) { return !t.pingpong && t.rows * t.cols <= 128 * 128; }

struct GemmPlan {
  int tile = -1;  // of kGemmTiles, or of kGemmSwapCols
  GemmSchedule schedule;
  float cycles = 0;  // predicted
};

// ---- what a call needs -----------------------------------------------------------------------------------------------

inline bool gemm_aligned(const Matrix& x, ek_dtype dtype, int bytes) {
  const int64_t size = dtype_bytes(dtype);
  return reinterpret_cast<uintptr_t>(x.data) % bytes == 0 && x.row * size % bytes == 0 && x.col * size % bytes == 0 &&
         x.batch * size % bytes == 0;
}
// The strides of a matrix whose one dim is contiguous, with the contiguous one taken as aligned.
inline bool gemm_rows_aligned(Matrix x, ek_dtype dtype, int bytes) {
  if (x.col == 1)
    x.col = 0;
  else if (x.row == 1)
    x.row = 0;
  else
    return false;
  return gemm_aligned(x, dtype, bytes);
}

// c and d can be moved 16 bytes at a time.
inline bool gemm_wide(const GemmCall& c) {
  return c.out == c.in && c.d.col == 1 && gemm_rows_aligned(c.d, c.out, 16) &&
         (!c.c.data || (c.c.col == 1 && gemm_rows_aligned(c.c, c.out, 16)));
}

// Why the results can't be moved that way, or null. The copy engine stores whole units of 16 bytes, past the end of a row too.
inline const char* gemm_not_wide(const GemmCall& c) {
  if (!gemm_wide(c)) return "rows of c or d are not on 16-byte boundaries";
  if (c.c.data && c.m > 1 && c.c.row == 0) return "the rows of c are all the same one";
  return c.n_out * dtype_bytes(c.out) % 16 ? "rows of d are not a whole number of 16 bytes" : nullptr;
}

inline GemmFinish gemm_finish(const GemmCall& c) {
  if (c.out != c.in) return GemmFinish::kF32;
  return c.plain() && !c.c.data ? GemmFinish::kPlain : GemmFinish::kFull;
}

// Room for the sums of an index and a tile in 32 bits.
constexpr int64_t kGemmMaxDim = (int64_t{1} << 31) - 4096;

// Why the copy engine can't read the operands, or null.
inline const char* gemm_not_tma(const GemmCall& c) {
  if (c.in == EK_DTYPE_F32) return "16-bit inputs only";
  if (c.m == 0 || c.n == 0 || c.k == 0 || c.batch == 0) return "a dim is 0";
  if (c.m > kGemmMaxDim || c.n > kGemmMaxDim || c.k > kGemmMaxDim) return "a dim is 2^31 or nearly so";
  // Tiles are counted in 32 bits.
  if (static_cast<double>(c.batch) * (c.m / 128 + 1) * (c.n / 8 + 1) > kGemmMaxDim) return "too many tiles";
  if (!gemm_rows_aligned(c.a, c.in, 16)) return "rows or columns of a are not contiguous on 16-byte boundaries";
  if (!gemm_rows_aligned(c.b, c.in, 16)) return "rows or columns of b are not contiguous on 16-byte boundaries";
  if ((c.m > 1 && c.a.row == 0) || (c.n > 1 && c.b.col == 0) || (c.k > 1 && (c.a.col == 0 || c.b.row == 0)))
    return "a stride of a or b is 0";
  if (c.d.col != 1 || (c.c.data && c.c.col != 1)) return "rows of c or d are not contiguous";
  return nullptr;
}

// ---- the plan ----------------------------------------------------------------------------------------------------------

inline int64_t gemm_ceil(int64_t a, int64_t b) { return (a + b - 1) / b; }

constexpr float kGemmFixedCycles = 5000;    // launch, first loads, last stores: some 3 us
constexpr float kGemmStoreCycles = 16;      // for a column of a tile
constexpr float kGemmL2BytesPerCycle = 46;  // into one SM while all of them load
constexpr float kGemmJoinCycles = 2500;     // of a split: the blocks of a cluster find each other
constexpr float kGemmJoinBytesPerCycle = 30;
constexpr float kGemmStreamCycles = 15000;  // a piece to memory, and the others from there
constexpr int kGemmMaxSplit = 8;            // blocks of a cluster
// Least bytes of a ring: of the tiles that may be split, and of the swapped ones.
constexpr int kGemmRingBytes = 190000;
constexpr int kGemmSwapRingBytes = 65536;

// Tiles of one kind for a product of m by n, without a split of k.
inline GemmPlan gemm_plan_tile(const GemmCall& c, const Device& device, int tile) {
  const GemmTileInfo& t = kGemmTiles[tile];
  const int pair_rows = gemm_shares_b(t.share) ? 2 : 1, pair_cols = gemm_shares_a(t.share) ? 2 : 1;
  const int cluster = pair_rows * pair_cols;
  GemmPlan plan;
  plan.tile = tile;
  plan.schedule =
      GemmSchedule(gemm_ceil(c.m, t.rows * pair_rows), gemm_ceil(c.n, t.cols * pair_cols), c.batch, gemm_ceil(c.k, 64));
  GemmSchedule& s = plan.schedule;
  const int64_t tiles = int64_t{s.rows} * s.cols * s.batch, room = device.processors / cluster;
  s.workers = static_cast<int32_t>(tiles < room ? tiles : room);

  // A k block takes the matrix units rows * cols / 32 cycles, unless its bytes take longer to come out of L2.
  // (The widest tile with c and an activation has to do with three stages in its ring instead of four.)
  const float slower = t.cols == 256 && gemm_finish(c) == GemmFinish::kFull ? 0.9f : 1.f;
  const float compute = t.rows * t.cols / 32.f / (t.efficiency * slower);
  const float busy = static_cast<float>(s.workers * cluster) / device.processors;
  const float bytes = 128.f * (t.rows / pair_cols + t.cols / pair_rows) * busy;
  const float block = compute > bytes / kGemmL2BytesPerCycle ? compute : bytes / kGemmL2BytesPerCycle;
  const float waves = static_cast<float>(gemm_ceil(tiles, s.workers));
  const float stores = kGemmStoreCycles * t.cols * (t.pingpong ? 1 : waves);
  plan.cycles = kGemmFixedCycles + waves * s.k_blocks * block + stores;
  return plan;
}

// The same with the k of every tile cut into parts for the blocks of a cluster: for few tiles.
inline GemmPlan gemm_plan_split(const GemmCall& c, const Device& device, int tile) {
  GemmPlan plan = gemm_plan_tile(c, device, tile);
  const GemmTileInfo& t = kGemmTiles[tile];
  GemmSchedule& s = plan.schedule;
  const int64_t tiles = int64_t{s.rows} * s.cols * s.batch;
  plan.tile = -1;
  if (!gemm_tile_splits(t)) return plan;
  const int cluster = gemm_sharing(t.share);
  const float block = (plan.cycles - kGemmFixedCycles - kGemmStoreCycles * t.cols) / s.k_blocks;
  for (int split = 2;
       split * cluster <= kGemmMaxSplit && split <= s.k_blocks / 4 && tiles * split * cluster <= device.processors;
       ++split) {
    const int sums = (split - 1) * t.rows * t.cols * 4;  // they end in the ring of one block
    if (sums > kGemmRingBytes) break;
    const float cycles = kGemmFixedCycles + kGemmStoreCycles * t.cols + kGemmJoinCycles +
                         sums / kGemmJoinBytesPerCycle + block * gemm_ceil(s.k_blocks, split);
    if (plan.tile >= 0 && cycles >= plan.cycles) continue;
    plan.tile = tile;
    plan.cycles = cycles;
    s.cut(split);
  }
  return plan;
}

// The same with the tiles of the last, incomplete wave cut along k, so that all blocks end together.
inline GemmPlan gemm_plan_stream(const GemmCall& c, const Device& device, int tile) {
  GemmPlan plan = gemm_plan_tile(c, device, tile);
  GemmSchedule& s = plan.schedule;
  const int64_t tiles = int64_t{s.rows} * s.cols * s.batch;
  const int64_t rest = tiles % s.workers, whole = tiles / s.workers;
  plan.tile = -1;
  if (rest == 0 || whole == 0 || rest * s.k_blocks < 4 * s.workers || rest * s.k_blocks > 0x7fffffff) return plan;
  const float wave = (plan.cycles - kGemmFixedCycles) / (whole + 1);
  plan.tile = tile;
  plan.cycles = kGemmFixedCycles + wave * tiles / s.workers + kGemmStreamCycles;
  s.streamed = static_cast<int32_t>(rest);
  return plan;
}

template <class Plan>
GemmPlan gemm_best_plan(const GemmCall& c, const Device& device, Plan plan_tile) {
  const bool along_k = c.a.col == 1 && c.b.row == 1;
  const GemmFinish finish = gemm_finish(c);
  GemmPlan best;
  for (int tile = 0; tile < kGemmTileCount; ++tile) {
    if (!gemm_tile_built(tile, along_k, finish)) continue;
    const GemmPlan plan = plan_tile(c, device, tile);
    if (plan.tile >= 0 && (best.tile < 0 || plan.cycles < best.cycles)) best = plan;
  }
  return best;  // tile is -1 where there is none
}

// Every k in one block: the bits of a row do not depend on m.
inline GemmPlan gemm_sm90_plan(const GemmCall& c, const Device& device) {
  return gemm_best_plan(c, device, gemm_plan_tile);
}

// k cut in one way or the other.
inline GemmPlan gemm_sm90_split_plan(const GemmCall& c, const Device& device) {
  const GemmPlan split = gemm_best_plan(c, device, gemm_plan_split),
                 stream = gemm_best_plan(c, device, gemm_plan_stream);
  return split.tile >= 0 && (stream.tile < 0 || split.cycles <= stream.cycles) ? split : stream;
}

// Few rows of a: b's columns are the rows of the tile. All that counts is that b streams in.
inline GemmPlan gemm_sm90_swap_plan(const GemmCall& c, const Device& device) {
  GemmPlan plan;
  for (plan.tile = 0; kGemmSwapCols[plan.tile] < c.m && plan.tile < kGemmSwapCount - 1; ++plan.tile) {
  }
  const int cols = kGemmSwapCols[plan.tile];
  plan.schedule = GemmSchedule(gemm_ceil(c.n, 128), gemm_ceil(c.m, cols), c.batch, gemm_ceil(c.k, 64));
  GemmSchedule& s = plan.schedule;
  const int64_t tiles = int64_t{s.rows} * s.cols * s.batch;
  // Two blocks of the narrow tiles fit on an SM. Measured best: three blocks for two SMs; of the wide ones three for four.
  const int64_t room = device.processors * (cols <= 16 ? 2 : 1);
  const int64_t fill = cols <= 16 ? device.processors * 3 / 2 : device.processors * 3 / 4;
  while (s.split < kGemmMaxSplit && tiles * (s.split + 1) <= fill && s.k_blocks / (s.split + 1) >= 4 &&
         s.split * 128 * cols * 4 <= kGemmSwapRingBytes)
    s.cut(s.split + 1);
  s.workers = static_cast<int32_t>(tiles < room ? tiles : room);
  if (tiles > room && tiles * s.k_blocks < 0x7fffffff && tiles * 2 <= kCounters)
    s.streamed = static_cast<int32_t>(tiles);
  return plan;
}

// Workspace for the pieces of streamed tiles.
inline size_t gemm_streamed_bytes(const GemmSchedule& s, int cluster, int rows, int cols) {
  return s.streamed ? size_t{2} * s.workers * cluster * rows * cols * 4 : 0;
}

}  // namespace ek
