// SPDX-License-Identifier: Apache-2.0
// Which tile gemm_sm90 takes for a product, and how the work is dealt out: a pure function of shape and device. It
// predicts a time for every tile from waves, cycles and bytes and takes the least.
#pragma once

#include <algorithm>

#include "ops/gemm/gemm_call.h"
#include "ops/gemm/gemm_schedule.h"

namespace ek {

// What the blocks of a cluster have in common. The digits are the rows and columns of its tiles: those in a column
// share b's tile, those in a row share a's.
enum class GemmShare { kNone = 11, kB = 21, kA = 12, kBoth = 42 };
constexpr int gemm_share_rows(GemmShare s) { return static_cast<int>(s) / 10; }
constexpr int gemm_share_cols(GemmShare s) { return static_cast<int>(s) % 10; }
constexpr int gemm_sharing(GemmShare s) { return gemm_share_rows(s) * gemm_share_cols(s); }
// What the two warpgroups of a block divide: the rows of a tile, its columns, or the tiles (each takes every other one).
enum class GemmGroups { kRows, kCols, kTurns };
// How the accumulators leave: see gemm_sm90_epilogue.cuh.
enum class GemmFinish { kPlain, kFull };

// The tiles that are built. `efficiency`: of the matrix units' rate in the main loop, measured (docs/measured-facts.md).
struct GemmTileInfo {
  const char* name;
  int rows, cols;     // of d; turned: of its transpose
  GemmGroups groups;  // kTurns: ping-pong, or one warpgroup alone where a block has a single tile
  GemmShare share;
  bool turned;  // computes the transpose, and turns it on the way out: cols of m
  float efficiency;
  bool every_layout;      // also where a or b is not contiguous along k
  bool overlaps = false;  // only where b is constant, which says that kernels overlap (PDL)
};
constexpr GemmTileInfo kGemmTiles[] = {
    {"128x224", 128, 224, GemmGroups::kRows, GemmShare::kB, false, 0.86f, false},
    {"128x224, a shared", 128, 224, GemmGroups::kRows, GemmShare::kA, false, 0.86f, false},
    {"128x192", 128, 192, GemmGroups::kRows, GemmShare::kB, false, 0.85f, false},
    {"128x160", 128, 160, GemmGroups::kRows, GemmShare::kB, false, 0.85f, false},
    {"128x128 ping-pong", 128, 128, GemmGroups::kTurns, GemmShare::kB, false, 0.85f, true},
    {"128x128", 128, 128, GemmGroups::kRows, GemmShare::kNone, false, 0.85f, true},
    {"128x96", 128, 96, GemmGroups::kRows, GemmShare::kNone, false, 0.80f, false},
    {"64x64, one group", 64, 64, GemmGroups::kTurns, GemmShare::kNone, false, 0.85f, false},
    {"64x96, one group", 64, 96, GemmGroups::kTurns, GemmShare::kNone, false, 0.85f, false},
    {"turned 128x216", 128, 216, GemmGroups::kRows, GemmShare::kA, true, 0.85f, false},
    {"turned 192x208", 192, 208, GemmGroups::kCols, GemmShare::kA, true, 0.85f, false},
    {"turned 128x160", 128, 160, GemmGroups::kRows, GemmShare::kA, true, 0.83f, false},
    {"turned 64x128, eights", 64, 128, GemmGroups::kTurns, GemmShare::kBoth, true, 0.85f, false},
    {"128x256", 128, 256, GemmGroups::kRows, GemmShare::kB, false, 0.89f, true},
    {"128x240", 128, 240, GemmGroups::kRows, GemmShare::kB, false, 0.87f, false},
    {"128x208", 128, 208, GemmGroups::kRows, GemmShare::kB, false, 0.86f, false},
    {"64x128, one group", 64, 128, GemmGroups::kTurns, GemmShare::kNone, false, 0.85f, false},
    {"64x160, one group", 64, 160, GemmGroups::kTurns, GemmShare::kNone, false, 0.85f, false},
    {"64x176, one group", 64, 176, GemmGroups::kTurns, GemmShare::kNone, false, 0.79f, false},
    {"64x192, one group", 64, 192, GemmGroups::kTurns, GemmShare::kNone, false, 0.76f, false},
    {"64x224, one group", 64, 224, GemmGroups::kTurns, GemmShare::kNone, false, 0.79f, false},
    {"128x64", 128, 64, GemmGroups::kRows, GemmShare::kNone, false, 0.85f, false},
    {"128x176 ping-pong", 128, 176, GemmGroups::kTurns, GemmShare::kB, false, 0.865f, false},
    {"64x64, pairs", 64, 64, GemmGroups::kTurns, GemmShare::kB, false, 0.85f, false, true},
    {"64x96, pairs", 64, 96, GemmGroups::kTurns, GemmShare::kB, false, 0.85f, false, true},
    {"64x128, pairs", 64, 128, GemmGroups::kTurns, GemmShare::kB, false, 0.85f, false, true},
    {"64x160, pairs", 64, 160, GemmGroups::kTurns, GemmShare::kB, false, 0.85f, false, true},
    {"turned 128x72", 128, 72, GemmGroups::kRows, GemmShare::kA, true, 0.80f, false},
    {"turned 128x104", 128, 104, GemmGroups::kRows, GemmShare::kA, true, 0.82f, false},
    {"turned 128x136", 128, 136, GemmGroups::kRows, GemmShare::kNone, true, 0.84f, false},
    {"turned 128x152", 128, 152, GemmGroups::kRows, GemmShare::kA, true, 0.85f, false},
    {"turned 192x72", 192, 72, GemmGroups::kTurns, GemmShare::kA, true, 0.70f, false},
    {"turned 192x80", 192, 80, GemmGroups::kTurns, GemmShare::kA, true, 0.74f, false},
    {"turned 256x104", 256, 104, GemmGroups::kRows, GemmShare::kNone, true, 0.80f, false},
};
constexpr int kGemmTileCount = sizeof(kGemmTiles) / sizeof(kGemmTiles[0]);

constexpr int kGemmAnyTile = 5;  // 128x128, which is built for everything
static_assert(kGemmTiles[kGemmAnyTile].every_layout && kGemmTiles[kGemmAnyTile].share == GemmShare::kNone,
              "the tile that is taken for all m");

// Wide tiles of one warpgroup, which ends them alone, are built for plain results where those are told apart: with an epilogue
// others are better.
constexpr bool gemm_tile_built(int tile, bool along_k, GemmFinish finish) {
  const GemmTileInfo& t = kGemmTiles[tile];
  const bool only_plain = t.rows == 64 && t.cols > 160;
  return along_k ? finish == GemmFinish::kPlain || !only_plain : t.every_layout;
}

// With more sums than this in a thread there are no registers left for results that the copy engine does not take.
constexpr int kGemmMostSums = 160;
constexpr bool gemm_boxes_only(const GemmTileInfo& t) {
  return t.rows * t.cols / (t.groups == GemmGroups::kTurns ? 128 : 256) > kGemmMostSums;
}

// Whose k can be split: both warpgroups have a part of one tile, in chunks that do not overlap.
constexpr bool gemm_splits(GemmGroups groups, int rows, int cols) {
  return groups == GemmGroups::kRows && rows == 128 && cols <= 128 && (cols < 32 || cols % 32 == 0);
}
constexpr bool gemm_tile_splits(const GemmTileInfo& t) { return gemm_splits(t.groups, t.rows, t.cols); }
// Its chunks, of 64 rows by so many columns, are dealt out to the blocks of the cluster: so many to each, and so many bytes of the
// others' sums of them.
constexpr int gemm_chunk_cols(int cols) { return cols % 64 == 0 ? 64 : 32; }
constexpr int gemm_split_chunks(int cols) { return cols < 64 ? 2 : cols / gemm_chunk_cols(cols) * 2; }
constexpr int gemm_split_each(int cols, int split) { return (gemm_split_chunks(cols) + split - 1) / split; }
constexpr int gemm_split_bytes(int cols, int split) {
  return gemm_split_each(cols, split) * (split - 1) * (128 * cols * 4 / gemm_split_chunks(cols));
}

// The tiles of products with few rows: so many of n, by so many of m, turned.
struct GemmSwapTile {
  int rows, cols;
  GemmGroups groups;
  GemmShare share = GemmShare::kNone;
  constexpr int m() const { return cols * gemm_share_cols(share); }  // rows of a that blocks which share b take
};
constexpr GemmSwapTile kGemmSwapTiles[] = {
    {128, 8, GemmGroups::kRows},
    {192, 8, GemmGroups::kTurns},
    {256, 8, GemmGroups::kRows},
    {128, 16, GemmGroups::kRows},
    {192, 16, GemmGroups::kTurns},
    {256, 16, GemmGroups::kRows},
    {128, 32, GemmGroups::kRows},
    {192, 32, GemmGroups::kTurns},
    {256, 32, GemmGroups::kRows},
    {64, 64, GemmGroups::kTurns},
    {128, 64, GemmGroups::kRows},
    {192, 64, GemmGroups::kTurns},
    {256, 64, GemmGroups::kRows},
    {64, 32, GemmGroups::kTurns, GemmShare::kA},
    {128, 32, GemmGroups::kRows, GemmShare::kA},
};
constexpr int kGemmSwapCount = sizeof(kGemmSwapTiles) / sizeof(kGemmSwapTiles[0]);
constexpr int kGemmSwapMaxM = 64;

// All have plain results but the narrow ones, where the others are as fast; those one height of the wide ones only.
constexpr bool gemm_swap_tile_built(int tile, bool trans_b, GemmFinish finish) {
  const GemmSwapTile& t = kGemmSwapTiles[tile];
  if (finish == GemmFinish::kPlain) return !trans_b && t.cols >= 32;
  return t.rows == 128 || (!trans_b && t.cols < 32);
}

struct GemmPlan {
  int tile = -1;        // of kGemmTiles, or of kGemmSwapTiles
  int stages = 0;       // of the ring, for few rows; 0: all that there are
  bool shares = false;  // ping-pong: both warpgroups end the last tile
  bool late = false;    // with PDL the next kernel begins when this one has ended, not beside its last loads
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

// Strides that the copy engine takes are below 2^40 bytes.
inline bool gemm_near(const Matrix& x, ek_dtype dtype) {
  const int64_t most = (int64_t{1} << 40) / dtype_bytes(dtype);
  return x.row < most && x.col < most && x.batch < most;
}

// Rows that the copy engine can load and store: it writes whole units of 16 bytes, past the end of a row too.
inline bool gemm_stored(const GemmCall& c, const Matrix& x) {
  return x.col == 1 && gemm_rows_aligned(x, c.out, 16) && c.n * dtype_bytes(c.out) % 16 == 0 && gemm_near(x, c.out);
}
// Nothing but a scaled product.
inline GemmFinish gemm_finish(const GemmCall& c) {
  const bool plain = c.plain() && !c.c.data && c.out == c.in && c.a.col == 1 && c.b.row == 1;
  return plain && gemm_stored(c, c.d) ? GemmFinish::kPlain : GemmFinish::kFull;
}
// Any other result of 16 bits whose c and d the copy engine takes. A stride of 0 it does not.
inline bool gemm_takes_boxes(const GemmCall& c) {
  const bool with_c = !c.c.data || (gemm_stored(c, c.c) && (c.c.row > 0 || c.m == 1));
  return c.out == c.in && !c.gated && gemm_stored(c, c.d) && with_c && reinterpret_cast<uintptr_t>(c.bias) % 4 == 0;
}

// Room for the sums of an index and a tile in 32 bits.
constexpr int64_t kGemmMaxDim = (int64_t{1} << 31) - 4096;

// Why the copy engine can't read the operands, or null.
inline const char* gemm_not_tma(const GemmCall& c) {
  if (c.in == EK_DTYPE_F32) return "16-bit inputs only";
  if (c.m == 0 || c.n == 0 || c.k == 0 || c.batch == 0) return "a dim is 0";
  if (c.m > kGemmMaxDim || c.n > kGemmMaxDim || c.k > kGemmMaxDim) return "a dim is 2^31 or nearly so";
  // Tiles are counted in 32 bits.
  if (static_cast<double>(c.batch) * (c.m / 64 + 1) * (c.n / 8 + 1) > kGemmMaxDim) return "too many tiles";
  if (!gemm_rows_aligned(c.a, c.in, 16)) return "rows or columns of a are not contiguous on 16-byte boundaries";
  if (!gemm_rows_aligned(c.b, c.in, 16)) return "rows or columns of b are not contiguous on 16-byte boundaries";
  if ((c.m > 1 && c.a.row == 0) || (c.n > 1 && c.b.col == 0) || (c.k > 1 && (c.a.col == 0 || c.b.row == 0)))
    return "a stride of a or b is 0";
  if (!gemm_near(c.a, c.in) || !gemm_near(c.b, c.in)) return "a stride of a or b is 2^40 bytes or longer";
  if (c.d.col != 1 || (c.c.data && c.c.col != 1)) return "rows of c or d are not contiguous";
  return nullptr;
}

// ---- the plan ----------------------------------------------------------------------------------------------------------

// In 32 bits, which the sizes that can be planned fit into: several times faster than in 64.
inline int64_t gemm_ceil(int64_t a, int64_t b) { return static_cast<uint32_t>(a + b - 1) / static_cast<uint32_t>(b); }

// Fitted to trials of every tile and cut on 644 products, and 533 whose kernels overlap (docs/measured-facts/gemm.md).
constexpr float kGemmFixedCycles = 4500;            // launch, first loads, last stores
constexpr float kGemmClusterCycles = 480;           // until the blocks of a cluster have seen each other
constexpr float kGemmStoreCycles = 14 / 128.f;      // for an element of a tile, by two warpgroups
constexpr float kGemmAddCycles = 18 / 128.f;        // the same with bias or c
constexpr float kGemmActCycles = 32 / 128.f;        // and with an activation
constexpr float kGemmNarrowStore = 2;               // times that in narrow chunks, where registers are short
constexpr float kGemmBesideAct = 0.985f;            // long products by turns, beside an activation: the clock falls
constexpr float kGemmL2BytesPerCycle = 71;          // asked for by one SM while all of them load,
constexpr float kGemmSplitL2BytesPerCycle = 50.5f;  // where neighbours have other parts of k,
constexpr float kGemmApartL2BytesPerCycle = 49;     // and alone where kernels overlap: blocks do not begin together,
constexpr float kGemmLateCycles = 1350;             // unless the next one comes late, which costs so many
constexpr float kGemmOddLines = 1.75f;              // times as many where rows begin off its lines
constexpr float kGemmAloneBytesPerCycle = 80;       // into one SM,
constexpr float kGemmSharedBytesPerCycle = 60;      // where some of them come from others,
constexpr float kGemmEightBytesPerCycle = 65;       // in a cluster of eight,
constexpr float kGemmOverlapBytesPerCycle = 78;     // and in both where kernels overlap, each part of b in one of them
constexpr float kGemmDramBytesPerCycle = 17;        // for each SM
constexpr float kGemmJoinCycles = 540;              // of a split: until the sums are there,
constexpr float kGemmJoinEachCycles = 435;          // for each block of the cluster,
constexpr float kGemmJoinBytesPerCycle = 14.8f;
constexpr int kGemmMaxSplit = 8;  // blocks of a cluster
// Least bytes of a ring: of the tiles that may be split, and of the swapped ones.
constexpr int kGemmRingBytes = 190000;
constexpr int kGemmSwapRingBytes = 65536;
// Few rows where kernels overlap: of b's bytes, those that SMs which are left over could have read. From so many on the next
// kernel comes late,
constexpr float kGemmSwapLateBytes = 20e6f;
constexpr float kGemmSwapPairLateBytes = 10e6f;   // with k in two parts and no constant b to read before,
constexpr float kGemmSwapLargeLateBytes = 33e6f;  // in larger clusters,
constexpr float kGemmSwapRoomLateBytes = 6e6f;    // in those with no constant b and a fifth of the SMs left over;
constexpr float kGemmSwapStreamBytes = 55e6f;     // and from so many on tiles whose k was cut are streamed
constexpr int kGemmSplitStages = 7;  // at once, of few rows with k cut: with more some blocks get theirs late

inline float gemm_store_cycles(const GemmCall& c) {
  if (c.act != EK_ACTIVATION_NONE || c.gated) return kGemmActCycles;
  return c.bias || c.c.data || c.out != c.in ? kGemmAddCycles : kGemmStoreCycles;
}

// Cycles for a k block of a tile, while so many of the SMs have one: those of the matrix units, rows * cols / 32, unless its bytes
// take longer to come out of L2 or into the SM.
inline float gemm_block_cycles(const GemmCall& c, const GemmTileInfo& t, float busy, float l2_bytes, bool covers) {
  const int share_rows = gemm_share_rows(t.share), share_cols = gemm_share_cols(t.share);
  const int cluster = share_rows * share_cols;
  const float compute = t.rows * t.cols / 32.f / t.efficiency;
  // Rows that begin off L2's lines of 128 bytes: three of four lines of a box (k = 4304), or more, then lie in two.
  const float lines = (c.a.row * c.a.col | c.b.row * c.b.col) % 64 ? kGemmOddLines : 1;
  const float asked = lines * 128 * (t.rows / share_cols + t.cols / share_rows) * busy / l2_bytes;
  const float into = cluster == 1             ? kGemmAloneBytesPerCycle
                     : c.constant_b && covers ? kGemmOverlapBytesPerCycle
                     : cluster < 4            ? kGemmSharedBytesPerCycle
                                              : kGemmEightBytesPerCycle;
  const float came = 128.f * (t.rows + t.cols) / into;
  return std::max(compute, std::max(asked, came));
}

// Tiles of one kind for a product of m by n, without a split of k.
inline GemmPlan gemm_plan_tile(const GemmCall& c, const Device& device, int tile) {
  const GemmTileInfo& t = kGemmTiles[tile];
  const int share_rows = gemm_share_rows(t.share), share_cols = gemm_share_cols(t.share);
  const int cluster = share_rows * share_cols;
  GemmPlan plan;
  plan.tile = tile;
  plan.schedule = GemmSchedule(gemm_ceil(t.turned ? c.n : c.m, t.rows * share_rows),
                               gemm_ceil(t.turned ? c.m : c.n, t.cols * share_cols), c.batch, gemm_ceil(c.k, 64));
  GemmSchedule& s = plan.schedule;
  // Blocks whose numbers differ by eight are often neighbours (docs/measured-facts.md). They have the same tile of the operand
  // that a cluster does not share.
  if (t.share == GemmShare::kA) s.walk_across();
  // Large clusters do not fill the parts of the GPU that they must lie in: 15 of eight blocks were on an H200's 132 SMs.
  const int64_t tiles = int64_t{s.rows} * s.cols * s.batch;
  const int64_t room = (cluster < 4 ? device.processors : device.processors * 10 / 11) / cluster;
  s.workers = static_cast<int32_t>(tiles < room ? tiles : room);
  if (t.overlaps && !c.constant_b) plan.tile = -1;

  const float busy = static_cast<float>(s.workers * cluster) / device.processors;
  const bool covers = tiles <= room && s.rows == 1;  // each part of b has one cluster (turned tiles are not counted so)
  const float waves = static_cast<float>(gemm_ceil(tiles, s.workers));
  const bool narrow = gemm_boxes_only(t) && gemm_finish(c) == GemmFinish::kFull;
  const float store = (narrow ? kGemmNarrowStore : 1) * gemm_store_cycles(c) * t.rows * t.cols;
  float block = gemm_block_cycles(c, t, busy, kGemmL2BytesPerCycle, covers), late = 0;
  // Alone: some ask L2 for the same, and find it there if they begin together.
  if (cluster == 1) {
    const float apart = gemm_block_cycles(c, t, busy, kGemmApartL2BytesPerCycle, covers);
    plan.late = s.rows > 1 && waves * s.k_blocks * (apart - block) > kGemmLateCycles;
    if (c.constant_b && plan.late) late = kGemmLateCycles;
    if (c.constant_b && !plan.late) block = apart;
  }
  float product = s.k_blocks * block;
  const bool turns = t.groups == GemmGroups::kTurns, act = c.act != EK_ACTIVATION_NONE, lasts = product > 4 * store;
  // A warpgroup that takes turns stores alone, in twice the time, while the other one multiplies; all but the last time.
  const bool hidden = turns && waves > 1;
  if (hidden && lasts && act && !c.gated) product /= kGemmBesideAct;
  // The other one has long stored its own when the last product ends. Handing half of the sums over costs more than storing them
  // with no more than a bias.
  plan.shares = turns && (c.c.data || act) && (waves == 1 || lasts);
  plan.cycles = kGemmFixedCycles + late + (cluster > 1 ? kGemmClusterCycles : 0) +
                (hidden ? waves * std::max(product, product / 2 + store) + store : waves * (product + store));
  return plan;
}

// Clusters of so many blocks that are counted on to run at once: those that did on an H200, or a few less. One too many doubles
// the time.
constexpr int kGemmClusters[kGemmMaxSplit] = {132, 66, 38, 28, 22, 17, 15, 14};
constexpr int64_t gemm_clusters_at_once(int64_t processors, int blocks) {
  return processors * kGemmClusters[blocks - 1] / kGemmClusters[0];
}

// The same with the k of every tile cut into parts for the blocks of a cluster: for few tiles.
inline GemmPlan gemm_plan_split(const GemmCall& c, const Device& device, int tile) {
  const GemmTileInfo& t = kGemmTiles[tile];
  if (!gemm_tile_splits(t)) return {};
  GemmPlan plan = gemm_plan_tile(c, device, tile);
  GemmSchedule& s = plan.schedule;
  const int64_t tiles = int64_t{s.rows} * s.cols * s.batch;
  plan.tile = -1;
  plan.late = false;
  const int cluster = gemm_sharing(t.share);
  const float store = gemm_store_cycles(c) * t.rows * t.cols;
  const float busy = static_cast<float>(tiles * cluster) / device.processors;
  for (int split = 2; split * cluster <= kGemmMaxSplit && split <= s.k_blocks / 4 &&
                      tiles <= gemm_clusters_at_once(device.processors, split * cluster);
       ++split) {
    const int sums = gemm_split_bytes(t.cols, split);  // they end in the ring
    if (sums > kGemmRingBytes) continue;
    const float join = kGemmJoinCycles + kGemmJoinEachCycles * split + sums / kGemmJoinBytesPerCycle;
    const float block = gemm_block_cycles(c, t, busy * split, kGemmSplitL2BytesPerCycle, true);
    const float cycles = kGemmFixedCycles + block * gemm_ceil(s.k_blocks, split) + join +
                         store * gemm_split_each(t.cols, split) / gemm_split_chunks(t.cols);
    if (plan.tile >= 0 && cycles >= plan.cycles) continue;
    plan.tile = tile;
    plan.cycles = cycles;
    s.split = split;
  }
  return plan;
}

template <class Plan>
GemmPlan gemm_best_plan(const GemmCall& c, const Device& device, Plan plan_tile) {
  const bool along_k = c.a.col == 1 && c.b.row == 1;
  GemmPlan best;
  for (int tile = 0; tile < kGemmTileCount; ++tile) {
    if (!gemm_tile_built(tile, along_k, gemm_finish(c))) continue;
    if (gemm_boxes_only(kGemmTiles[tile]) && gemm_finish(c) == GemmFinish::kFull && !gemm_takes_boxes(c)) continue;
    const GemmPlan plan = plan_tile(c, device, tile);
    if (plan.tile >= 0 && (best.tile < 0 || plan.cycles < best.cycles)) best = plan;
  }
  return best;  // tile is -1 where there is none
}

// Every k in one block.
inline GemmPlan gemm_sm90_plan(const GemmCall& c, const Device& device) {
  return gemm_best_plan(c, device, gemm_plan_tile);
}

// k cut, for few tiles; no tile where that can't be.
inline GemmPlan gemm_sm90_split_plan(const GemmCall& c, const Device& device) {
  return gemm_best_plan(c, device, gemm_plan_split);
}
// Whether that is worth it: memory is no faster for it.
inline bool gemm_sm90_splits(const GemmCall& c, const Device& device) {
  const GemmPlan split = gemm_sm90_split_plan(c, device);
  const float bytes = 2.f * c.batch * (static_cast<float>(c.m) * c.k + static_cast<float>(c.n) * c.k);
  const float loads = kGemmFixedCycles + bytes / (kGemmDramBytesPerCycle * device.processors);
  return split.tile >= 0 && std::max(split.cycles, loads) < gemm_sm90_plan(c, device).cycles;
}

// How the result of a product with few rows leaves: those of up to 16 are too small for a box.
inline GemmFinish gemm_swap_finish(const GemmCall& c) { return c.m > 16 ? gemm_finish(c) : GemmFinish::kFull; }

// Few rows of a: b's columns are the rows of the tile. All that counts is that b streams in, into all SMs at once. Tiles of
// 128 whose k is cut for a cluster; those of which that would be too many as whole ones in one wave, or streamed.
// A constant b says that kernels overlap (PDL): their first loads then hide what the pieces of a stream cost, for up to 32 rows.
// That is not asked of the context: bits must not depend on it (docs/measured-facts.md).
inline GemmPlan gemm_sm90_swap_plan(const GemmCall& c, const Device& device) {
  const GemmFinish finish = gemm_swap_finish(c);
  const int64_t processors = device.processors, k_blocks = gemm_ceil(c.k, 64);
  int m = 8;
  while (m < c.m && m < kGemmSwapMaxM) m *= 2;
  const int64_t others = gemm_ceil(c.m, m) * c.batch;  // 1, but for batches
  const auto tiles_of = [&](int height) { return gemm_ceil(c.n, height) * others; };
  const bool cut = tiles_of(128) * 2 <= processors, short_k = k_blocks <= 16, streams = c.constant_b && k_blocks >= 48;
  // 64 rows of a as two blocks that share b, where that fills the SMs; so few that k is better cut, in twice the height.
  const bool pairs = m == 64 && !short_k && tiles_of(64) * 2 <= processors;
  const bool low =
      m == 64 && tiles_of(64) <= processors && (short_k || (k_blocks <= 64 && tiles_of(64) * 10 >= processors * 7));
  int rows = low || (pairs && tiles_of(64) * 8 > processors * 3) ? 64 : 128;
  for (int height : {192, 256}) {
    const int64_t tiles = tiles_of(height);
    const bool one_wave = tiles <= processors && tiles * 20 >= processors * (streams && m < 64 ? 19 : 14);
    if (rows == 128 && !cut && one_wave) rows = height;
  }
  if (rows == 128 && !cut && !streams && tiles_of(192) * 2 <= processors) rows = 192;
  GemmPlan plan;
  for (int tile = 0; tile < kGemmSwapCount; ++tile) {
    const GemmSwapTile& t = kGemmSwapTiles[tile];
    if (t.m() != m || !gemm_swap_tile_built(tile, c.b.row != 1, finish)) continue;
    const bool wanted = t.rows == rows && (t.share == GemmShare::kA) == pairs;
    if (wanted || (t.rows == 128 && plan.tile < 0)) plan.tile = tile;
  }
  const GemmSwapTile& t = kGemmSwapTiles[plan.tile];
  plan.schedule = GemmSchedule(gemm_ceil(c.n, t.rows), gemm_ceil(c.m, m), c.batch, k_blocks);
  GemmSchedule& s = plan.schedule;
  const int sharing = gemm_sharing(t.share);
  const int64_t tiles = int64_t{s.rows} * s.cols * s.batch, room = processors / sharing;
  s.workers = static_cast<int32_t>(tiles < room ? tiles : room);
  // Large clusters take long to join.
  const auto fits = [&](int split) {
    const int cluster = sharing * split;
    const bool joins = cluster <= 4 || sharing > 1 || (t.cols <= 16 && tiles * cluster * 2 <= processors);
    return cluster <= kGemmMaxSplit && joins && tiles <= gemm_clusters_at_once(processors, cluster) &&
           k_blocks / split >= 4 && gemm_split_bytes(t.cols, split) <= kGemmSwapRingBytes;
  };
  while (t.rows == 128 && fits(s.split + 1)) ++s.split;
  bool streamed =
      t.rows == 128 && (tiles > room || (streams && s.split == 1 && tiles * 20 < room * (m < 64 ? 19 : 13)));
  // Blocks of a kernel that overlaps go to SMs that are left over first, and so not as many to each part of the GPU.
  const float left = 2.f * c.n * c.k * (c.b.batch ? c.batch : 1) * (processors - s.workers * s.split) / processors;
  if (sharing == 1 && !streamed) {
    streamed = s.split > 1 && c.constant_b && left > kGemmSwapStreamBytes;
    const bool roomy = s.split > 2 && !c.constant_b && s.workers * s.split * 5 <= processors * 4;
    plan.late = !streamed && left > (roomy                           ? kGemmSwapRoomLateBytes
                                     : s.split > 2                   ? kGemmSwapLargeLateBytes
                                     : s.split == 2 && !c.constant_b ? kGemmSwapPairLateBytes
                                                                     : kGemmSwapLateBytes);
    if (streamed) s.split = 1;
    if (s.split > 1 && (!c.constant_b || plan.late)) plan.stages = kGemmSplitStages;
  }
  if (streamed && tiles * k_blocks < 0x7fffffff && tiles * 2 <= kCounters) {
    s.workers = static_cast<int32_t>(room);
    s.streamed = static_cast<int32_t>(tiles);
  }
  return plan;
}

// gemm_sm80_skinny: a block for every `cols` columns, up to `resident` to an SM; each goes on to further ones. In 64 bits,
// because n may be anything there.
inline int64_t gemm_skinny_blocks(const GemmCall& c, const Device& device, int cols, int resident) {
  return std::min((c.n + cols - 1) / cols, int64_t{device.processors} * resident);
}

// Workspace for the pieces of streamed tiles.
inline size_t gemm_streamed_bytes(const GemmSchedule& s, int cluster, int rows, int cols) {
  return s.streamed ? size_t{2} * s.workers * cluster * rows * cols * 4 : 0;
}

}  // namespace ek
