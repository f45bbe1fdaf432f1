// SPDX-License-Identifier: Apache-2.0
// The matrix units of sm_90a for a warpgroup (128 threads): operand descriptors, ordering, registers. The instruction
// itself is in wgmma_gen.cuh. Everything here compiles to nothing for other targets.
//
// Tiles in shared memory are what a TMA copy with a swizzle of 128 bytes leaves there, 1024-byte aligned:
//   contiguous along k:       [rows][64 of k], 128 bytes a row
//   contiguous along m or n:  blocks of 64 of m or n, each [64 of k][64], 128 bytes a row of k
#pragma once

#include <cstdint>

#include "cuda/launch.h"
#include "cuda/tma.cuh"
#include "cuda/wgmma_gen.cuh"

// wgmma and setmaxnreg exist in sm_90a code only, not in sm_90 and not in later targets.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL) || (defined(__CUDA_ARCH_SPECIFIC__) && __CUDA_ARCH_SPECIFIC__ == 900)
#define EK_HAS_WGMMA 1
#define EK_WGMMA_ASM(...) asm volatile(__VA_ARGS__)
#else
#define EK_HAS_WGMMA 0
#define EK_WGMMA_ASM(...)
#endif

namespace ek {

constexpr int kSwizzleBytes = 128;
constexpr int kTileK = 64;  // elements of k in a tile: one row of the swizzle

// Descriptor of a tile: address, the step between blocks of 64 of m or n, the step between groups of 8 rows, swizzle.
__device__ __forceinline__ uint64_t wgmma_descriptor(uint32_t smem, uint32_t block_bytes) {
  constexpr uint64_t kSwizzle128 = uint64_t{1} << 62;
  constexpr uint64_t kGroupBytes = 8 * kSwizzleBytes;
  return kSwizzle128 | (kGroupBytes >> 4) << 32 | static_cast<uint64_t>(block_bytes >> 4) << 16 | (smem & 0x3ffff) >> 4;
}
// What to add to a descriptor for the next 16 of k: 32 bytes along a row, or 16 rows further down.
template <bool kAlongK>
constexpr uint64_t kWgmmaStepK = (kAlongK ? 32 : 16 * kSwizzleBytes) >> 4;

// Before the first wgmma after registers of d were touched.
__device__ __forceinline__ void wgmma_fence() { EK_WGMMA_ASM("wgmma.fence.sync.aligned;" :: : "memory"); }
__device__ __forceinline__ void wgmma_commit() { EK_WGMMA_ASM("wgmma.commit_group.sync.aligned;" :: : "memory"); }
// Waits until at most kPending committed groups are still running.
template <int kPending>
__device__ __forceinline__ void wgmma_wait() {
  EK_WGMMA_ASM("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}
// Keeps the compiler from moving its own use of a register across a running wgmma.
__device__ __forceinline__ void wgmma_hold([[maybe_unused]] float& x) { EK_WGMMA_ASM("" : "+f"(x)::"memory"); }

// A value that the compiler must compute here: it would else compute addresses ahead of the main loop and hold them there.
__device__ __forceinline__ int computed_here(int x) {
  asm volatile("" : "+r"(x));
  return x;
}

// Registers of this warpgroup from here on.
template <int kRegisters>
__device__ __forceinline__ void registers_give() {
  EK_WGMMA_ASM("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void registers_take() {
  EK_WGMMA_ASM("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// Four 8x8 matrices of 16-bit elements between registers and shared memory; every lane gives the address of one row.
__device__ __forceinline__ void stmatrix_x4([[maybe_unused]] uint32_t smem, [[maybe_unused]] const uint32_t (&r)[4]) {
  EK_WGMMA_ASM("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(smem), "r"(r[0]), "r"(r[1]),
               "r"(r[2]), "r"(r[3]) : "memory");
}

// The same with each matrix transposed on the way.
__device__ __forceinline__ void stmatrix_x4_trans([[maybe_unused]] uint32_t smem,
                                                  [[maybe_unused]] const uint32_t (&r)[4]) {
  EK_WGMMA_ASM("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(smem), "r"(r[0]),
               "r"(r[1]), "r"(r[2]), "r"(r[3]) : "memory");
}

// Barriers among `threads` threads of a block, by number; 0 is __syncthreads.
__device__ __forceinline__ void barrier_sync([[maybe_unused]] int id, [[maybe_unused]] int threads) {
  EK_WGMMA_ASM("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
__device__ __forceinline__ void barrier_arrive([[maybe_unused]] int id, [[maybe_unused]] int threads) {
  EK_WGMMA_ASM("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

#undef EK_WGMMA_ASM

}  // namespace ek
