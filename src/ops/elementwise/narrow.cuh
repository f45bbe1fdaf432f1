// SPDX-License-Identifier: Apache-2.0
// Between planes and packed pixels for images of 2, 3 or 4 channels: too narrow for the square tiles of transpose.cuh.
// A thread holds a word of 8 bytes of every plane, which is as many words of packed pixels; shared memory only shifts
// words between threads, so that both sides are read and written 8 bytes at a time, side by side.
#pragma once

#include "cuda/pdl.cuh"
#include "ops/elementwise/transpose.cuh"

namespace ek {

constexpr int kNarrowThreads = 256;

struct NarrowParams {
  const void* x;
  void* y;
  int64_t plane;      // words from plane to plane
  int64_t words;      // of a plane
  RowItems<2> items;  // chunks of kNarrowThreads words of a plane, image after image; offsets in elements of x, y
};

// kSplit: packed pixels to planes, else planes to packed pixels. E: an unsigned integer of the element's size.
template <class E, int kChannels, bool kSplit>
__global__ void __launch_bounds__(kNarrowThreads) narrow_kernel(const __grid_constant__ NarrowParams p) {
  constexpr int V = 8 / static_cast<int>(sizeof(E));
  __shared__ uint2 tile[kChannels * kNarrowThreads];
  pdl_launch();
  int64_t at[2];
  const int64_t chunk = p.items.locate(blockIdx.x, at);
  const uint2* x = reinterpret_cast<const uint2*>(static_cast<const E*>(p.x) + at[0]);
  uint2* y = reinterpret_cast<uint2*>(static_cast<E*>(p.y) + at[1]);
  const int64_t word = chunk * kNarrowThreads + threadIdx.x;                             // of every plane
  const int64_t packed = chunk * kNarrowThreads * kChannels, end = p.words * kChannels;  // words of packed pixels
  union Words {
    uint2 word[kChannels];
    E element[kChannels * V];
  } mine, planes;
  pdl_wait();

  if constexpr (kSplit) {
    // Packed words of the whole chunk, then the thread's own pixels out of them
#pragma unroll
    for (int k = 0; k < kChannels; ++k) {
      const int i = threadIdx.x + k * kNarrowThreads;
      if (packed + i < end) tile[i] = x[packed + i];
    }
    __syncthreads();
    if (word >= p.words) return;
#pragma unroll
    for (int k = 0; k < kChannels; ++k) mine.word[k] = tile[threadIdx.x * kChannels + k];
#pragma unroll
    for (int i = 0; i < kChannels * V; ++i) planes.element[i % kChannels * V + i / kChannels] = mine.element[i];
#pragma unroll
    for (int c = 0; c < kChannels; ++c) y[c * p.plane + word] = planes.word[c];
  } else {
    // A word of every plane, packed in registers, then out through shared memory
    if (word < p.words) {
#pragma unroll
      for (int c = 0; c < kChannels; ++c) planes.word[c] = x[c * p.plane + word];
#pragma unroll
      for (int i = 0; i < kChannels * V; ++i) mine.element[i] = planes.element[i % kChannels * V + i / kChannels];
#pragma unroll
      for (int k = 0; k < kChannels; ++k) tile[threadIdx.x * kChannels + k] = mine.word[k];
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < kChannels; ++k) {
      const int i = threadIdx.x + k * kNarrowThreads;
      if (packed + i < end) y[packed + i] = tile[i];
    }
  }
}

// t is the transpose of [channels, pixels] (planes to packed) or of [pixels, channels] (kSplit).
template <bool kSplit>
const char* narrow_why_not(const Transpose& t, int bytes) {
  const int64_t channels = kSplit ? t.n : t.m, pixels = kSplit ? t.m : t.n;
  const int64_t pixel = kSplit ? t.x_stride : t.y_stride, plane = kSplit ? t.y_stride : t.x_stride;
  const int v = 8 / bytes;
  if (channels < 2 || channels > 4) return "channels is not 2, 3 or 4";
  if (pixel != channels) return "pixels are not packed side by side";
  if (pixels % v || plane % v) return "planes are not multiples of 8 bytes";
  if (reinterpret_cast<uintptr_t>(t.x) % 8 || reinterpret_cast<uintptr_t>(t.y) % 8)
    return "x or y is not 8-byte aligned";
  for (int d = 0; d < t.batch.ndim; ++d)
    if (t.batch.size[d] > 1 && (t.batch.stride[0][d] % v || t.batch.stride[1][d] % v))
      return "images do not start on multiples of 8 bytes";
  return nullptr;
}

template <bool kSplit>
ek_status narrow_cuda(const Launch& l, const Transpose& t, int bytes) {
  const int64_t channels = kSplit ? t.n : t.m, pixels = kSplit ? t.m : t.n, words = pixels * bytes / 8;
  const int64_t chunks = (words + kNarrowThreads - 1) / kNarrowThreads;
  const int64_t step[2] = {0, 0};  // an image has far fewer than 2^31 chunks, so slabs never start inside one
  return for_each_slab(t.batch, chunks, step, [&](const RowItems<2>& items, const int64_t (&at)[2]) {
    NarrowParams p;
    p.x = static_cast<const char*>(t.x) + at[0] * bytes;
    p.y = static_cast<char*>(t.y) + at[1] * bytes;
    p.plane = (kSplit ? t.y_stride : t.x_stride) * bytes / 8;
    p.words = words;
    p.items = items;
    const Grid grid = {items.count, kNarrowThreads};
    const auto run = [&](auto e) {
      using E = decltype(e);
      return channels == 2   ? launch(l, narrow_kernel<E, 2, kSplit>, grid, p)
             : channels == 3 ? launch(l, narrow_kernel<E, 3, kSplit>, grid, p)
                             : launch(l, narrow_kernel<E, 4, kSplit>, grid, p);
    };
    return bytes == 2 ? run(uint16_t{}) : run(uint32_t{});
  });
}

}  // namespace ek
