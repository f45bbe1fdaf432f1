// SPDX-License-Identifier: Apache-2.0
// Memory traffic with a purpose: loads of data that is read once, and the addition that hands results to another block.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace ek {

// For chains of latencies: loads that are issued where they stand in the source, so that none waits for what an earlier one
// brings, and without branches. v stays as it is where !there. load_once: takes no room in L1 and asks L2 for lines of 128 bytes.
// NOTE: not ld.global.nc, which may be read before pdl_wait() has seen the kernel that writes the data.
__device__ __forceinline__ void load_word(int32_t& v, const int32_t* global, bool there) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.u32 p, %2, 0;\n@p ld.global.u32 %0, [%1];\n}"
               : "+r"(v)
               : "l"(global), "r"(static_cast<uint32_t>(there)));
}
__device__ __forceinline__ void load_if(uint4& v, const void* global, bool there) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.u32 p, %5, 0;\n"
      "@p ld.global.v4.u32 {%0, %1, %2, %3}, [%4];\n}"
      : "+r"(v.x), "+r"(v.y), "+r"(v.z), "+r"(v.w)
      : "l"(global), "r"(static_cast<uint32_t>(there)));
}
__device__ __forceinline__ void load_once(uint4& v, const void* global, bool there) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.u32 p, %5, 0;\n"
      "@p ld.global.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];\n}"
      : "+r"(v.x), "+r"(v.y), "+r"(v.z), "+r"(v.w)
      : "l"(global), "r"(static_cast<uint32_t>(there)));
}
__device__ __forceinline__ void load_once(uint2& v, const void* global, bool there) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.u32 p, %3, 0;\n"
      "@p ld.global.L1::no_allocate.L2::128B.v2.u32 {%0, %1}, [%2];\n}"
      : "+r"(v.x), "+r"(v.y)
      : "l"(global), "r"(static_cast<uint32_t>(there)));
}

// The same address, but not to the compiler's knowledge: it would take sums apart, and add the parts anew for each access.
template <class T>
__device__ __forceinline__ T* opaque(T* p) {
  asm("" : "+l"(p));
  return p;
}

// What stands in memory now, before pdl_wait() perhaps not for long; leaves nothing in L1.
__device__ __forceinline__ int32_t load_early(const int32_t* global) {
  int32_t v;
  asm volatile("ld.relaxed.gpu.global.s32 %0, [%1];" : "=r"(v) : "l"(global) : "memory");
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
