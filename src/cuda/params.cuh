// SPDX-License-Identifier: Apache-2.0
// Parameters of a kernel reach an SM line by line, each when it is first read, and that takes as long as the way to L2. What is
// needed late can be read early, while a warp waits for something else.
#pragma once

#include <cstdint>

namespace ek {

__device__ __forceinline__ void touch_param(int32_t x) { asm volatile("" ::"r"(x)); }
__device__ __forceinline__ void touch_param(uint32_t x) { asm volatile("" ::"r"(x)); }
__device__ __forceinline__ void touch_param(int64_t x) { asm volatile("" ::"l"(x)); }
__device__ __forceinline__ void touch_param(const void* x) { asm volatile("" ::"l"(x)); }

template <class... T>
__device__ __forceinline__ void touch(T... params) {
  (touch_param(params), ...);
}

}  // namespace ek
