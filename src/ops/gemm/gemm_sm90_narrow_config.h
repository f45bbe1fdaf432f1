// SPDX-License-Identifier: Apache-2.0
// How gemm_sm90_narrow shares out a product: into how many parts k is cut, and how many blocks share an SM. Host code, no CUDA.
#pragma once

#include "ops/gemm/gemm_config.h"

namespace ek {

constexpr int kGemmNarrowMaxM = 64, kGemmNarrowTwiceM = 128;  // of a; the second where there are few columns
constexpr int kGemmNarrowTwiceCols = 1056;
constexpr int kGemmNarrowCols = 64;          // of d, of a block
constexpr int kGemmNarrowK = 128;            // of k in a stage of a ring
constexpr int kGemmNarrowResident = 3;       // blocks of an SM, at most
constexpr int kGemmNarrowSmem = 228 * 1024;  // of an SM; each block takes 1 KB more than it asks for

struct GemmNarrowPlan {
  int rows;              // of a that a block multiplies: 8, 16, 32 or 64
  int row_tiles;         // 1, or 2 where two blocks have half of the rows each
  int a_rows;            // of a box of a: those of a block in whole steps of the swizzle
  int split;             // parts of k, of the blocks of a cluster
  int resident;          // blocks of an SM
  int stages, a_stages;  // of the rings of b and of a
  int each;              // eights of rows that a block of the cluster ends
  int smem;              // bytes of a block: all that there are for it, so that no more than `resident` share an SM
  bool late;             // the next kernel comes when what is left to load fits into the ring, not first of all
};

constexpr int kGemmNarrowBBytes = kGemmNarrowCols * kGemmNarrowK * 2;  // of a stage
constexpr int gemm_narrow_a_bytes(int rows) { return rows * kGemmNarrowK * 2; }
constexpr int kGemmNarrowEightBytes = 8 * kGemmNarrowCols * 4;  // of the sums of eight rows
constexpr int gemm_narrow_smem(const GemmNarrowPlan& p) {
  return p.stages * kGemmNarrowBBytes + p.a_stages * gemm_narrow_a_bytes(p.rows) +
         (p.split - 1) * p.each * kGemmNarrowEightBytes + 16 * (p.stages + p.a_stages) + 24;
}

// A plan for so many parts, of `steps` of k at most, and blocks an SM; no stages where there is no room for two of each ring. a, which
// comes from L2, wants no more than eight; 64 rows of it less, but while it must catch up with b.
inline GemmNarrowPlan gemm_narrow_fit(int64_t m, int row_tiles, int split, int resident, int64_t steps) {
  GemmNarrowPlan p = {};
  p.row_tiles = row_tiles, p.split = split, p.resident = resident;
  p.a_rows = static_cast<int>(gemm_ceil(gemm_ceil(m, row_tiles), 8) * 8);
  int rows = 8;
  while (rows < p.a_rows) rows *= 2;
  p.rows = rows;
  p.each = (rows / 8 + split - 1) / split;
  p.smem = std::min(kGemmNarrowSmem / resident - 1024, 227 * 1024) / 128 * 128;
  const int most = static_cast<int>(std::min<int64_t>(std::max<int64_t>(2, steps), 32));
  const int room = p.smem - gemm_narrow_smem(p), a = gemm_narrow_a_bytes(rows) + 16, b = kGemmNarrowBBytes + 16;
  const int cap = rows <= 32 ? 8 : steps <= 64 ? 6 : 4;
  p.a_stages = std::min({room / (a + b), cap, most});
  if (p.a_stages < 2) return p.a_stages = 0, p;
  p.stages = std::min((room - p.a_stages * a) / b, most);
  return p;
}

// Clusters of one to eight blocks that run at once on an H200, with one to three blocks an SM, by cudaOccupancyMaxActiveClusters. One
// more than fit is a second wave.
constexpr int kGemmNarrowClusters[kGemmNarrowResident][kGemmMaxSplit] = {
    {132, 66, 39, 30, 22, 17, 15, 15},
    {264, 132, 79, 62, 47, 39, 32, 30},
    {396, 198, 124, 92, 69, 62, 47, 45},
};
constexpr int64_t gemm_narrow_room(int64_t processors, int split, int resident) {
  const int64_t room = processors * kGemmNarrowClusters[resident - 1][split - 1] / kGemmNarrowClusters[0][0];
  return room < 1 ? 1 : room;
}

// Fitted to 404 products and every split and number of blocks, in microseconds (docs/measured-facts/few-rows.md).
constexpr float kGemmNarrowMBPerUs = 4.4f;
constexpr float kGemmNarrowOfA = 0.2f;  // of the bytes of a, which come from L2
struct GemmNarrowCost {
  float idle;                  // of a wave's loads, for SMs that have fewer blocks than others, or none
  float part, resident, wave;  // for each further part of k, block of an SM, and wave of blocks, up to three
  float crowd, half;  // for each SM's blocks above half of them: those of the next kernel want room beside ours
  float late_mb;      // of b: from so many on the rings are full before the kernel ahead ends
  float least;        // of the SMs must have a block while k can be cut further: one alone takes long
};
constexpr GemmNarrowCost kGemmNarrowOverlapped = {0.32f, 0.09f, 0.01f, 0.7f, 3, 0.7f, 20, 0.91f};  // b is constant
constexpr GemmNarrowCost kGemmNarrowMany = {0.16f, 0.02f, 0.15f, 1, 0.6f, 0, 4, 0.45f};  // and more than 32 rows
constexpr GemmNarrowCost kGemmNarrowAlone = {0.45f, 0.12f, 0.7f, 4, 0, 1, 20, 0.76f};
constexpr GemmNarrowCost kGemmNarrowAloneMany = {0.45f, 0.12f, 0.7f, 4, 0, 1, 20, 0.45f};
constexpr float kGemmNarrowLeastSmall = 0.45f, kGemmNarrowSmallMB = 10;  // least for a small b, which the rings hold
constexpr int kGemmNarrowClusterWaves = 3;                               // nor were clusters in more waves tried

// Two blocks with half of the rows each have half of the products and of what ends them, and load b twice: worth it where that is small.
constexpr int64_t kGemmNarrowTwiceTiles = 32;
constexpr float kGemmNarrowLeastTwice = 0.42f;
constexpr float gemm_narrow_twice_mb(int64_t m) { return m > 32 ? 4.3f : m > 16 ? 2.2f : 0; }

inline GemmNarrowPlan gemm_narrow_plan(const GemmCall& c, const Device& device) {
  const float mb_b = 2e-6f * c.n * c.k * (c.b.batch ? c.batch : 1);
  const int64_t wide = gemm_ceil(c.n, kGemmNarrowCols) * c.batch, steps = gemm_ceil(c.k, kGemmNarrowK);
  const bool small = c.constant_b && wide <= kGemmNarrowTwiceTiles && mb_b <= gemm_narrow_twice_mb(c.m);
  const int row_tiles = c.m > kGemmNarrowMaxM || small ? 2 : 1;
  const bool many = gemm_ceil(c.m, row_tiles) > 32;
  const GemmNarrowCost& cost = c.constant_b ? many ? kGemmNarrowMany : kGemmNarrowOverlapped
                               : many       ? kGemmNarrowAloneMany
                                            : kGemmNarrowAlone;
  const int64_t tiles = wide * row_tiles;
  const float mb_a = 2e-6f * wide * c.m * c.k, loads = (mb_b + kGemmNarrowOfA * mb_a) / kGemmNarrowMBPerUs;
  const int most = static_cast<int>(std::min<int64_t>(kGemmMaxSplit, std::max<int64_t>(1, steps / 2)));
  const float few = device.processors * (row_tiles == 2              ? kGemmNarrowLeastTwice
                                         : mb_b > kGemmNarrowSmallMB ? cost.least
                                                                     : kGemmNarrowLeastSmall);
  GemmNarrowPlan best = {};
  float least = 0;
  for (int resident = 1; resident <= kGemmNarrowResident; ++resident)
    for (int split = 1; split <= most; ++split) {
      const GemmNarrowPlan plan = gemm_narrow_fit(c.m, row_tiles, split, resident, gemm_ceil(steps, split));
      if (!plan.stages || (split < most && tiles * split < few)) continue;
      const int64_t waves = (tiles - 1) / gemm_narrow_room(device.processors, split, resident) + 1;
      if (split > 1 && waves > kGemmNarrowClusterWaves) continue;
      const float full = static_cast<float>(tiles * split) / (static_cast<float>(device.processors) * resident * waves);
      const float us = loads * (1 + cost.idle * std::max(0.f, 1 - full) / waves) + cost.part * (split - 1) +
                       cost.resident * (resident - 1) + cost.wave * std::min<int64_t>(waves - 1, 2) +
                       cost.crowd * std::max(0.f, full - cost.half);
      if (best.rows && us >= least) continue;
      best = plan;
      least = us;
    }
  best.late = mb_b > cost.late_mb;
  return best;
}

}  // namespace ek
