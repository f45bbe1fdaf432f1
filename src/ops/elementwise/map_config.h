// SPDX-License-Identifier: Apache-2.0
// Launch shapes of the activation and elementwise families on CUDA: every number to tune is here. Pure functions, host
// only; none of them looks at anything but sizes, and elements do not depend on each other, so results never change.
#pragma once

#include <cstdint>

namespace ek {

// ---- map.cuh: unary, binary, gated ----------------------------------------------------------------------------------

// Short calls are bound by latency: one vector for each thread, spread over as many SMs as there are small blocks.
constexpr int kMapSmallThreads = 128;
// Up to this many items for each SM a call counts as short. 16 small blocks fill an SM of 2048 threads once.
constexpr int kMapSmallItems = 16 * kMapSmallThreads;

// Long calls are bound by memory: larger blocks, several vectors in flight in each thread before the first is used.
constexpr int kMapWideThreads = 256;
constexpr int kMapScalarUnroll = 4;
// Loads (of 16 bytes) that a thread of a wide block has in flight; items are as many as have that many loads.
constexpr int map_unroll(int loads) { return loads <= 1 ? 4 : 2; }

// Wide blocks read and write evict-first: what they stream is larger than L2 will hold for the next kernel.
constexpr bool kMapStreamLoads = true;
constexpr bool kMapStreamStores = true;

struct MapConfig {
  bool wide;
  int threads;
};

constexpr MapConfig choose_map(int64_t items, int processors) {
  const bool wide = items > static_cast<int64_t>(processors) * kMapSmallItems;
  return {wide, wide ? kMapWideThreads : kMapSmallThreads};
}

// ---- transpose.cuh ----------------------------------------------------------------------------------------------------

// 64 x 64 tiles: segments of 128 bytes on both sides for 2-byte elements, 256 for 4-byte ones; 8 or 16 KB of shared
// memory, so that an SM holds 8 blocks whose loads and stores overlap.
constexpr int kTransposeTile = 64;
constexpr int kTransposeThreads = 256;
// Tiles are visited in bands of so many columns of x, so that the blocks that run together touch long pieces of rows
// of both x and y.
constexpr int kTransposeBand = 8;

// ---- upsample_nearest_2x ----------------------------------------------------------------------------------------------

constexpr int kUpsampleThreads = 256;
constexpr int kUpsampleUnroll = 2;

// ---- swiglu_quant -----------------------------------------------------------------------------------------------------

// A scale for each row: a block holds its row in registers, so many f32 values in each thread. More than 32 do not fit
// 64 registers; f32 inputs take twice the registers on the way, so they stop at 16. By dim alone, never by the number
// of rows: rows of a batch must not change each other.
constexpr int kQuantRowThreads = 1024;
constexpr int64_t max_quant_row(int bytes) { return (bytes == 4 ? 16 : 32) * kQuantRowThreads; }

struct QuantRowConfig {
  int values;   // of a thread: 16 or 32
  int threads;  // a multiple of 32
};

constexpr QuantRowConfig choose_quant_row(int64_t dim, int bytes) {
  const int values = dim <= 16 * 512 || bytes == 4 ? 16 : 32;
  return {values, static_cast<int>((dim + 32 * values - 1) / (32 * values)) * 32};
}

// Groups within a warp: blocks of so many threads, each with so many vectors.
constexpr int kQuantGroupThreads = 256;
constexpr int kQuantGroupUnroll = 2;

// Any other group, of so many elements or vectors: a warp for a small one, a block for a large one.
constexpr int kQuantAnyThreads = 512;
constexpr int choose_quant_team(int64_t items) { return items <= 32 * 8 ? 32 : kQuantAnyThreads; }

}  // namespace ek
