// SPDX-License-Identifier: Apache-2.0
// Products with one to eight rows of a: all that counts is to read b once, at the speed of memory. Sums in f32.
//   gemv_along_k   b contiguous along k (weights stored [n, k]): threads side by side along k, sums over the block
//   gemv_bulk      the same on sm_90 and newer, where the copy engine does the loading
//   gemv_across    b contiguous along n: threads own columns, the rows of b are shared out
// CUDA cores have time for one or two rows of a; with more the arithmetic shows. Where columns are few, blocks split k
// and the last one adds their sums in order.
#include "ops/gemm/gemm_gemv_bulk.cuh"
#include "ops/gemm/gemm_rows.h"

namespace ek {

namespace {

constexpr int kWarps = kGemvThreads / 32;

// 16 bytes as words: kept as elements, chunks that are on the way would take a register for each.
using Chunk = uint4;
template <class T>
__device__ __forceinline__ Chunk load_chunk(const T* p, bool exists) {
  return exists ? *reinterpret_cast<const Chunk*>(p) : make_uint4(0, 0, 0, 0);
}
// The `part`-th kCount of its elements.
template <class T, int kCount>
__device__ __forceinline__ void unpack_chunk(const Chunk& chunk, int part, float (&f)[kCount]) {
  unpack(reinterpret_cast<const Vec<T, kCount>*>(&chunk)[part], f);
}

// Blocks of an SM: as many as leave room for the sums and the chunks on the way in registers.
constexpr int resident(int rows) { return rows == 1 ? 3 : 2; }

// grid: (sets of columns, splits of k, batch). threads: groups of g.threads, each with kColumns columns.
template <class T, int kRows, int kColumns>
__global__ void __launch_bounds__(kGemvThreads, resident(kRows)) gemv_along_k(const __grid_constant__ GemvParams g) {
  constexpr int kUnit = kVec<T>, kUnroll = gemv_unroll(kRows), kSums = kRows * kColumns;
  __shared__ float warp_sums[kWarps][kSums];
  const GemmParams& p = g.p;
  const int shift = 31 - __clz(g.threads);  // a power of two
  const int groups = kGemvThreads >> shift, group = threadIdx.x >> shift, at = threadIdx.x & (g.threads - 1);
  const int64_t col0 = int64_t{blockIdx.x} * (groups * kColumns) + group * kColumns;
  const int64_t whole = p.k / kUnit * kUnit, k0 = blockIdx.y * g.range;
  const int range = static_cast<int>(whole - k0 < g.range ? whole - k0 : g.range);

  // Rows and columns beyond the last are read as the last, and dropped at the end.
  const T* a[kRows];
  const T* b[kColumns];
#pragma unroll
  for (int r = 0; r < kRows; ++r)
    a[r] = static_cast<const T*>(p.a.data) + blockIdx.z * p.a.batch + (r < p.m ? r : p.m - 1) * p.a.row + k0;
#pragma unroll
  for (int c = 0; c < kColumns; ++c)
    b[c] =
        static_cast<const T*>(p.b.data) + blockIdx.z * p.b.batch + (col0 + c < p.n ? col0 + c : p.n - 1) * p.b.col + k0;

  if (!g.constant_b) pdl_wait();
  const int step = g.threads * kUnit;
  int k = at * kUnit;
  Chunk b_next[kUnroll][kColumns], a_next[kUnroll][kRows];
#pragma unroll
  for (int u = 0; u < kUnroll; ++u)
#pragma unroll
    for (int c = 0; c < kColumns; ++c) b_next[u][c] = load_chunk(b[c] + k + u * step, k + u * step < range);
  if (g.constant_b) pdl_wait();
  pdl_launch();
#pragma unroll
  for (int u = 0; u < kUnroll; ++u)
#pragma unroll
    for (int r = 0; r < kRows; ++r) a_next[u][r] = load_chunk(a[r] + k + u * step, k + u * step < range);

  // The end of k that fills no chunk, one element to a thread. Here, since after the loop it would keep registers busy in it.
  float sum[kSums] = {};
  if (blockIdx.y == gridDim.y - 1 && at < p.k - whole)
#pragma unroll
    for (int r = 0; r < kRows; ++r)
#pragma unroll
      for (int c = 0; c < kColumns; ++c)
        sum[r * kColumns + c] = to_float(a[r][range + at]) * to_float(b[c][range + at]);

  // Every chunk is replaced by the one after it as soon as it has been used: the loads never pause. Eight rows of 16-bit
  // elements go in two parts, since 64 unpacked values of a would not fit beside the sums.
  constexpr int kParts = kRows == 8 && kUnit == 8 ? 2 : 1, kPart = kUnit / kParts;
#pragma unroll 1
  for (; k < range; k += kUnroll * step) {
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int next = k + (kUnroll + u) * step;
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        const bool last = part == kParts - 1;
        float x[kRows][kPart];
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          unpack_chunk<T>(a_next[u][r], part, x[r]);
          if (last) a_next[u][r] = load_chunk(a[r] + next, next < range);
        }
#pragma unroll
        for (int c = 0; c < kColumns; ++c) {
          float y[kPart];
          unpack_chunk<T>(b_next[u][c], part, y);
          if (last) b_next[u][c] = load_chunk(b[c] + next, next < range);
#pragma unroll
          for (int r = 0; r < kRows; ++r)
#pragma unroll
            for (int i = 0; i < kPart; ++i) sum[r * kColumns + c] = fmaf(x[r][i], y[i], sum[r * kColumns + c]);
        }
      }
    }
  }

  // Over the lanes, then over the warps of a group.
  gemv_lane_sums<kSums, 16, 1>(sum);
  constexpr int kSpare = 32 / kSums;  // lanes that hold the same value
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  if (lane % kSpare == 0) warp_sums[warp][lane / kSpare] = sum[0];
  __syncthreads();
  const int pairs = groups * kSums / 2, warps = kWarps / groups, v = threadIdx.x * 2;
  float2 sums = {0.f, 0.f};
  if (v / 2 < pairs)
    for (int w = 0; w < warps; ++w) {
      const float* from = &warp_sums[v / kSums * warps + w][v % kSums];
      sums.x += from[0];
      sums.y += from[1];
    }
  const int64_t set = int64_t{blockIdx.z} * gridDim.x + blockIdx.x;
  if (gridDim.y > 1 && !gemv_add_splits(g, set, pairs, &sums)) return;
  if (v / 2 < pairs)
    gemv_finish<T>(p, v % kSums / kColumns, (int64_t{blockIdx.x} * groups + v / kSums) * kColumns + v % kColumns, sums);
}

// grid: (strips of 128 bytes of columns, splits of k, batch). Eight threads read a strip, so the block reads 32 rows of b
// at a time, kUnroll times.
template <class T, int kRows>
__global__ void __launch_bounds__(kGemvThreads, resident(kRows)) gemv_across(const __grid_constant__ GemvParams g) {
  constexpr int kUnit = kVec<T>, kUnroll = kRows <= 2 ? 8 : 4, kHigh = 32, kRange = 1024;
  constexpr int kColumns = 8 * kUnit, kValues = kRows * kUnit, kSums = kRows * kColumns;
  // First the rows of a as f32 [kRows, range], then the sums of each warp [kWarps, kSums].
  constexpr int kFloats = kRows * kRange > kWarps * kSums ? kRows * kRange : kWarps * kSums;
  __shared__ float scratch[kFloats];
  const GemmParams& p = g.p;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, high = threadIdx.x / 8;
  const int64_t col0 = int64_t{blockIdx.x} * kColumns, col = col0 + threadIdx.x % 8 * kUnit, k0 = blockIdx.y * g.range;
  const int range = static_cast<int>(p.k - k0 < g.range ? p.k - k0 : g.range);
  const T* b = static_cast<const T*>(p.b.data) + blockIdx.z * p.b.batch + k0 * p.b.row + col;
  const auto load_b = [&](int k) { return load_chunk(b + k * p.b.row, k < range && col < p.n); };

  if (!g.constant_b) pdl_wait();
  Chunk next[kUnroll];
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) next[u] = load_b(high + u * kHigh);
  if (g.constant_b) pdl_wait();
  pdl_launch();
  const T* a = static_cast<const T*>(p.a.data) + blockIdx.z * p.a.batch + k0 * p.a.col;
#pragma unroll
  for (int r = 0; r < kRows; ++r)
    for (int k = threadIdx.x; k < range; k += kGemvThreads)
      scratch[r * kRange + k] = r < p.m ? to_float(a[r * p.a.row + k * p.a.col]) : 0.f;
  __syncthreads();

  float sum[kValues] = {};
#pragma unroll 1
  for (int k = high; k < range; k += kUnroll * kHigh)
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int now = k + u * kHigh;
      float y[kUnit];
      unpack_chunk<T>(next[u], 0, y);
      next[u] = load_b(now + kUnroll * kHigh);
      if (now < range)
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          const float x = scratch[r * kRange + now];
#pragma unroll
          for (int i = 0; i < kUnit; ++i) sum[r * kUnit + i] = fmaf(x, y[i], sum[r * kUnit + i]);
        }
    }

  // Over the four threads of a warp that have the same columns, then over the warps.
  gemv_lane_sums<kValues, 16, 8>(sum);
  __syncthreads();  // a is no longer needed
#pragma unroll
  for (int i = 0; i < kValues / 4; ++i) {
    const int v = lane / 8 * (kValues / 4) + i;
    scratch[warp * kSums + v / kUnit * kColumns + lane % 8 * kUnit + v % kUnit] = sum[i];
  }
  __syncthreads();
  constexpr int kPairs = kSums / 2;
  static_assert(kPairs <= kGemvThreads, "");
  const int i = threadIdx.x * 2;
  float2 sums = {0.f, 0.f};
  if (i / 2 < kPairs)
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      sums.x += scratch[w * kSums + i];
      sums.y += scratch[w * kSums + i + 1];
    }
  const int64_t set = int64_t{blockIdx.z} * gridDim.x + blockIdx.x;
  if (gridDim.y > 1 && !gemv_add_splits(g, set, kPairs, &sums)) return;
  if (i / 2 < kPairs) gemv_finish<T>(p, i / kColumns, col0 + i % kColumns, sums);
}

const char* why_not(const GemmCall& c, const Device& device) {
  if (c.m > kGemvMostRows) return "more than 8 rows of a";
  if (c.n == 0 || c.batch == 0) return "a dim is 0";
  const GemmLayout layout = gemm_layout_of_b(c);
  if (layout == GemmLayout::kNeither) return "rows or columns of b do not lie on 16-byte boundaries";
  if (layout == GemmLayout::kAlongK && gemm_layout_of_a(c) != GemmLayout::kAlongK)
    return "the rows of a are not contiguous, or not on 16-byte boundaries";
  if (layout == GemmLayout::kAcross && c.n * dtype_bytes(c.in) % 16) return "the rows of b are not of whole 16 bytes";
  if (c.k > (int64_t{1} << 30)) return "k is larger than 2^30";
  if (c.d.col != 1 || (c.c.data && c.c.col != 1)) return "the columns of c or d are not contiguous";
  const GemvConfig config = gemv_config(c, device);
  if (config.blocks > kGemmMaxBlocks && !gemv_bulk_piece(c, config, device))
    return "more columns than a grid has blocks for";
  if (config.splits > 65535) return "k is too long to be split";
  if (config.splits > 1 && config.blocks * gemv_slab(c) > kCounters) return "too many columns to split k";
  return nullptr;
}

size_t workspace(const GemmCall& c, const Device& device) {
  const GemvConfig config = gemv_config(c, device);
  return config.splits > 1 ? config.blocks * gemv_slab(c) * config.splits * config.sums * sizeof(float) : 0;
}

template <class F>
ek_status with_rows(int rows, F&& f) {
  if (rows == 1) return f(std::integral_constant<int, 1>{});
  if (rows == 2) return f(std::integral_constant<int, 2>{});
  if (rows == 4) return f(std::integral_constant<int, 4>{});
  return f(std::integral_constant<int, 8>{});
}

template <class T>
ek_status run_bulk(const GemmCall& c, const GemvConfig& config, int piece, const Launch& l) {
  // Four columns share the reading of a; two where four would leave warps without work.
  const int columns = c.n > 3 * int64_t{l.device.processors} * kBulkWarps ? 4 : 2;
  const GemvParams g = {gemm_params_of(c), c.k, (c.n + columns - 1) / columns, 0, c.constant_b, nullptr, nullptr};
  Grid grid;
  grid.blocks = dim3(static_cast<unsigned>(g.sets < l.device.processors ? g.sets : l.device.processors));
  grid.threads = dim3(kGemvThreads);
  grid.smem = gemv_bulk_smem(c, config.rows, piece);
  return with_rows(config.rows, [&](auto rows) {
    constexpr int kRows = decltype(rows)::value, kSmall = kRows >= 4 ? kBulkSmall : kBulkLarge;
    auto kernel = columns == 4 ? gemv_bulk<T, kRows, 4, kBulkLarge> : gemv_bulk<T, kRows, 2, kBulkLarge>;
    if (piece == kBulkSmall) kernel = columns == 4 ? gemv_bulk<T, kRows, 4, kSmall> : gemv_bulk<T, kRows, 2, kSmall>;
    return launch(l, kernel, grid, g);
  });
}

ek_status run(const GemmCall& call, const Launch& l) {
  const GemvConfig config = gemv_config(call, l.device);
  if (const int piece = gemv_bulk_piece(call, config, l.device))
    return with_float(call.in,
                      [&](auto type) { return run_bulk<typename decltype(type)::type>(call, config, piece, l); });
  return gemm_for_each_slab(call, [&](const GemmCall& c) {
    const GemvParams g = {
        gemm_params_of(c), config.range, 0, config.threads, c.constant_b, static_cast<float*>(l.workspace), l.counters};
    Grid grid;
    grid.blocks = dim3(static_cast<unsigned>(config.blocks), static_cast<unsigned>(config.splits),
                       static_cast<unsigned>(c.batch));
    grid.threads = dim3(kGemvThreads);
    return with_float(c.in, [&](auto type) {
      using T = typename decltype(type)::type;
      return with_rows(config.rows, [&](auto rows) {
        constexpr int kRows = decltype(rows)::value;
        if (!config.along_k) return launch(l, gemv_across<T, kRows>, grid, g);
        return config.columns == 4 ? launch(l, gemv_along_k<T, kRows, 4>, grid, g)
                                   : launch(l, gemv_along_k<T, kRows, 2>, grid, g);
      });
    });
  });
}

}  // namespace

const GemmKernel kGemmGemv = {sm(75), why_not, run, workspace, kDeterministic, 0};

}  // namespace ek
