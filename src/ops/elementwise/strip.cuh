// SPDX-License-Identifier: Apache-2.0
// A batch of matrix transposes whose result has rows that are dense but not whole vectors, such as the 729 tokens of an
// image: its rows begin anywhere, but together they are one run of memory. A block takes a strip of columns of x, all
// rows of it, and shared memory holds the strip as it lies in y: elements are scattered on the way in, so that y is
// written in 16-byte vectors without regard to where rows begin.
#pragma once

#include "ops/elementwise/transpose.cuh"

namespace ek {

constexpr int kStripBytes = 128;  // of each row of x: whole lines
constexpr int kStripThreads = 1024;
constexpr int kStripLoads = 6;  // of a thread at once
constexpr int kStripRows = kStripThreads * 16 / kStripBytes;

template <class E>
struct StripParams {
  const E* x;
  E* y;
  int64_t n, x_stride;
  int32_t m;
  RowItems<2> strips;
};

template <class E>
__global__ void __launch_bounds__(kStripThreads) strip_kernel(const __grid_constant__ StripParams<E> p) {
  constexpr int kVec = 16 / static_cast<int>(sizeof(E)), kColumns = kStripBytes / static_cast<int>(sizeof(E));
  extern __shared__ uint4 strip[];  // [columns][m] elements
  pdl_launch();
  int64_t at[2];
  const int64_t first = static_cast<int64_t>(p.strips.locate(blockIdx.x, at)) * kColumns;
  const int columns = static_cast<int>(p.n - first < kColumns ? p.n - first : kColumns);
  const int column = threadIdx.x % (kColumns / kVec) * kVec, row = threadIdx.x / (kColumns / kVec);
  const E* x = p.x + at[0] + first + column + row * p.x_stride;
  E* to = reinterpret_cast<E*>(strip) + column * p.m;

  pdl_wait();
  for (int i = row; i < p.m; i += kStripLoads * kStripRows, x += kStripLoads * kStripRows * p.x_stride) {
    union {
      uint4 vector;
      E element[kVec];
    } raw[kStripLoads];
    const auto in = [&](int k) { return i + k * kStripRows < p.m && column < columns; };
#pragma unroll
    for (int k = 0; k < kStripLoads; ++k)
      if (in(k)) raw[k].vector = *reinterpret_cast<const uint4*>(x + k * kStripRows * p.x_stride);
#pragma unroll
    for (int k = 0; k < kStripLoads; ++k) {
      if (!in(k)) continue;
#pragma unroll
      for (int e = 0; e < kVec; ++e) to[e * p.m + i + k * kStripRows] = raw[k].element[e];
    }
  }
  __syncthreads();

  // The strip starts on a vector and is a whole number of them, since its number of columns is.
  uint4* y = reinterpret_cast<uint4*>(p.y + at[1] + first * p.m);
  const int vectors = columns * p.m / kVec;
#pragma unroll 4
  for (int i = threadIdx.x; i < vectors; i += kStripThreads) y[i] = strip[i];
}

// ---- launch -----------------------------------------------------------------------------------------------------------

inline const char* strip_why_not(const Transpose& t, int bytes, const Device& device) {
  if (!transpose_x_aligned(t, bytes)) return "rows of x are not multiples of 16 bytes";
  if (t.y_stride != t.m || reinterpret_cast<uintptr_t>(t.y) % 16) return "y is not dense, or starts between vectors";
  for (int d = 0; d < t.batch.ndim; ++d)
    if (t.batch.stride[1][d] * bytes % 16) return "a matrix of y starts between vectors";
  if (t.m < kStripRows) return "m < 128: not enough work for a block";
  if (t.m * kStripBytes > device.smem_per_block) return "128 bytes of all rows of x do not fit in shared memory";
  return nullptr;
}

template <class E>
ek_status strip_launch(const Launch& l, const Transpose& t) {
  constexpr int kColumns = kStripBytes / static_cast<int>(sizeof(E));
  const int64_t step[2] = {kColumns, kColumns * t.m};
  return for_each_slab(t.batch, (t.n + kColumns - 1) / kColumns, step,
                       [&](const RowItems<2>& strips, const int64_t (&at)[2]) {
                         StripParams<E> p;
                         p.x = static_cast<const E*>(t.x) + at[0];
                         p.y = static_cast<E*>(t.y) + at[1];
                         p.n = t.n - strips.first * kColumns;
                         p.x_stride = t.x_stride;
                         p.m = static_cast<int32_t>(t.m);
                         p.strips = strips;
                         const size_t smem = static_cast<size_t>(t.m) * kStripBytes;
                         return launch(l, strip_kernel<E>, {strips.count, kStripThreads, smem}, p);
                       });
}

inline ek_status strip_cuda(const Launch& l, const Transpose& t, int bytes) {
  return bytes == 2 ? strip_launch<uint16_t>(l, t) : strip_launch<uint32_t>(l, t);
}

}  // namespace ek
