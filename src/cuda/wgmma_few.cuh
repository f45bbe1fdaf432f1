// SPDX-License-Identifier: Apache-2.0
// wgmma with its first operand in registers, as WgmmaRs, and few columns: d[64, N] = a[64, 16] b[16, N] + (scale_d ? d : 0), b along k.
#pragma once

#include "cuda/vec.cuh"
#include "cuda/wgmma.cuh"

namespace ek {

template <class T, int N>
struct WgmmaFew {
  static __device__ __forceinline__ void mma(float (&d)[N / 2], const uint32_t (&a)[4], uint64_t b, int scale_d) {
    WgmmaRs<T, N, 0>::mma(d, a, b, scale_d);
  }
};

#define EK_FOUR(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
// kD, kA, kB and kScale: the operands' places in the instruction.
#define EK_WGMMA_FEW(T, kType, N, kD, kA, kB, kScale, ...)                                                           \
  template <>                                                                                                        \
  struct WgmmaFew<T, N> {                                                                                            \
    static __device__ __forceinline__ void mma([[maybe_unused]] float (&d)[N / 2],                                   \
                                               [[maybe_unused]] const uint32_t (&a)[4], [[maybe_unused]] uint64_t b, \
                                               [[maybe_unused]] int scale_d) {                                       \
      EK_WGMMA_ASM("{\n.reg .pred p;\nsetp.ne.b32 p, " kScale                                                        \
                   ", 0;\n"                                                                                          \
                   "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." kType "." kType " {" kD "}, {" kA "}, " kB      \
                   ", p, 1, 1, 0;\n}" : __VA_ARGS__ : "r"(a[0]),                                                     \
                   "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(scale_d));                                           \
    }                                                                                                                \
  };
#define EK_WGMMA_FEW_WIDTHS(T, kType)                                                                           \
  EK_WGMMA_FEW(T, kType, 8, "%0, %1, %2, %3", "%4, %5, %6, %7", "%8", "%9", EK_FOUR(d, 0))                      \
  EK_WGMMA_FEW(T, kType, 16, "%0, %1, %2, %3, %4, %5, %6, %7", "%8, %9, %10, %11", "%12", "%13", EK_FOUR(d, 0), \
               EK_FOUR(d, 4))                                                                                   \
  EK_WGMMA_FEW(T, kType, 32, "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15",            \
               "%16, %17, %18, %19", "%20", "%21", EK_FOUR(d, 0), EK_FOUR(d, 4), EK_FOUR(d, 8), EK_FOUR(d, 12))

#if EK_HAS_WGMMA
#define EK_WGMMA_ASM(...) asm volatile(__VA_ARGS__)
#else
#define EK_WGMMA_ASM(...)
#endif
EK_WGMMA_FEW_WIDTHS(bf16, "bf16")
EK_WGMMA_FEW_WIDTHS(half, "f16")

// Two 8x8 matrices of 16-bit elements from registers to shared memory, each transposed on the way; lanes 0 to 15 give the rows' addresses.
__device__ __forceinline__ void stmatrix_x2_trans([[maybe_unused]] uint32_t smem, [[maybe_unused]] uint32_t first,
                                                  [[maybe_unused]] uint32_t second) {
  EK_WGMMA_ASM("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(smem), "r"(first),
               "r"(second) : "memory");
}

#undef EK_WGMMA_ASM
#undef EK_WGMMA_FEW_WIDTHS
#undef EK_WGMMA_FEW
#undef EK_FOUR

}  // namespace ek
