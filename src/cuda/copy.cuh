// SPDX-License-Identifier: Apache-2.0
// Copies to shared memory, thread by thread, by a policy of L2's (tma.cuh). Those without one are in mma.cuh, beside the
// products that they feed. On targets before sm_80 it compiles to nothing and is never called.
#pragma once

#include <cstdint>

namespace ek {

// 16 bytes, around L1, as copy_async.
__device__ __forceinline__ void copy_async_by([[maybe_unused]] uint32_t smem, [[maybe_unused]] const void* global,
                                              [[maybe_unused]] uint64_t policy) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;" ::"r"(smem), "l"(global), "l"(policy)
               : "memory");
#endif
}

}  // namespace ek
