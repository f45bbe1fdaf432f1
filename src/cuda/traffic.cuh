// SPDX-License-Identifier: Apache-2.0
// Memory traffic with a purpose: loads of data that is read once, and the addition that hands results to another block.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace ek {

// Takes no room in L1 and asks L2 for whole lines.
__device__ __forceinline__ uint4 load_stream(const void* global) {
  uint4 v;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("ld.global.nc.L1::no_allocate.L2::256B.v4.u32 {%0, %1, %2, %3}, [%4];"
#else
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
#endif
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(global));
  return v;
}

// Brings the line to L2, whatever may still be written to it: allowed before pdl_wait().
__device__ __forceinline__ void prefetch_l2(const void* global) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(global) : "memory");
}

// *p += x; the value before. What this thread has seen written is visible to whoever sees the sum, and the reverse.
__device__ __forceinline__ uint32_t atomic_add_ordered(uint32_t* p, uint32_t x) {
  uint32_t before;
  asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], %2;" : "=r"(before) : "l"(p), "r"(x) : "memory");
  return before;
}

}  // namespace ek
