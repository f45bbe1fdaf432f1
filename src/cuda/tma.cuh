// SPDX-License-Identifier: Apache-2.0
// Copies by the copy engine of the SM (TMA): plain runs of bytes, and boxes of tensors that a tensor map describes; and the
// mbarriers that tell when the bytes are there. sm_90 and newer; on older targets the functions compile to nothing and are
// never called.
#pragma once

#include <cuda.h>

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

// True for one thread of a warp that is all here, always the same one. Copies and barriers behind it take their operands from
// registers of the warp, in a few instructions each; behind threadIdx.x == 0 the compiler loops over threads that might be
// there, which takes longer than the SM takes to load what they ask for.
__device__ __forceinline__ bool elect_one() {
  uint32_t elected = 0;
  EK_TMA_ASM("{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\nselp.u32 %0, 1, 0, p;\n}" : "=r"(elected));
  return elected != 0;
}
// The warp's number, in a register of the warp.
__device__ __forceinline__ int warp_index() { return __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x / 32), 0); }
// What all threads of a warp have, in a register of the warp: copies take their operands from there. The compiler sees it where
// nothing in a loop divides the warp; else it would loop over the threads for every copy.
__device__ __forceinline__ int warp_uniform(int x) { return __shfl_sync(0xffffffffu, x, 0); }

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

// The same without arriving: for barriers at which every lane arrives once.
__device__ __forceinline__ void mbarrier_expect_only([[maybe_unused]] uint64_t* barrier,
                                                     [[maybe_unused]] uint32_t bytes) {
  EK_TMA_ASM("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(smem_address(barrier)),
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

// How long L2 keeps what a copy brings: a policy for the copies that take one.
__device__ __forceinline__ uint64_t l2_evict_first() {
  uint64_t policy = 0;
  EK_TMA_ASM("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
__device__ __forceinline__ uint64_t l2_evict_normal() {
  uint64_t policy = 0;
  EK_TMA_ASM("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

// Copies `bytes` (a multiple of 16; both sides 16-byte aligned); the barrier counts them. One thread issues it.
__device__ __forceinline__ void bulk_load([[maybe_unused]] void* smem, [[maybe_unused]] const void* global,
                                          [[maybe_unused]] uint32_t bytes, [[maybe_unused]] uint64_t* barrier) {
  EK_TMA_ASM("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                 smem_address(smem)),
             "l"(global), "r"(bytes), "r"(smem_address(barrier)) : "memory");
}

// The same by a policy of L2's.
__device__ __forceinline__ void bulk_load([[maybe_unused]] void* smem, [[maybe_unused]] const void* global,
                                          [[maybe_unused]] uint32_t bytes, [[maybe_unused]] uint64_t* barrier,
                                          [[maybe_unused]] uint64_t policy) {
  EK_TMA_ASM(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::
          "r"(smem_address(smem)),
      "l"(global), "r"(bytes), "r"(smem_address(barrier)), "l"(policy) : "memory");
}

// ---- barriers of another block of the cluster ----------------------------------------------------------------------

// Arrives at the barrier that lies where `barrier` does, in block `rank` of the cluster. Release of the block's own scope:
// at the cluster's scope it would be a fence of the whole GPU, a microsecond each time. What is handed over here is room
// in a ring whose readers have waited for their reads to end.
__device__ __forceinline__ void mbarrier_arrive([[maybe_unused]] uint64_t* barrier, [[maybe_unused]] uint32_t rank) {
  EK_TMA_ASM(
      "{\n.reg .b32 at;\n"
      "mapa.shared::cluster.u32 at, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [at];\n}" ::"r"(smem_address(barrier)),
      "r"(rank) : "memory");
}
__device__ __forceinline__ void mbarrier_arrive([[maybe_unused]] uint64_t* barrier) {
  EK_TMA_ASM("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(smem_address(barrier)) : "memory");
}

// ---- boxes of tensors -------------------------------------------------------------------------------------------------

__device__ __forceinline__ void tma_prefetch_map([[maybe_unused]] const CUtensorMap* map) {
  EK_TMA_ASM("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

// The box at (x, y, z), x along contiguous memory, to shared memory; elements outside the tensor are 0. One thread.
__device__ __forceinline__ void tma_load([[maybe_unused]] void* smem, [[maybe_unused]] const CUtensorMap* map,
                                         [[maybe_unused]] int x, [[maybe_unused]] int y, [[maybe_unused]] int z,
                                         [[maybe_unused]] uint64_t* barrier) {
  EK_TMA_ASM(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];" ::
          "r"(smem_address(smem)),
      "l"(map), "r"(x), "r"(y), "r"(z), "r"(smem_address(barrier)) : "memory");
}
// The same by a policy of L2's.
__device__ __forceinline__ void tma_load([[maybe_unused]] void* smem, [[maybe_unused]] const CUtensorMap* map,
                                         [[maybe_unused]] int x, [[maybe_unused]] int y, [[maybe_unused]] int z,
                                         [[maybe_unused]] uint64_t* barrier, [[maybe_unused]] uint64_t policy) {
  EK_TMA_ASM(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], "
      "[%1, {%2, %3, %4}], [%5], %6;" ::"r"(smem_address(smem)),
      "l"(map), "r"(x), "r"(y), "r"(z), "r"(smem_address(barrier)), "l"(policy) : "memory");
}
// A box of a map with four dims.
__device__ __forceinline__ void tma_load([[maybe_unused]] void* smem, [[maybe_unused]] const CUtensorMap* map,
                                         [[maybe_unused]] int x, [[maybe_unused]] int y, [[maybe_unused]] int z,
                                         [[maybe_unused]] int w, [[maybe_unused]] uint64_t* barrier) {
  EK_TMA_ASM(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5}], "
      "[%6];" ::"r"(smem_address(smem)),
      "l"(map), "r"(x), "r"(y), "r"(z), "r"(w), "r"(smem_address(barrier)) : "memory");
}
// The same by a policy of L2's.
__device__ __forceinline__ void tma_load([[maybe_unused]] void* smem, [[maybe_unused]] const CUtensorMap* map,
                                         [[maybe_unused]] int x, [[maybe_unused]] int y, [[maybe_unused]] int z,
                                         [[maybe_unused]] int w, [[maybe_unused]] uint64_t* barrier,
                                         [[maybe_unused]] uint64_t policy) {
  EK_TMA_ASM(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], "
      "[%1, {%2, %3, %4, %5}], [%6], %7;" ::"r"(smem_address(smem)),
      "l"(map), "r"(x), "r"(y), "r"(z), "r"(w), "r"(smem_address(barrier)), "l"(policy) : "memory");
}
// A box of three dims into every block of the cluster whose bit is set, at the same place, counted by the barrier of each.
__device__ __forceinline__ void tma_load_multicast([[maybe_unused]] void* smem, [[maybe_unused]] const CUtensorMap* map,
                                                   [[maybe_unused]] int x, [[maybe_unused]] int y,
                                                   [[maybe_unused]] int z, [[maybe_unused]] uint64_t* barrier,
                                                   [[maybe_unused]] uint16_t blocks) {
  EK_TMA_ASM(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
      " [%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(smem_address(smem)),
      "l"(map), "r"(x), "r"(y), "r"(z), "r"(smem_address(barrier)), "h"(blocks) : "memory");
}

// The box from shared memory to the tensor; elements outside it are dropped. One thread, and it waits for its stores.
__device__ __forceinline__ void tma_store([[maybe_unused]] const CUtensorMap* map, [[maybe_unused]] const void* smem,
                                          [[maybe_unused]] int x, [[maybe_unused]] int y, [[maybe_unused]] int z) {
  EK_TMA_ASM("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(map),
             "r"(smem_address(smem)), "r"(x), "r"(y), "r"(z) : "memory");
}
// Brings bytes, a multiple of 16 from one of 16 on, to L2, whatever may still be written to them.
__device__ __forceinline__ void bulk_prefetch([[maybe_unused]] const void* global, [[maybe_unused]] uint32_t bytes) {
  EK_TMA_ASM("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(global), "r"(bytes) : "memory");
}
__device__ __forceinline__ void tma_store_commit() { EK_TMA_ASM("cp.async.bulk.commit_group;" :: : "memory"); }
// Until the shared memory of all but the last kPending commits has been read.
template <int kPending = 0>
__device__ __forceinline__ void tma_store_wait_read() {
  EK_TMA_ASM("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}

// Between ordinary stores to shared memory and a copy that reads them.
__device__ __forceinline__ void fence_async() { EK_TMA_ASM("fence.proxy.async.shared::cta;" :: : "memory"); }

#undef EK_TMA_ASM

}  // namespace ek
