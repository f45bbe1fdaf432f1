// SPDX-License-Identifier: Apache-2.0
// Tensor cores before wgmma: mma.sync, the loads of its fragments from shared memory, and asynchronous copies into it.
// ldmatrix and the f16 product exist from sm_75 on; on older targets of what came with sm_80 the functions compile to
// nothing, so that templates over them still build; nothing there calls them.
#pragma once

#include <cstdint>

#include "cuda/launch.h"
#include "cuda/tma.cuh"  // smem_address
#include "cuda/traffic.cuh"

namespace ek {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
constexpr bool kHasAsyncCopy = false;
#define EK_SM80_ASM(...)
#else
constexpr bool kHasAsyncCopy = true;
#define EK_SM80_ASM(...) asm volatile(__VA_ARGS__)
#endif

// Four 8 x 8 matrices of 16-bit elements, or 8 x 4 of 32-bit ones; lane i gives the address of row i % 8 of matrix i / 8.
// Lane l gets elements 2 (l % 4), + 1 of row l / 4 of each; transposed, the same of column l / 4 (16-bit only).
template <bool kTransposed>
__device__ __forceinline__ void ldmatrix(uint32_t (&r)[4], uint32_t smem) {
  if constexpr (kTransposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(smem)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(smem)
                 : "memory");
  }
}

// An 8 x 8 matrix of 16-bit elements, spread over the lanes as ldmatrix does it, to its transpose.
__device__ __forceinline__ uint32_t transpose_matrix(uint32_t a) {
  uint32_t d;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(d) : "r"(a));
  return d;
}

__device__ __forceinline__ uint32_t load_smem_word(uint32_t smem) {
  uint32_t word;
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(word) : "r"(smem) : "memory");
  return word;
}
__device__ __forceinline__ void load_smem(uint2& v, uint32_t smem) {
  asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(smem) : "memory");
}
__device__ __forceinline__ void load_smem(uint4& v, uint32_t smem) {
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(smem)
               : "memory");
}
__device__ __forceinline__ void store_smem_word(uint32_t smem, uint32_t v) {
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(smem), "r"(v) : "memory");
}
__device__ __forceinline__ void store_smem(uint32_t smem, uint4 v) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(smem), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
               : "memory");
}

// 16 bytes to shared memory, of which the first `bytes` come from `global` and the rest are zeros. Around L1: tiles are
// shared between blocks, not within one.
__device__ __forceinline__ void copy_async([[maybe_unused]] uint32_t smem, [[maybe_unused]] const void* global,
                                           [[maybe_unused]] uint32_t bytes) {
  EK_SM80_ASM("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(smem), "l"(global), "r"(bytes) : "memory");
}
// The same for one word, or a zero.
__device__ __forceinline__ void copy_async_word([[maybe_unused]] uint32_t smem, [[maybe_unused]] const void* global,
                                                [[maybe_unused]] bool exists) {
  EK_SM80_ASM("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(smem), "l"(global), "r"(exists ? 4 : 0) : "memory");
}
// 4, 8 or 16 bytes that are read once, or zeros; asks L2 for lines of 128 bytes. Before sm_80 it waits for them.
template <int kBytes>
__device__ __forceinline__ void copy_once(uint32_t smem, const void* global, bool exists) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#pragma unroll
  for (int i = 0; i < kBytes; i += 4) {
    int32_t v = 0;
    load_word(v, static_cast<const int32_t*>(global) + i / 4, exists);
    store_smem_word(smem + i, v);
  }
#else
  const uint32_t bytes = exists ? kBytes : 0;
  if constexpr (kBytes == 16)
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(smem), "l"(global), "r"(bytes)
                 : "memory");
  else
    asm volatile("cp.async.ca.shared.global.L2::128B [%0], [%1], %3, %2;" ::"r"(smem), "l"(global), "r"(bytes),
                 "n"(kBytes)
                 : "memory");
#endif
}
// Copies since the last commit become a group; copy_wait<n> returns when all but the last n groups of this thread are in.
__device__ __forceinline__ void copy_commit() { EK_SM80_ASM("cp.async.commit_group;" :: : "memory"); }
template <int kPending>
__device__ __forceinline__ void copy_wait() {
  EK_SM80_ASM("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// Arrives at an mbarrier, as one of the arrivals that it was made for, once all copies of this thread so far are in.
__device__ __forceinline__ void copy_arrive([[maybe_unused]] uint64_t* barrier) {
  EK_SM80_ASM("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(smem_address(barrier)) : "memory");
}

// A barrier among `threads` threads of a block, by number from 1 on: for warps that share a stage.
__device__ __forceinline__ void warps_sync(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// Nearest TF32, ties away from zero: the hardware would drop the low bits and so be biased.
__device__ __forceinline__ uint32_t to_tf32(uint32_t x) {
  [[maybe_unused]] uint32_t y = x;
  EK_SM80_ASM("cvt.rna.tf32.f32 %0, %1;" : "=r"(y) : "f"(__uint_as_float(x)));
  return y;
}

// d += a b for a of 16 rows, b of 8 columns and 32 bytes of k: 16 elements of f16 and bf16, 8 of TF32 (T = float).
//   a: lane l holds rows l / 4 (a[0], a[2]) and l / 4 + 8 (a[1], a[3]); a[2], a[3] are the second half of k
//   b: column l / 4; b1 is the second half of k. d: columns 2 (l % 4), + 1 of row l / 4 (d[0], d[1]), of + 8 (d[2], d[3])
template <class T>
__device__ __forceinline__ void mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1);

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
template <>
__device__ __forceinline__ void mma<half>(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(b0));
  asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[2]), "r"(a[3]), "r"(b1));
}
template <class T>
__device__ __forceinline__ void mma(float (&)[4], const uint32_t (&)[4], uint32_t, uint32_t) {}
#else
#define EK_MMA(shape_and_types, d, a, b0, b1)                                                                \
  asm("mma.sync.aligned." shape_and_types " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                                       \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1))
template <>
__device__ __forceinline__ void mma<half>(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  EK_MMA("m16n8k16.row.col.f32.f16.f16.f32", d, a, b0, b1);
}
template <>
__device__ __forceinline__ void mma<bf16>(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  EK_MMA("m16n8k16.row.col.f32.bf16.bf16.f32", d, a, b0, b1);
}
template <>
__device__ __forceinline__ void mma<float>(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  EK_MMA("m16n8k8.row.col.f32.tf32.tf32.f32", d, a, b0, b1);
}
#undef EK_MMA
#endif

#undef EK_SM80_ASM

}  // namespace ek
