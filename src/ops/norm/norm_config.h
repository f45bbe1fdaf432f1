// SPDX-License-Identifier: Apache-2.0
// How the CUDA norms cut up a row: pure functions of the row's length, so that the order of every sum, and with it every
// bit of a result, is the same whatever the number of rows. All that is worth tuning is in the tables of this file.
// A `vector` is 16 bytes; `dim` = vectors * (4 or 8 elements).
#pragma once

#include <cstdint>

#include "dispatch/kernel.h"

namespace ek {

struct NormConfig {
  int threads = 0;         // of a row, in one block; 0: this kernel does not take the row
  int vectors = 1;         // of a thread: the K of the kernels
  int rows_per_block = 1;  // more than one only where a row has at most 256 threads
  int cluster = 1;         // blocks of a row
  int stages = 0;          // backward_bulk: rows in shared memory
  int blocks_per_sm = 0;   // backward: persistent blocks
};

constexpr int64_t norm_ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
// Of threads beyond any block's, just too many: they must not wrap around to a few.
constexpr int norm_whole_warps(int64_t threads) {
  return threads > 1 << 20 ? 1 << 20 : static_cast<int>(norm_ceil_div(threads, 32) * 32);
}

// ---- forward: the row in the registers of a warp or a block ----------------------------------------------------------

// The least threads of a block: rows with fewer share one. Blocks of 64 leave a fifth of the bandwidth unused.
constexpr int kNormWarpBlock = 128;

// What a norm is bound by, once there are enough rows. Light (rms_norm, l2_norm): by memory, and that is busiest with the
// SM full of threads that hold two vectors each. Heavy (layer_norm, quantization): by instructions, of which reductions
// are many; more vectors in a thread, fewer of them. Two inputs: light, but with twice the registers.
// Numbers behind this: docs/measured-facts.md.
enum class NormKind { kLight, kHeavy, kTwoInputs };

constexpr NormKind norm_kind(bool plain, bool centre, bool quant) {
  return !plain ? NormKind::kTwoInputs : centre || quant ? NormKind::kHeavy : NormKind::kLight;
}

struct NormVecEntry {
  int up_to;    // vectors of a row
  int threads;  // 0: as many whole warps as it takes
  int vectors;  // of a thread
};

// bf16: entries end at 64, 128, 256, 512 elements of a row, then 1024, 1536, 8192, 16384, 32768, 65536.
constexpr NormVecEntry kNormLightTable[] = {
    {8, 4, 2}, {16, 8, 2}, {32, 16, 2}, {64, 32, 2}, {1024, 0, 2}, {2048, 0, 4}, {8192, 0, 8},
};
constexpr NormVecEntry kNormHeavyTable[] = {
    {8, 4, 2},    {16, 8, 2},   {32, 16, 2},  {64, 32, 2},  {128, 32, 4},
    {192, 32, 8}, {1024, 0, 4}, {8192, 0, 8}, {4096, 0, 4},
};
constexpr NormVecEntry kNormTwoInputsTable[] = {
    {8, 4, 2}, {16, 8, 2}, {32, 16, 2}, {64, 32, 2}, {1024, 0, 2}, {4096, 0, 4},
};

// max_vectors: what one thread can hold: 8, or 4 with a second input or weight beside it.
template <int N>
constexpr NormConfig norm_choose(const NormVecEntry (&table)[N], int64_t vectors, int max_vectors) {
  for (const NormVecEntry& e : table) {
    if (vectors > e.up_to || e.vectors > max_vectors) continue;
    NormConfig c;
    c.vectors = e.vectors;
    c.threads = e.threads ? e.threads : norm_whole_warps(norm_ceil_div(vectors, e.vectors));
    c.rows_per_block = static_cast<int>(norm_ceil_div(kNormWarpBlock, c.threads));
    return c;
  }
  return {};
}

constexpr NormConfig norm_vec_config(int64_t vectors, int max_vectors, NormKind kind) {
  return kind == NormKind::kLight   ? norm_choose(kNormLightTable, vectors, max_vectors)
         : kind == NormKind::kHeavy ? norm_choose(kNormHeavyTable, vectors, max_vectors)
                                    : norm_choose(kNormTwoInputsTable, vectors, max_vectors);
}

// Rows that whole warps of threads with three vectors fill, and with four do not: 5376 elements.
constexpr NormConfig norm_thirds_config(int64_t vectors) {
  NormConfig c;
  if (vectors <= 192 || vectors > 3 * 256 || vectors % (3 * 32) || vectors % (4 * 32) == 0) return c;
  c.vectors = 3;
  c.threads = static_cast<int>(vectors / 3);
  c.rows_per_block = static_cast<int>(norm_ceil_div(kNormWarpBlock, c.threads));
  return c;
}

// layer_norm of many rows: blocks stay and have the next row under way while they work on one. 640 threads of an SM have 96
// registers each, what two rows of four vectors take; in 80 they spill (4096x4096: 18.2 us, in 80 registers 21.3, with blocks
// that leave 19.1). Larger blocks would leave more of an SM empty.
constexpr int kNormStayThreads = 640;
constexpr int kNormStayBlock = 128;
constexpr int kNormStayRows = 4, kNormStayMostRows = 16;  // of a block

// The blocks that stay, or 0 where blocks are to leave after their rows.
constexpr unsigned norm_stay_blocks(const NormConfig& c, int64_t rows, int processors) {
  if (c.vectors != 4 || c.threads < 32 || c.threads * c.rows_per_block > kNormStayBlock) return 0;
  const int64_t fit = processors * int64_t{kNormStayThreads / (c.threads * c.rows_per_block)};
  const int64_t each = norm_ceil_div(rows, fit * c.rows_per_block);
  const bool stays = rows >= fit * c.rows_per_block * kNormStayRows && each <= kNormStayMostRows;
  return stays ? static_cast<unsigned>(fit) : 0;
}

// ---- forward: the row in the registers of a cluster ------------------------------------------------------------------

// As many blocks as every GPU with clusters allows, of threads that hold as much as they can: small blocks, of which an SM has
// several, so that one loads its row while another waits for the sums of its own. At 32768 elements a block with 8 vectors in
// a thread is a fifth faster than a cluster, at 65536 a tenth slower.
constexpr int kNormClusterFrom = 4096;  // vectors

constexpr NormConfig norm_cluster_config(int64_t vectors, int max_vectors, NormKind kind) {
  if (vectors <= kNormClusterFrom && norm_vec_config(vectors, max_vectors, kind).threads) return {};
  NormConfig c;
  c.vectors = max_vectors;
  c.cluster = kMaxCluster;
  c.threads = norm_whole_warps(norm_ceil_div(vectors, c.cluster * c.vectors));
  return c.threads <= 1024 ? c : NormConfig{};
}

// ---- forward: rows that come next, into L2 -----------------------------------------------------------------------------

// Whole rows, and the units of group_norm, ask for what will be loaded so far behind them: as much as begins while memory
// answers. With twice as much most are slower again (docs/measured-facts/norm.md).
constexpr uint32_t kNormAheadClusters = 12;
constexpr int64_t kNormAheadBytes = 5 << 19;  // of both inputs, where there are two

constexpr uint32_t norm_ahead(const NormConfig& c, int64_t vectors, int inputs) {
  return c.cluster > 1 ? kNormAheadClusters : static_cast<uint32_t>(kNormAheadBytes / (vectors * 16 * inputs));
}

// ---- forward: any row, element by element ----------------------------------------------------------------------------

// A thread takes every threads-th element, four or more of them, so that short rows share a block.
constexpr NormConfig norm_any_config(int64_t dim) {
  NormConfig c;
  c.threads = 4;
  while (c.threads < 32 && c.threads * 4 < dim) c.threads *= 2;
  c.rows_per_block = kNormWarpBlock / c.threads;
  if (dim <= 512) return c;
  c.threads = norm_whole_warps(norm_ceil_div(dim, 8));
  if (c.threads > 512) c.threads = 512;
  c.rows_per_block = 1;
  return c;
}

// ---- backward: persistent blocks, sums of dweight and dbias in registers ----------------------------------------------

// Threads of an SM, and the most of a block: a thread holds up to 64 f32 sums, so that 512 of 128 registers fill it.
constexpr int kNormBackwardThreads = 512;
constexpr int kNormBackwardWarpBlock = 128;

// Pairs of blocks exchange half of their sums of dweight and dbias through so much shared memory: 64 KB for all blocks of an SM
// at most.
constexpr int norm_backward_pair_bytes(const NormConfig& c, int element_bytes) {
  return c.threads * c.vectors * (16 / element_bytes) * 4;
}

// Rows in registers. bf16: up to 16384 elements, f32: up to 8192.
constexpr NormVecEntry kNormBackwardVecTable[] = {
    {8, 4, 2}, {16, 8, 2}, {32, 16, 2}, {64, 32, 2}, {128, 32, 4}, {512, 0, 2}, {2048, 0, 4},
};

constexpr NormConfig norm_backward_vec_config(int64_t vectors) {
  for (const NormVecEntry& e : kNormBackwardVecTable) {
    if (vectors > e.up_to) continue;
    NormConfig c;
    c.vectors = e.vectors;
    c.threads = e.threads ? e.threads : norm_whole_warps(norm_ceil_div(vectors, e.vectors));
    c.rows_per_block = e.threads ? kNormBackwardWarpBlock / e.threads : 1;
    c.blocks_per_sm = kNormBackwardThreads / (c.threads * c.rows_per_block);
    return c;
  }
  return {};
}

// Rows in shared memory, brought by bulk copies some stages ahead: for the warps of a block, each with rows of its own, or
// for the block. Shorter rows are quicker in registers.
constexpr int kNormBulkFrom = 64;
constexpr int kNormBulkStages = 3;
// bf16: rows of up to 1280 elements. Five vectors in a thread are 80 sums, 168 registers in all, so 12 warps fill an SM;
// two stages were quicker than three.
constexpr int kNormBulkWarps = 12;
constexpr int kNormBulkWarpVectors = 5;  // of a thread at most; at least 4
constexpr int kNormBulkWarpStages = 2;

struct NormBulkEntry {
  int up_to;           // vectors of a row
  int vectors;         // of a thread
  int threads_per_sm;  // in blocks that stay
};
constexpr NormBulkEntry kNormBulkTable[] = {{512, 2, 512}, {2048, 4, 512}, {4096, 8, 512}};

constexpr NormConfig norm_backward_bulk_config(int64_t vectors, int element_bytes, const Device& device) {
  if (vectors <= kNormBulkFrom) return {};
  const int64_t stage = 2 * 16 * vectors;                                     // a row of x and one of dy
  const int64_t warps = kNormBulkWarps * kNormBulkWarpStages * stage + 1024;  // less than 1 KB of it for barriers
  if (vectors <= 32 * kNormBulkWarpVectors && warps <= device.smem_per_block) {
    NormConfig c;
    c.vectors = vectors <= 32 * 4 ? 4 : kNormBulkWarpVectors;
    c.threads = 32;
    c.rows_per_block = kNormBulkWarps;
    c.blocks_per_sm = 1;
    c.stages = kNormBulkWarpStages;
    return c;
  }
  for (const NormBulkEntry& e : kNormBulkTable) {
    // Eight vectors of 16-bit elements would be 64 sums for each of dweight and dbias.
    if (vectors > e.up_to || e.vectors * (16 / element_bytes) > 32) continue;
    NormConfig c;
    c.vectors = e.vectors;
    c.threads = norm_whole_warps(norm_ceil_div(vectors, e.vectors));
    c.blocks_per_sm = e.threads_per_sm / c.threads;
    // Each block also has 1 KB of the system's and less than 1 KB of ours.
    const int64_t share = (device.smem_per_block + 1024) / c.blocks_per_sm - 2048;
    c.stages = static_cast<int>(share / stage < kNormBulkStages ? share / stage : kNormBulkStages);
    return c.stages >= 2 ? c : NormConfig{};
  }
  return {};
}

// The least shared memory of such a block: no more than blocks_per_sm fit on an SM. Else, with PDL, some SMs would take one more,
// of the next call, before all of this one have ended, and others would be left with one less.
constexpr int64_t norm_backward_bulk_room(const NormConfig& c, const Device& device) {
  return (device.smem_per_block + 1024) / (c.blocks_per_sm + 1);
}

// The dweight pass of the catch-all: how many slices the rows are cut into. Each leaves a partial row behind.
constexpr int64_t norm_backward_slices(int64_t rows) {
  const int64_t slices = norm_ceil_div(rows, 64);
  return slices < 128 ? slices : 128;
}

// ---- group_norm: a unit takes the place of the row -------------------------------------------------------------------

// A unit is a group of nchw, or of nhwc so many neighbouring groups that their part of a position is a line of memory.
constexpr int kGroupNormLineBytes = 128;
constexpr int kGroupNormLine = 8;  // groups of a unit at most

// Groups of a unit. access: bytes; run: accesses of a group's part of a position. Lanes of a warp are to know their group by
// some bits of their number, so that only powers of two share a unit.
constexpr int group_norm_together(int64_t access, int64_t run, int64_t groups) {
  int64_t together = 1;
  if ((run & (run - 1)) == 0)
    while (together < kGroupNormLine && 2 * together * run <= 32 &&
           2 * together * run * access <= kGroupNormLineBytes && groups % (2 * together) == 0)
      together *= 2;
  return static_cast<int>(together);
}

// A unit of so many vectors, in registers, k in each thread. `run`: shares of blocks are whole runs, and all vectors of a
// thread have the same place in theirs; 1 where that does not matter (nchw).
constexpr int64_t group_norm_share(int64_t vectors, int64_t run, int cluster) {
  return norm_ceil_div(norm_ceil_div(vectors, cluster), run) * run;
}
constexpr NormConfig group_norm_config(int64_t vectors, int64_t run, int cluster, int k, int most) {
  int64_t step = run;
  while (step % 32 != 0) step *= 2;
  NormConfig c;
  c.vectors = k;
  c.cluster = cluster;
  const int64_t threads = norm_ceil_div(norm_ceil_div(group_norm_share(vectors, run, cluster), k), step) * step;
  c.threads = threads <= most ? static_cast<int>(threads) : 0;
  return c;
}

// In a block: up to 128 KB.
constexpr NormConfig group_norm_block_config(int64_t vectors, int64_t run) {
  for (int k = 2; k <= 8; k *= 2) {
    const NormConfig c = group_norm_config(vectors, run, 1, k, k == 8 ? 1024 : 256);
    if (c.threads) return c;
  }
  return {};
}

// In a cluster, where there are clusters: up to 1 MB. 8 blocks, the most that every GPU has, are the best number from 128 KB
// on, in blocks of as few as 128 threads (16x512x4096: 38.7 us; 4 blocks 39.4, one 43.4). One block is best at 40 and 80 KB
// (16x640x1024: 14.9 us; 2 blocks 15.3). Not measured between: 8 blocks as soon as that takes 128 threads of each. Numbers
// behind this: docs/measured-facts.md.
constexpr int kGroupNormClusterFrom = 6144;  // vectors, 96 KB: what 8 blocks of 96 threads hold

constexpr NormConfig group_norm_cluster_config(int64_t vectors, int64_t run) {
  if (vectors <= kGroupNormClusterFrom && group_norm_block_config(vectors, run).threads) return {};
  return group_norm_config(vectors, run, kMaxCluster, 8, 1024);
}

// Larger units are cut into parts, a block for each in each of two passes: at least 8 accesses for each of a block's
// threads, and at most 256 parts, which the second pass has to put together.
constexpr int kGroupNormSplitThreads = 256;
constexpr int kGroupNormMaxParts = 256;
constexpr int64_t group_norm_part(int64_t accesses) {
  const int64_t part = norm_ceil_div(norm_ceil_div(accesses, kGroupNormMaxParts), 32) * 32;
  const int64_t least = 8 * kGroupNormSplitThreads;
  return part < least ? least : part;
}
// Parts of nchw that lie in one run: of the second pass, and of the first, which has a multiple of it; 0: they do not. The second
// has to put together the sums of the first, so that fewer, larger parts are faster there (docs/measured-facts.md).
constexpr int64_t kGroupNormWholePart = 8 * kGroupNormSplitThreads;
constexpr int64_t group_norm_whole_part(int64_t accesses, int64_t run) {
  int64_t part = 2 * kGroupNormWholePart;
  while (norm_ceil_div(accesses, part) > kGroupNormMaxParts) part *= 2;
  return run % part == 0 ? part : 0;
}

}  // namespace ek
