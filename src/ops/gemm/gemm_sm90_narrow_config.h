// SPDX-License-Identifier: Apache-2.0
// How gemm_sm90_narrow shares out a product: how many columns a block has, into how many parts k is cut, and how many blocks share an SM.
// Host code, no CUDA.
#pragma once

#include "ops/gemm/gemm_config.h"

namespace ek {

constexpr int kGemmNarrowMaxM = 64, kGemmNarrowTwiceM = 128;  // of a; the second where there are few columns
constexpr int kGemmNarrowTwiceCols = 1056;
constexpr int kGemmNarrowCols = 64;  // of d, of a block, at most; products of all of them are made, whatever it has
constexpr int kGemmNarrowLeastCols = 32;     // so that what is read past a block's lies in its rings
constexpr int kGemmNarrowK = 128;            // of k in a stage of a ring
constexpr int kGemmNarrowResident = 3;       // blocks of an SM, at most
constexpr int kGemmNarrowSmem = 228 * 1024;  // of an SM; each block takes 1 KB more than it asks for

struct GemmNarrowPlan {
  int rows;              // of a that a block multiplies: 8, 16, 32 or 64
  int row_tiles;         // 1, or 2 where two blocks have half of the rows each
  int a_rows;            // of a box of a: those of a block in whole steps of the swizzle
  int cols;              // of d, of a block: in whole steps of the swizzle
  int split;             // parts of k, of the blocks of a cluster
  int resident;          // blocks of an SM
  int stages, a_stages;  // of the rings of b and of a
  int each;              // eights of rows that a block of the cluster ends
  int smem;              // bytes of a block: all that there are for it, so that no more than `resident` share an SM
  bool late;             // the next kernel comes when what is left to load fits into the ring, not first of all
};

constexpr int gemm_narrow_b_bytes(int cols) { return cols * kGemmNarrowK * 2; }  // of a stage
constexpr int gemm_narrow_a_bytes(int rows) { return rows * kGemmNarrowK * 2; }
constexpr int kGemmNarrowEightBytes = 8 * kGemmNarrowCols * 4;  // of the sums of eight rows
// Where in shared memory, in bytes: the ring of b at 0, that of a, sums of other blocks, barriers, the end.
struct GemmNarrowPlaces {
  int a, sums, barriers, end;
};
constexpr GemmNarrowPlaces gemm_narrow_places(const GemmNarrowPlan& p) {
  const int a = p.stages * gemm_narrow_b_bytes(p.cols), sums = a + p.a_stages * gemm_narrow_a_bytes(p.rows);
  const int barriers = sums + (p.split - 1) * p.each * kGemmNarrowEightBytes;
  return {a, sums, barriers, barriers + 16 * (p.stages + p.a_stages) + 24};
}

// A plan for so many columns, parts, of `steps` of k at most, and blocks an SM; no stages where there is no room for two of each ring. a,
// which comes from L2, wants no more than eight; 64 rows of it four, six where k is short and it must catch up with b.
inline GemmNarrowPlan gemm_narrow_fit(int64_t m, int cols, int row_tiles, int split, int resident, int64_t steps) {
  GemmNarrowPlan p = {};
  p.cols = cols, p.row_tiles = row_tiles, p.split = split, p.resident = resident;
  p.a_rows = static_cast<int>(gemm_ceil(gemm_ceil(m, row_tiles), 8) * 8);
  int rows = 8;
  while (rows < p.a_rows) rows *= 2;
  p.rows = rows;
  p.each = (rows / 8 + split - 1) / split;
  p.smem = std::min(kGemmNarrowSmem / resident - 1024, 227 * 1024) / 128 * 128;
  const int most = static_cast<int>(std::min<int64_t>(std::max<int64_t>(2, steps), 32));
  const int room = p.smem - gemm_narrow_places(p).end, a = gemm_narrow_a_bytes(rows) + 16,
            b = gemm_narrow_b_bytes(cols) + 16;
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
  return split == 1 ? std::max<int64_t>(room, 1) : room;
}

// What a plan takes, in microseconds: its loads at this speed, and more for what keeps them from it.
constexpr float kGemmNarrowMBPerUs = 4.4f;
struct GemmNarrowCost {
  int rows;              // of a block, up to so many
  float mb;              // of b, less than this
  int cols;              // of a block, at least
  float blocks, full;    // for an SM, and of the places of waves of blocks, at least: what has less was not timed
  float of_a;            // of the bytes of a, which come from L2
  float idle;            // of the loads, for the share of the places that is empty: the SM that has most decides
  float few, least;      // of the loads, for each block for an SM that there are less than least
  float part, resident;  // for each further part of k, and block of an SM
  float wave;            // for each further wave of blocks, up to two
  float crowd, half;     // for the share of the places above half: those of the next kernel want some beside ours
  float late_mb;         // of b: from so many on the rings are full before the kernel ahead ends
};
// Fitted to products that were timed with many plans (docs/measured-facts/few-rows.md): where b is constant and kernels overlap, and
// else. A small b is not cut finer: what that gained was left in L2 by the call before.
constexpr float kGemmNarrowAnyMB = 1e30f;  // more than a call can have
constexpr GemmNarrowCost kGemmNarrowOverlapped[] = {
    {32, 10, 64, 0.45f, 0, 0.2f, 0.32f, 0, 0, 0.09f, 0.01f, 0.7f, 3, 0.7f, 20},
    {32, 27, 64, 0.91f, 0, 0.2f, 0.32f, 0, 0, 0.09f, 0.01f, 0.7f, 3, 0.7f, 20},
    {32, kGemmNarrowAnyMB, 32, 0.45f, 0.6f, 0.11f, 0.44f, 1.3f, 1, 0, 0.43f, 9, 4.9f, 0.74f, 0},
    {64, 27, 64, 0.45f, 0, 0.2f, 0.16f, 0, 0, 0.02f, 0.15f, 1, 0.6f, 0, 4},
    {64, kGemmNarrowAnyMB, 32, 0.45f, 0.6f, 0.05f, 0.35f, 0.16f, 0.93f, 0.02f, 0.52f, 1.4f, 5, 0.7f, 0},
};
constexpr GemmNarrowCost kGemmNarrowAlone[] = {
    {32, 10, 64, 0.45f, 0, 0.2f, 0.45f, 0, 0, 0.12f, 0.7f, 4, 0, 1, 20},
    {32, 27, 64, 0.76f, 0, 0.2f, 0.45f, 0, 0, 0.12f, 0.7f, 4, 0, 1, 20},
    {32, kGemmNarrowAnyMB, 32, 0.45f, 0.6f, 2.2f, 1.1f, 0.3f, 1.6f, 0.009f, 0.66f, 14, 2.1f, 0.73f, 20},
    {64, 27, 64, 0.45f, 0, 0.2f, 0.45f, 0, 0, 0.12f, 0.7f, 4, 0, 1, 20},
    {64, kGemmNarrowAnyMB, 32, 0.45f, 0.6f, 0.19f, 0.24f, 0.32f, 0.62f, 0.52f, 3.4f, 12, 6.8f, 0.96f, 20},
};
constexpr float kGemmNarrowFar = 1000;  // for each of an SM's blocks, or of the places, that a plan lacks of the least

// Two blocks with half of the rows each have half of the products and of what ends them, and load b twice: worth it where that is small.
constexpr int64_t kGemmNarrowTwiceTiles = 32;
constexpr float kGemmNarrowTwiceBlocks = 0.42f;  // for an SM, at least
constexpr float gemm_narrow_twice_mb(int64_t m) { return m > 32 ? 4.3f : m > 16 ? 2.2f : 0; }

inline const GemmNarrowCost& gemm_narrow_cost(bool constant_b, int64_t rows, float mb_b) {
  const GemmNarrowCost* cost = constant_b ? kGemmNarrowOverlapped : kGemmNarrowAlone;
  while (rows > cost->rows || mb_b >= cost->mb) ++cost;
  return *cost;
}

inline GemmNarrowPlan gemm_narrow_plan(const GemmCall& c, const Device& device) {
  const float mb_b = 2e-6f * c.n * c.k * (c.b.batch ? c.batch : 1);
  const int64_t steps = gemm_ceil(c.k, kGemmNarrowK);
  const bool small = c.constant_b && gemm_ceil(c.n, kGemmNarrowCols) * c.batch <= kGemmNarrowTwiceTiles &&
                     mb_b <= gemm_narrow_twice_mb(c.m);
  const int row_tiles = c.m > kGemmNarrowMaxM || small ? 2 : 1;
  const int64_t rows = gemm_ceil(gemm_ceil(c.m, row_tiles), 8) * 8;
  const GemmNarrowCost& cost = gemm_narrow_cost(c.constant_b, rows, mb_b);
  const int most = static_cast<int>(std::min<int64_t>(kGemmMaxSplit, std::max<int64_t>(1, steps / 2)));
  const float of_sms = 1.f / device.processors, blocks = row_tiles == 2 ? kGemmNarrowTwiceBlocks : cost.blocks;
  GemmNarrowPlan best = {};
  float least = 0;
  for (int cols = kGemmNarrowCols; cols >= cost.cols; cols -= 8) {
    const int64_t wide = gemm_ceil(c.n, cols) * c.batch, tiles = wide * row_tiles;
    const float loads = (mb_b + cost.of_a * 2e-6f * wide * rows * c.k) * row_tiles / kGemmNarrowMBPerUs;
    for (int resident = 1; resident <= kGemmNarrowResident; ++resident)
      for (int split = 1; split <= most; ++split) {
        const int64_t room = gemm_narrow_room(device.processors, split, resident);
        if (split > 1 && tiles > room) break;  // clusters in waves were not tried
        const int64_t waves = tiles > room ? gemm_ceil(tiles, room) : 1;
        const float for_an_sm = tiles * split * of_sms, full = for_an_sm / (resident * waves);
        const float us =
            loads * (1 + cost.idle * std::max(0.f, 1 - full) + cost.few * std::max(0.f, cost.least - for_an_sm)) +
            cost.part * (split - 1) + cost.resident * (resident - 1) + cost.wave * std::min<int64_t>(waves - 1, 2) +
            cost.crowd * std::max(0.f, full - cost.half) +
            kGemmNarrowFar * (std::max(0.f, blocks - for_an_sm) + std::max(0.f, cost.full - full));
        if (best.rows && us >= least) continue;
        const GemmNarrowPlan plan = gemm_narrow_fit(c.m, cols, row_tiles, split, resident, gemm_ceil(steps, split));
        if (!plan.stages) continue;
        best = plan;
        least = us;
      }
  }
  best.late = mb_b > cost.late_mb;
  return best;
}

}  // namespace ek
