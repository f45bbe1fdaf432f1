// SPDX-License-Identifier: Apache-2.0
// Bulk copies from global to shared memory by the copy engine of the SM (1-D TMA), and the mbarriers that tell when
// the bytes are there. sm_90 and newer; on older targets the functions compile to nothing and are never called.
#pragma once

#include <cstdint>

namespace ek {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define EK_TMA_ASM(...) asm volatile(__VA_ARGS__)
constexpr bool kHasTma = true;
#else
#define EK_TMA_ASM(...)
constexpr bool kHasTma = false;
#endif

__device__ __forceinline__ uint32_t smem_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// One thread initialises the barriers, then calls mbarrier_fence(), then the block synchronises.
__device__ __forceinline__ void mbarrier_init([[maybe_unused]] uint64_t* barrier, [[maybe_unused]] uint32_t arrivals) {
  EK_TMA_ASM("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(smem_address(barrier)), "r"(arrivals) : "memory");
}
__device__ __forceinline__ void mbarrier_fence() {
  EK_TMA_ASM("fence.mbarrier_init.release.cluster;\nfence.proxy.async.shared::cta;" :: : "memory");
}

// Arrive, and let the phase end only when `bytes` have been copied too.
__device__ __forceinline__ void mbarrier_expect([[maybe_unused]] uint64_t* barrier, [[maybe_unused]] uint32_t bytes) {
  EK_TMA_ASM("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(smem_address(barrier)),
             "r"(bytes) : "memory");
}

// Wait for the end of the phase of this parity: 0 for the first phase, then 1, 0, 1 ...
__device__ __forceinline__ void mbarrier_wait([[maybe_unused]] uint64_t* barrier, [[maybe_unused]] uint32_t parity) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  uint32_t done = 0;
  while (!done)
    asm volatile(
        "{\n.reg .pred p;\n"
        "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n}"
        : "=r"(done)
        : "r"(smem_address(barrier)), "r"(parity)
        : "memory");
#endif
}

// Copies `bytes` (a multiple of 16; both sides 16-byte aligned); the barrier counts them. One thread issues it.
__device__ __forceinline__ void bulk_load([[maybe_unused]] void* smem, [[maybe_unused]] const void* global,
                                          [[maybe_unused]] uint32_t bytes, [[maybe_unused]] uint64_t* barrier) {
  EK_TMA_ASM("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                 smem_address(smem)),
             "l"(global), "r"(bytes), "r"(smem_address(barrier)) : "memory");
}

#undef EK_TMA_ASM

}  // namespace ek
