// SPDX-License-Identifier: Apache-2.0
// A batch of matrix transposes, y[j, i] = x[i, j], for transpose_2d, nchw_to_nhwc and nhwc_to_nchw. Elements are only
// moved, so their size is all that matters.
// A block moves a tile through shared memory. Words there hold elements that are neighbours in y: a 2-byte element and
// the one below it are joined in registers on the way in, so that y is written from 16-byte reads. Each side of memory
// is accessed in 16-byte vectors where it is aligned, else element by element, 32 neighbours at once.
#pragma once

#include "cuda/launch.h"
#include "cuda/pdl.cuh"
#include "cuda/rows.cuh"
#include "ops/elementwise/map_config.h"

namespace ek {

// x is [batch, m, n], y is [batch, n, m]; the last dim of each has stride 1.
struct Transpose {
  const void* x;
  void* y;
  int64_t m, n;
  int64_t x_stride, y_stride;  // from row to row, in elements
  Rows<2> batch;               // offsets in x and y
};

// True where 16-byte accesses fit: the base, each row of `count` rows, each matrix, and a whole number of vectors in a row.
inline bool transpose_aligned(const void* base, int64_t count, int64_t row, int64_t stride, const Rows<2>& batch, int t,
                              int bytes) {
  const int vector = 16 / bytes;
  if (reinterpret_cast<uintptr_t>(base) % 16 || row % vector || (count > 1 && stride % vector)) return false;
  for (int d = 0; d < batch.ndim; ++d)
    if (batch.stride[t][d] % vector) return false;
  return true;
}
inline bool transpose_x_aligned(const Transpose& t, int bytes) {
  return transpose_aligned(t.x, t.m, t.n, t.x_stride, t.batch, 0, bytes);
}
inline bool transpose_y_aligned(const Transpose& t, int bytes) {
  return transpose_aligned(t.y, t.n, t.m, t.y_stride, t.batch, 1, bytes);
}
inline const char* transpose_why_not_vec(const Transpose& t, int bytes) {
  if (!transpose_x_aligned(t, bytes)) return "rows of x are not multiples of 16 bytes";
  if (!transpose_y_aligned(t, bytes)) return "rows of y are not multiples of 16 bytes";
  return nullptr;
}

// ---- device -----------------------------------------------------------------------------------------------------------

template <class E>
struct TransposeParams {
  const E* x;
  E* y;
  int64_t m, n, x_stride, y_stride;
  RowItems<2> tiles;  // an item is a tile
  Divider band;       // tiles in a whole band: kTransposeBand columns of tiles, all rows
  uint32_t columns;   // of tiles
};

// kTile * kTile elements as words, [column j of x][word i / kPer], in chunks of 16 bytes. Chunks of a row are permuted
// by a number that differs between the rows that a warp writes at once, which would share their banks otherwise: every
// kVec-th row if x comes in vectors, neighbours if not.
template <class E, bool kVectorX>
struct TransposeTile {
  static constexpr int kTile = sizeof(E) == 2 ? kTransposeTile2 : kTransposeTile4;
  static constexpr int kVec = 16 / static_cast<int>(sizeof(E));
  static constexpr int kPer = 4 / static_cast<int>(sizeof(E));  // elements in a word
  static constexpr int kWords = kTile / kPer;                   // in a row
  static constexpr int kChunks = kWords / 4;
  static_assert(kChunks % 8 == 0 && kTile % (8 * kVec) == 0, "the swizzle permutes groups of 8 chunks");

  uint4 chunks[kTile * kChunks];

  __device__ __forceinline__ static int chunk(int j, int c) {
    return j * kChunks + (c ^ ((kVectorX ? j / kVec : j) & 7));
  }
  __device__ __forceinline__ uint32_t* word(int j, int w) {
    return reinterpret_cast<uint32_t*>(&chunks[chunk(j, w / 4)]) + w % 4;
  }
};

// The words of kVec columns from the vectors of kPer rows.
__device__ __forceinline__ void transpose_join(const uint4 (&rows)[1], uint32_t (&words)[4]) {
  words[0] = rows[0].x, words[1] = rows[0].y, words[2] = rows[0].z, words[3] = rows[0].w;
}
__device__ __forceinline__ void transpose_join(const uint4 (&rows)[2], uint32_t (&words)[8]) {
  const uint32_t a[4] = {rows[0].x, rows[0].y, rows[0].z, rows[0].w};
  const uint32_t b[4] = {rows[1].x, rows[1].y, rows[1].z, rows[1].w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    words[2 * i] = __byte_perm(a[i], b[i], 0x5410);
    words[2 * i + 1] = __byte_perm(a[i], b[i], 0x7632);
  }
}

// x to shared memory. The tile starts at x and has `rows` and `columns` of it.
template <class E, bool kVector>
__device__ __forceinline__ void transpose_load(TransposeTile<E, kVector>& tile, const E* x, int64_t stride, int rows,
                                               int columns) {
  using Tile = TransposeTile<E, kVector>;
  constexpr int kTile = Tile::kTile, kVec = Tile::kVec, kPer = Tile::kPer;
  if constexpr (kVector) {
    // A warp: 8 vectors side by side (128 bytes of a row), 4 words down
    constexpr int kUnits = Tile::kWords * (kTile / kVec) / kTransposeThreads, kWide = kTile / kVec / 8;
    uint4 raw[kUnits][kPer];
    uint32_t* to[kUnits];
#pragma unroll
    for (int u = 0; u < kUnits; ++u) {
      const int unit = threadIdx.x + u * kTransposeThreads, lane = unit % 32, warp = unit / 32;
      const int j = (warp % kWide * 8 + lane % 8) * kVec, w = warp / kWide * 4 + lane / 8;
      const E* from = x + w * kPer * stride + j;
      to[u] = tile.word(j, w);
#pragma unroll
      for (int i = 0; i < kPer; ++i, from += stride)
        if (w * kPer + i < rows && j < columns) raw[u][i] = *reinterpret_cast<const uint4*>(from);
    }
#pragma unroll
    for (int u = 0; u < kUnits; ++u) {
      uint32_t words[kVec];
      transpose_join(raw[u], words);
#pragma unroll
      for (int i = 0; i < kVec; ++i) to[u][i * Tile::kWords] = words[i];  // rows j .. j + kVec are permuted alike
    }
  } else {
    // A warp: 32 elements side by side, and those below that share their words
    constexpr int kUnits = Tile::kWords * kTile / kTransposeThreads, kDown = kTransposeThreads / kTile;
    static_assert(kTransposeThreads % kTile == 0, "a thread stays in its column");
    const int j = threadIdx.x % kTile, first = threadIdx.x / kTile;
    const E* from = x + first * kPer * stride + j;
    E raw[kUnits][kPer];
#pragma unroll
    for (int u = 0; u < kUnits; ++u)
#pragma unroll
      for (int i = 0; i < kPer; ++i) {
        const int row = u * kDown * kPer + i;  // past the thread's first
        raw[u][i] = 0;
        if (first * kPer + row < rows && j < columns) raw[u][i] = from[row * stride];
      }
#pragma unroll
    for (int u = 0; u < kUnits; ++u) {
      uint32_t word = raw[u][0];
      if constexpr (kPer == 2) word |= static_cast<uint32_t>(raw[u][1]) << 16;
      *tile.word(j, first + u * kDown) = word;
    }
  }
}

// Shared memory to y: here `rows` and `columns` are those of y.
template <class E, bool kVectorX, bool kVector>
__device__ __forceinline__ void transpose_store(TransposeTile<E, kVectorX>& tile, E* y, int64_t stride, int rows,
                                                int columns) {
  using Tile = TransposeTile<E, kVectorX>;
  constexpr int kPerRow = kVector ? Tile::kChunks : Tile::kTile, kDown = kTransposeThreads / kPerRow;
  static_assert(kTransposeThreads % kPerRow == 0, "a thread stays in its column");
  const int c = threadIdx.x % kPerRow, first = threadIdx.x / kPerRow;
  y += first * stride + c * (kVector ? Tile::kVec : 1);
  if (c * (kVector ? Tile::kVec : 1) >= columns) return;
  // All 16 addresses of a tile of elements would need too many registers, so 4 at a time.
#pragma unroll 4
  for (int u = 0; u < Tile::kTile / kDown; ++u, y += kDown * stride) {
    const int j = first + u * kDown;
    if (j >= rows) continue;
    if constexpr (kVector) {
      *reinterpret_cast<uint4*>(y) = tile.chunks[Tile::chunk(j, c)];
    } else {
      *y = reinterpret_cast<const E*>(tile.word(j, c / Tile::kPer))[c % Tile::kPer];
    }
  }
}

// Registers are bounded for sm_90 alone: the number is for its 2048 threads, and other SMs hold fewer.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 900
constexpr int transpose_bound(int bytes, bool vectors) { return transpose_blocks(bytes, vectors); }
#else
constexpr int transpose_bound(int, bool) { return 1; }
#endif

template <class E, bool kVectorX, bool kVectorY>
__global__ void __launch_bounds__(kTransposeThreads, transpose_bound(sizeof(E), kVectorX))
    transpose_kernel(const __grid_constant__ TransposeParams<E> p) {
  constexpr int kTile = TransposeTile<E, kVectorX>::kTile;
  __shared__ TransposeTile<E, kVectorX> tile;
  pdl_launch();
  // The block's tile: matrix, band, then row by row of tiles in the band
  int64_t at[2];
  const uint32_t index = p.tiles.locate(blockIdx.x, at);
  const uint32_t band = p.band.divide(index), in_band = index - band * p.band.divisor;
  const uint32_t left = p.columns - band * kTransposeBand;
  uint32_t down = in_band / kTransposeBand, across = in_band % kTransposeBand;
  if (left < kTransposeBand) down = in_band / left, across = in_band % left;  // the last band may be narrower
  const int64_t i = static_cast<int64_t>(down) * kTile;
  const int64_t j = static_cast<int64_t>(band * kTransposeBand + across) * kTile;
  const int rows = static_cast<int>(p.m - i < kTile ? p.m - i : kTile);
  const int columns = static_cast<int>(p.n - j < kTile ? p.n - j : kTile);

  pdl_wait();
  transpose_load<E, kVectorX>(tile, p.x + at[0] + i * p.x_stride + j, p.x_stride, rows, columns);
  __syncthreads();
  transpose_store<E, kVectorX, kVectorY>(tile, p.y + at[1] + j * p.y_stride + i, p.y_stride, columns, rows);
}

// ---- launch -----------------------------------------------------------------------------------------------------------

template <class E, bool kVectorX, bool kVectorY>
ek_status transpose_launch(const Launch& l, const Transpose& t) {
  constexpr int kTile = TransposeTile<E, kVectorX>::kTile;
  const int64_t rows = (t.m + kTile - 1) / kTile, columns = (t.n + kTile - 1) / kTile;
  // NOTE: a matrix has fewer than kMaxItems tiles, since 2^31 of them, of one row or column each, are 256 GB of 2-byte
  // elements on either side. So slabs are whole matrices, and the steps inside one are not used.
  const int64_t step[2] = {0, 0};
  return for_each_slab(t.batch, rows * columns, step, [&](const RowItems<2>& tiles, const int64_t (&at)[2]) {
    TransposeParams<E> p;
    p.x = static_cast<const E*>(t.x) + at[0];
    p.y = static_cast<E*>(t.y) + at[1];
    p.m = t.m, p.n = t.n, p.x_stride = t.x_stride, p.y_stride = t.y_stride;
    p.tiles = tiles;
    p.band = Divider(rows * kTransposeBand < kMaxItems ? rows * kTransposeBand : kMaxItems);
    p.columns = static_cast<uint32_t>(columns);
    return launch(l, transpose_kernel<E, kVectorX, kVectorY>, {tiles.count, kTransposeThreads}, p);
  });
}

inline ek_status transpose_cuda_vec(const Launch& l, const Transpose& t, int bytes) {
  return bytes == 2 ? transpose_launch<uint16_t, true, true>(l, t) : transpose_launch<uint32_t, true, true>(l, t);
}

template <class E>
ek_status transpose_any(const Launch& l, const Transpose& t) {
  if (transpose_x_aligned(t, sizeof(E))) return transpose_launch<E, true, false>(l, t);
  if (transpose_y_aligned(t, sizeof(E))) return transpose_launch<E, false, true>(l, t);
  return transpose_launch<E, false, false>(l, t);
}
inline ek_status transpose_cuda(const Launch& l, const Transpose& t, int bytes) {
  return bytes == 2 ? transpose_any<uint16_t>(l, t) : transpose_any<uint32_t>(l, t);
}

}  // namespace ek
