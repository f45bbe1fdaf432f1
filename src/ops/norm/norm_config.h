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
  int rows_per_block = 1;  // more than one only where a row has at most 32 threads
  int cluster = 1;         // blocks of a row
  int stages = 0;          // backward_bulk: rows in shared memory
  int blocks_per_sm = 0;   // backward: persistent blocks
};

constexpr int64_t norm_ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
constexpr int norm_whole_warps(int64_t threads) { return static_cast<int>(norm_ceil_div(threads, 32) * 32); }

// ---- forward: the row in the registers of a warp or a block ----------------------------------------------------------

// Threads of a block that holds several rows.
constexpr int kNormWarpBlock = 256;

struct NormVecEntry {
  int up_to;    // vectors of a row
  int threads;  // 0: a block of as many warps as it takes
  int vectors;  // of a thread: 2, 4 or 8
};

// Two loads in flight for each thread suffice while the SM is full of threads; wider rows hold more, because fewer,
// larger barriers cost more than registers. Entries with more vectors than the kernel can hold are skipped.
constexpr NormVecEntry kNormVecTable[] = {
    {8, 4, 2},    {16, 8, 2},   {32, 16, 2}, {64, 32, 2},              // bf16: up to 64, 128, 256, 512 elements
    {128, 32, 4}, {256, 32, 8},                                       // 1024, 2048: a warp, still no barrier
    {512, 0, 2},                                                      // 4096: 256 threads
    {4096, 0, 4},                                                     // 8192: 256 threads ... 32768: 1024 threads
    {8192, 0, 8},                                                     // 65536
};

// max_vectors: what one thread can hold: 8, or 4 where there are two inputs.
constexpr NormConfig norm_vec_config(int64_t vectors, int max_vectors) {
  for (const NormVecEntry& e : kNormVecTable) {
    if (vectors > e.up_to || e.vectors > max_vectors) continue;
    NormConfig c;
    c.vectors = e.vectors;
    c.threads = e.threads ? e.threads : norm_whole_warps(norm_ceil_div(vectors, e.vectors));
    c.rows_per_block = e.threads ? kNormWarpBlock / e.threads : 1;
    return c;
  }
  return {};
}

// ---- forward: the row in the registers of a cluster ------------------------------------------------------------------

// Rows of more vectors go to a cluster where there are clusters. bf16: above 16384 elements.
constexpr int kNormClusterFrom = 2048;
// Threads of a block, until the cluster has its full 8 blocks.
constexpr int kNormClusterThreads = 512;

constexpr NormConfig norm_cluster_config(int64_t vectors, int max_vectors) {
  if (vectors <= kNormClusterFrom) return {};
  for (int k = 4; k <= max_vectors; k *= 2) {
    NormConfig c;
    c.vectors = k;
    c.cluster = 2;
    while (c.cluster < 8 && norm_ceil_div(vectors, c.cluster * k) > kNormClusterThreads) c.cluster *= 2;
    c.threads = norm_whole_warps(norm_ceil_div(vectors, c.cluster * k));
    if (c.threads <= 1024) return c;
  }
  return {};
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

// Threads of a block: a thread holds up to 64 f32 sums, so that 512 threads of 128 registers fill an SM.
constexpr int kNormBackwardThreads = 512;
constexpr int kNormBackwardWarpBlock = 128;

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
    const int block = c.threads * c.rows_per_block;
    c.blocks_per_sm = (c.vectors <= 2 ? 1024 : 512) / block;  // about 60 and 120 registers
    if (c.blocks_per_sm > 8) c.blocks_per_sm = 8;             // each block leaves a partial row behind
    return c;
  }
  return {};
}

// Rows in shared memory, brought by bulk copies some stages ahead. Shorter rows are quicker with a warp for each.
constexpr int kNormBulkFrom = 128;
constexpr int kNormBulkStages = 4;

struct NormBulkEntry {
  int up_to, vectors, blocks_per_sm;
};
constexpr NormBulkEntry kNormBulkTable[] = {{512, 2, 2}, {1024, 4, 2}, {2048, 4, 1}, {4096, 8, 1}};

constexpr NormConfig norm_backward_bulk_config(int64_t vectors, int element_bytes, const Device& device) {
  if (vectors <= kNormBulkFrom) return {};
  for (const NormBulkEntry& e : kNormBulkTable) {
    // Eight vectors of 16-bit elements would be 64 sums for each of dweight and dbias.
    if (vectors > e.up_to || e.vectors * (16 / element_bytes) > 32) continue;
    NormConfig c;
    c.vectors = e.vectors;
    c.threads = norm_whole_warps(norm_ceil_div(vectors, e.vectors));
    c.blocks_per_sm = e.blocks_per_sm;
    // A stage is a row of x and one of dy. Each block also has 1 KB of the system's and less than 1 KB of ours.
    const int64_t share = (device.smem_per_block + 1024) / e.blocks_per_sm - 2048, stage = 2 * 16 * vectors;
    c.stages = static_cast<int>(share / stage < kNormBulkStages ? share / stage : kNormBulkStages);
    return c.stages >= 2 ? c : NormConfig{};
  }
  return {};
}

// The dweight pass of the catch-all: how many slices the rows are cut into. Each leaves a partial row behind.
constexpr int64_t norm_backward_slices(int64_t rows) {
  const int64_t slices = norm_ceil_div(rows, 64);
  return slices < 128 ? slices : 128;
}

// ---- group_norm: a group takes the place of the row ------------------------------------------------------------------

// The group in the registers of a block (narrow) or of a cluster. bf16: up to 16 KB by a block, 1 MB by a cluster.
constexpr int kGroupNormClusterFrom = 1024;

constexpr NormConfig group_norm_config(int64_t vectors, bool clusters) {
  if (clusters && vectors > kGroupNormClusterFrom) {
    for (int k = 4; k <= 8; k *= 2) {
      NormConfig c;
      c.vectors = k;
      c.cluster = 2;
      while (c.cluster < 8 && norm_ceil_div(vectors, c.cluster * k) > 256) c.cluster *= 2;
      c.threads = norm_whole_warps(norm_ceil_div(vectors, c.cluster * k));
      if (c.threads <= 1024) return c;
    }
    return {};
  }
  if (clusters) return {};
  for (int k = 1; k <= 8; k *= 2) {
    NormConfig c;
    c.vectors = k;
    c.threads = norm_whole_warps(norm_ceil_div(vectors > 0 ? vectors : 1, k));
    if (c.threads <= (k < 4 ? 256 : 1024)) return c;
  }
  return {};
}

// Groups too large for that: parts of a group, a block for each, in each of two passes. A part is at least 2048 accesses
// of a block's 256 threads, and there are at most 256 parts.
constexpr int kGroupNormParts = 256;
constexpr int64_t group_norm_part(int64_t accesses) {
  const int64_t part = norm_ceil_div(accesses, kGroupNormParts);
  return part < 2048 ? 2048 : part;
}

}  // namespace ek
