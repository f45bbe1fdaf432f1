// SPDX-License-Identifier: Apache-2.0
// Launch shapes of the activation and elementwise families on CUDA: every number to tune is here. Pure functions, host
// only; none of them looks at anything but sizes, and elements do not depend on each other, so results never change.
#pragma once

#include <cstdint>

namespace ek {

// ---- map.cuh: unary, binary, gated ----------------------------------------------------------------------------------

// One 16-byte vector of each stream in a thread and plain loads and stores: on an H200 that is the speed of a copy at every
// size. More vectors in a thread, larger blocks and evict-first accesses were all slower (docs/measured-facts.md).
constexpr int kMapThreads = 256;
// Few of them in blocks of half the size, on twice the SMs: what a block has to compute then counts. Many smaller blocks would
// take longer to start than they run.
constexpr int kMapFewThreads = 128;
constexpr int kMapFewBlocks = 3;  // of an SM, at most
constexpr unsigned map_threads(int64_t wanted, int processors) {
  return wanted <= int64_t{kMapFewThreads} * kMapFewBlocks * processors ? kMapFewThreads : kMapThreads;
}
// Elements of a thread where there are no vectors.
constexpr int kMapScalarItems = 4;

// ---- transpose.cuh ----------------------------------------------------------------------------------------------------

// Square tiles of 2- and 4-byte elements: segments of 128 and 256 bytes on both sides, and 8 or 16 KB of shared memory,
// so that an SM holds 8 blocks whose loads and stores overlap. 64, or 128 for 2-byte elements.
constexpr int kTransposeTile2 = 64;
constexpr int kTransposeTile4 = 64;
constexpr int kTransposeThreads = 256;
// Blocks of an SM that registers must allow: 8 (32 registers) are enough for the two vectors that a thread holds of a
// 2-byte tile, others need more for all their loads to be in flight together.
constexpr int transpose_blocks(int bytes, bool vectors) {
  return bytes == 2 && vectors && kTransposeTile2 == 64 ? 8 : 5;
}
// Tiles are visited in bands of so many columns of x, so that the blocks that run together touch long pieces of rows
// of both x and y.
constexpr int kTransposeBand = 8;

// ---- upsample_nearest_2x ----------------------------------------------------------------------------------------------

constexpr int kUpsampleThreads = 256;
constexpr int kUpsampleUnroll = 1;

// ---- swiglu_quant -----------------------------------------------------------------------------------------------------

// A scale for each row: a block holds its row in registers, so many f32 values in each thread: 16, with the SM full of
// threads of 32 registers, as long as a block has enough of them. More than 32 do not fit 64 registers; f32 inputs take
// twice the registers on the way, so they stop at 16. By dim alone, never by the number of rows: rows of a batch must not
// change each other.
constexpr int kQuantRowThreads = 1024;
constexpr int64_t max_quant_row(int bytes) { return (bytes == 4 ? 16 : 32) * kQuantRowThreads; }

struct QuantRowConfig {
  int values;   // of a thread: 16 or 32
  int threads;  // a multiple of 32
};

constexpr QuantRowConfig choose_quant_row(int64_t dim, int bytes) {
  const int values = dim <= 16 * kQuantRowThreads || bytes == 4 ? 16 : 32;
  return {values, static_cast<int>((dim + 32 * values - 1) / (32 * values)) * 32};
}

// Groups within a warp: blocks of so many threads, each with so many vectors.
constexpr int kQuantGroupThreads = 256;
constexpr int kQuantGroupUnroll = 2;

// Any other group, of so many elements or vectors: a warp for a small one, a block for a large one.
constexpr int kQuantAnyThreads = 512;
constexpr int choose_quant_team(int64_t items) { return items <= 32 * 8 ? 32 : kQuantAnyThreads; }

}  // namespace ek
