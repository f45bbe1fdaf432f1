// SPDX-License-Identifier: Apache-2.0
// How gemm_sm90_narrow shares out a product: into how many parts k is cut, and how many blocks share an SM. Host code, no CUDA.
#pragma once

#include "ops/gemm/gemm_config.h"

namespace ek {

constexpr int kGemmNarrowMaxM = 32;          // of 64 rows a block would load as much of a as of b
constexpr int kGemmNarrowCols = 64;          // of d, of a block
constexpr int kGemmNarrowK = 128;            // of k in a stage of the ring
constexpr int kGemmNarrowResident = 4;       // blocks of an SM, at most
constexpr int kGemmNarrowSmem = 228 * 1024;  // of an SM; each block takes 1 KB more than it asks for

struct GemmNarrowPlan {
  int rows;      // of a that a block multiplies: 8, 16 or 32
  int split;     // parts of k, of the blocks of a cluster
  int resident;  // blocks of an SM
  int stages;
  int each;   // units of the sums that a block of the cluster ends
  int smem;   // bytes of a block: all that there are for it, so that no more than `resident` share an SM
  bool late;  // the next kernel comes when what is left to load fits into the ring, not first of all
};

// Sums are dealt out to the blocks of a cluster in units of 8 rows by the 16 columns of a warp.
constexpr int gemm_narrow_units(int rows) { return rows / 8 * 4; }
constexpr int kGemmNarrowUnitBytes = 8 * 16 * 4;
constexpr int gemm_narrow_stage_bytes(int rows) { return (kGemmNarrowCols + rows) * kGemmNarrowK * 2; }

// A plan for so many parts and blocks an SM; no stages where there is no room for two.
inline GemmNarrowPlan gemm_narrow_fit(int rows, int split, int resident) {
  GemmNarrowPlan p = {rows, split, resident, 0, 0, 0, false};
  p.each = (gemm_narrow_units(rows) + split - 1) / split;
  p.smem = std::min(kGemmNarrowSmem / resident - 1024, 227 * 1024) / 128 * 128;
  const int barriers = 16, sums = (split - 1) * p.each * kGemmNarrowUnitBytes;
  p.stages = (p.smem - sums - barriers) / (gemm_narrow_stage_bytes(rows) + 16);
  if (p.stages < 2) p.stages = 0;
  return p;
}

// Clusters of one to eight blocks that run at once on an H200, with one to four blocks an SM, by cudaOccupancyMaxActiveClusters. One
// more than fit is a second wave.
constexpr int kGemmNarrowClusters[kGemmNarrowResident][kGemmMaxSplit] = {
    {132, 66, 39, 30, 22, 17, 15, 15},
    {264, 132, 79, 62, 47, 39, 32, 30},
    {396, 198, 124, 92, 69, 62, 47, 45},
    {528, 264, 163, 124, 94, 79, 69, 62},
};
constexpr int64_t gemm_narrow_room(int64_t processors, int split, int resident) {
  const int64_t room = processors * kGemmNarrowClusters[resident - 1][split - 1] / kGemmNarrowClusters[0][0];
  return room < 1 ? 1 : room;
}

// Fitted to 177 products and every split and number of blocks, in microseconds (docs/measured-facts/few-rows.md).
constexpr float kGemmNarrowMBPerUs = 4.4f;
constexpr float kGemmNarrowOfA = 0.2f;    // of the bytes of a, which come from L2
constexpr float kGemmNarrowIdle = 0.45f;  // of the loads' time, for SMs that have fewer blocks than others, or none
constexpr float kGemmNarrowLateMB = 20;   // of b: from so many on the rings are full before the kernel ahead ends
struct GemmNarrowCost {
  float part, resident, wave;  // for each further part of k, block of an SM, and wave of blocks
  float crowd, half;  // for each SM's blocks above half of them: those of the next kernel want room beside ours
};
constexpr GemmNarrowCost kGemmNarrowOverlapped = {0.06f, 0.11f, 0.15f, 1.8f, 0.55f};  // b is constant
constexpr GemmNarrowCost kGemmNarrowAlone = {0.12f, 0.7f, 1.3f, 0, 1};
// What was not tried, since a block alone takes long: fewer blocks than this part of the SMs while k can be cut further (of a small
// b, which the rings hold, less); nor were clusters in many waves.
constexpr float kGemmNarrowLeast = 0.76f, kGemmNarrowLeastSmall = 0.45f;
constexpr float kGemmNarrowSmallMB = 10;
constexpr int kGemmNarrowClusterWaves = 3;

inline GemmNarrowPlan gemm_narrow_plan(const GemmCall& c, const Device& device) {
  int rows = 8;
  while (rows < c.m && rows < kGemmNarrowMaxM) rows *= 2;
  const GemmNarrowCost& cost = c.constant_b ? kGemmNarrowOverlapped : kGemmNarrowAlone;
  const int64_t tiles = gemm_ceil(c.n, kGemmNarrowCols) * c.batch, steps = gemm_ceil(c.k, kGemmNarrowK);
  const float mb_b = 2e-6f * c.n * c.k * (c.b.batch ? c.batch : 1), mb_a = 2e-6f * tiles * c.m * c.k;
  const float loads = (mb_b + kGemmNarrowOfA * mb_a) / kGemmNarrowMBPerUs;
  const int most = static_cast<int>(std::min<int64_t>(kGemmMaxSplit, std::max<int64_t>(1, steps / 2)));
  const float few = device.processors * (mb_b > kGemmNarrowSmallMB ? kGemmNarrowLeast : kGemmNarrowLeastSmall);
  GemmNarrowPlan best = {};
  float least = 0;
  for (int resident = 1; resident <= kGemmNarrowResident; ++resident)
    for (int split = 1; split <= most; ++split) {
      const GemmNarrowPlan plan = gemm_narrow_fit(rows, split, resident);
      if (!plan.stages || (split < most && tiles * split < few)) continue;
      const int64_t waves = (tiles - 1) / gemm_narrow_room(device.processors, split, resident) + 1;
      if (split > 1 && waves > kGemmNarrowClusterWaves) continue;
      const float full = static_cast<float>(tiles * split) / (static_cast<float>(device.processors) * resident * waves);
      const float us = loads * (1 + kGemmNarrowIdle * std::max(0.f, 1 - full)) + cost.part * (split - 1) +
                       cost.resident * (resident - 1) + cost.wave * (waves - 1) +
                       cost.crowd * std::max(0.f, full - cost.half);
      if (best.rows && us >= least) continue;
      best = plan;
      least = us;
    }
  best.stages = static_cast<int>(std::min<int64_t>(best.stages, std::max<int64_t>(2, gemm_ceil(steps, best.split))));
  best.late = mb_b > kGemmNarrowLateMB;
  return best;
}

}  // namespace ek
