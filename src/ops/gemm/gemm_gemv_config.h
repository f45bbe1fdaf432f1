// SPDX-License-Identifier: Apache-2.0
// How gemm_gemv.cu cuts b into blocks. Host code, without CUDA.
#pragma once

#include "ops/gemm/gemm_mma_config.h"

namespace ek {

constexpr int kGemvThreads = 256;
constexpr int kGemvMostRows = 8;

struct GemvConfig {
  bool along_k = false;  // b lies contiguous along k
  int rows = 1;          // of a, rounded up: 1, 2, 4 or 8
  int columns = 0;       // of b, for each thread (along k) or for a block (across)
  int threads = 0;       // along k: that share `columns` columns
  int64_t range = 0;     // of k, for a block
  int64_t splits = 1;    // blocks that share a set of columns
  int64_t blocks = 0;    // sets of columns
  int64_t sums = 0;      // floats that a block leaves in workspace if there are splits
};

// Along k: chunks of each column that a thread has on the way.
constexpr int gemv_unroll(int rows) { return rows <= 2 ? 2 : 1; }

// Along k: a block streams whole rows of b^T, all threads side by side; each thread has `unroll` chunks of 16 bytes of
// each of its columns on the way.
inline GemvConfig gemv_config_along_k(const GemmCall& c, const Device& device) {
  GemvConfig g;
  g.along_k = true;
  while (g.rows < c.m) g.rows *= 2;
  const int64_t unit = 16 / dtype_bytes(c.in), chunks = c.k / unit, unroll = gemv_unroll(g.rows);
  // Four columns share the reading of a; two where four would leave SMs without a block.
  g.columns = c.n * c.batch >= 6 * int64_t{device.processors} ? 4 : 2;
  g.threads = kGemvThreads;
  while (g.threads > 32 && g.threads * unroll > chunks) g.threads /= 2;
  const int64_t per_block = g.columns * (kGemvThreads / g.threads);
  g.blocks = (c.n + per_block - 1) / per_block;
  g.sums = per_block * g.rows;
  if (g.blocks * c.batch < device.processors) {
    const int64_t wanted = 2 * int64_t{device.processors} / (g.blocks * c.batch), most = chunks / g.threads;
    g.splits = wanted < most ? wanted : most;
    if (g.splits < 1) g.splits = 1;
    if (g.splits > 16) g.splits = 16;
  }
  const int64_t share = (chunks + g.splits - 1) / g.splits;
  g.range = (share + g.threads - 1) / g.threads * g.threads * unit;
  g.splits = g.range ? (c.k + g.range - 1) / g.range : 1;
  // The end of k that fills no chunk belongs to the last block.
  if (g.splits > 1 && (g.splits - 1) * g.range >= chunks * unit) --g.splits;
  if (g.splits < 1) g.splits = 1;
  return g;
}

// Across: a block takes strips of 128 bytes of the rows of b, 32 rows at a time.
inline GemvConfig gemv_config_across(const GemmCall& c, const Device& device) {
  GemvConfig g;
  while (g.rows < c.m) g.rows *= 2;
  g.columns = 128 / dtype_bytes(c.in);
  g.blocks = (c.n + g.columns - 1) / g.columns;
  g.sums = int64_t{g.columns} * g.rows;
  // Longer ranges leave less to add up; shorter ones keep more blocks on the SMs and share b out more evenly.
  int64_t least = 0;
  for (int64_t range = 128; range <= 1024; range *= 2) {
    const int64_t splits = c.k > range ? (c.k + range - 1) / range : 1, all = splits * g.blocks * c.batch;
    const int64_t load = (all + device.processors - 1) / device.processors * range;
    if (range > 128 && (all < 3 * device.processors || load > least + least / 32)) continue;
    g.range = range;
    g.splits = splits;
    if (range == 128 || load < least) least = load;
  }
  return g;
}

inline GemvConfig gemv_config(const GemmCall& c, const Device& device) {
  return gemm_layout_of_b(c) == GemmLayout::kAlongK ? gemv_config_along_k(c, device) : gemv_config_across(c, device);
}

// On sm_90 and newer b along k can come through rings in shared memory (gemm_gemv_bulk.cuh): kBulkPieces pieces of one
// column for each warp, of so many bytes; 0 where the loads go to registers. Measured on an H200: with one
// row of a pieces of 2 KB and 1 KB are alike, with eight 2 KB are 9 % faster, 512 bytes were about 10 % slower; registers
// are faster where a warp would get less than two columns (n = 1024, k = 4096).
constexpr int kBulkWarps = kGemvThreads / 32, kBulkPieces = 8, kBulkBarriers = kBulkWarps * kBulkPieces / 2;
constexpr int kBulkLarge = 2048, kBulkSmall = 1024;

inline size_t gemv_bulk_smem(const GemmCall& c, int rows, int piece) {
  return kBulkWarps * kBulkPieces * piece + kBulkBarriers * sizeof(uint64_t) + rows * c.k * dtype_bytes(c.in);
}

inline int gemv_bulk_piece(const GemmCall& c, const GemvConfig& g, const Device& device) {
  const int64_t bytes = c.k * dtype_bytes(c.in);  // of a column
  if (!g.along_k || g.splits > 1 || c.batch > 1 || device.target < 90) return 0;
  if (bytes == 0 || bytes % 16 || c.k >= 1 << 20) return 0;
  const bool much = c.n * bytes >= int64_t{device.processors} * 192 * 1024;
  if (!much && c.n < 2 * int64_t{device.processors} * kBulkWarps) return 0;
  const size_t most = static_cast<size_t>(device.smem_per_block);
  if (gemv_bulk_smem(c, g.rows, kBulkLarge) <= most) return kBulkLarge;
  return g.rows >= 4 && gemv_bulk_smem(c, g.rows, kBulkSmall) <= most ? kBulkSmall : 0;
}

// Parts of a batch run one after the other and take the same workspace: never more than a grid's z has room for.
inline int64_t gemv_slab(const GemmCall& c) { return c.batch < 65535 ? c.batch : 65535; }

}  // namespace ek
