// SPDX-License-Identifier: Apache-2.0
// Vectors of up to 16 bytes: load, store, and conversion to and from f32. The one place where element types are packed.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include "cuda/launch.h"

namespace ek {

using e4m3 = __nv_fp8_e4m3;

template <class T, int N>
struct alignas(sizeof(T) * N) Vec {
  T v[N];
};

// Elements in a 16-byte access.
template <class T>
constexpr int kVec = 16 / static_cast<int>(sizeof(T));

// 1 in every element of a word.
template <class T>
constexpr uint32_t kOnes = std::is_same_v<T, bf16>   ? 0x3f803f80
                           : std::is_same_v<T, half> ? 0x3c003c00
                                                     : 0x3f800000;

// p must be aligned to the vector. Plain ld/st: outputs may alias inputs, so the read-only path is never used.
template <class T, int N>
__device__ __forceinline__ Vec<T, N> load_vec(const T* p) {
  return *reinterpret_cast<const Vec<T, N>*>(p);
}
template <class T, int N>
__device__ __forceinline__ void store_vec(T* p, const Vec<T, N>& v) {
  *reinterpret_cast<Vec<T, N>*>(p) = v;
}

// One store of 8 or 16 bytes to global memory. The compiler takes the struct of store_vec apart, and does not always put it
// together again where addresses are counted up: four stores in place of one.
template <class T, int N>
__device__ __forceinline__ void store_whole(T* p, const Vec<T, N>& v) {
  static_assert(sizeof(v) <= 16, "");
  const uint32_t* w = reinterpret_cast<const uint32_t*>(&v);
  if constexpr (sizeof(v) == 16)
    asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(p)), "r"(w[0]), "r"(w[1]),
                 "r"(w[2]), "r"(w[3])
                 : "memory");
  else if constexpr (sizeof(v) == 8)
    asm volatile("st.global.v2.b32 [%0], {%1, %2};" ::"l"(__cvta_generic_to_global(p)), "r"(w[0]), "r"(w[1])
                 : "memory");
  else
    store_vec(p, v);
}

__device__ __forceinline__ float to_float(float x) { return x; }
__device__ __forceinline__ float to_float(half x) { return __half2float(x); }
__device__ __forceinline__ float to_float(bf16 x) { return __bfloat162float(x); }

template <class T>
__device__ __forceinline__ T from_float(float x);
template <>
__device__ __forceinline__ float from_float<float>(float x) {
  return x;
}
template <>
__device__ __forceinline__ half from_float<half>(float x) {
  return __float2half_rn(x);
}
template <>
__device__ __forceinline__ bf16 from_float<bf16>(float x) {
  return __float2bfloat16_rn(x);
}
// Quantized stores: nearest even, saturating; NaN becomes 0x7f (e4m3) and 0 (i8).
template <>
__device__ __forceinline__ e4m3 from_float<e4m3>(float x) {
  e4m3 q;
  q.__x = __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3);
  return q;
}
template <>
__device__ __forceinline__ int8_t from_float<int8_t>(float x) {
  // cvt.rni.sat.s8 rounds, saturates to [-128, 127] and maps NaN to 0; -128 is kept out to stay symmetric.
  const int q = __float2int_rn(fminf(fmaxf(x, -127.f), 127.f));
  return static_cast<int8_t>(x != x ? 0 : q);
}

// Pairs are taken apart from 32-bit words: read as 16-bit elements, a vector that is kept would take a register for
// each of them, twice as many.
template <class T, int N>
__device__ __forceinline__ void unpack(const Vec<T, N>& v, float (&f)[N]) {
  if constexpr (sizeof(T) == 2 && N % 2 == 0) {
    const uint32_t* words = reinterpret_cast<const uint32_t*>(&v);
#pragma unroll
    for (int i = 0; i < N; i += 2) {
      const uint32_t word = words[i / 2];
      if constexpr (std::is_same_v<T, bf16>) {
        f[i] = __uint_as_float(word << 16);
        f[i + 1] = __uint_as_float(word & 0xffff0000u);
      } else {
        const float2 pair = __half22float2(*reinterpret_cast<const __half2*>(&word));
        f[i] = pair.x;
        f[i + 1] = pair.y;
      }
    }
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) f[i] = to_float(v.v[i]);
  }
}

// The same bits, but not to the compiler's knowledge: packed values that are converted again in each of several passes
// would otherwise be kept converted, in twice the registers. Costs no instruction.
template <int kPass, class T, int N>
__device__ __forceinline__ Vec<T, N> hidden(const Vec<T, N>& v) {
  static_assert(sizeof(v) % 4 == 0, "");
  Vec<T, N> copy = v;
#pragma unroll
  for (int i = 0; i < static_cast<int>(sizeof(v)) / 4; ++i)
    asm("// %1" : "+r"(reinterpret_cast<uint32_t*>(&copy)[i]) : "n"(kPass));
  return copy;
}

// The words of 16-bit elements again, by other instructions than unpack(): where hidden() is not enough, since ptxas too
// would rather keep what an earlier pass has converted.
template <class T, int N>
__device__ __forceinline__ void unpack_again(const Vec<T, N>& v, float (&f)[N]) {
  static_assert(sizeof(T) == 2 && N % 2 == 0, "");
  const uint32_t* words = reinterpret_cast<const uint32_t*>(&v);
#pragma unroll
  for (int i = 0; i < N; i += 2) {
    const uint32_t word = words[i / 2];
    if constexpr (std::is_same_v<T, bf16>) {
      f[i] = __uint_as_float(__byte_perm(word, 0, 0x1044));
      f[i + 1] = __uint_as_float(__byte_perm(word, 0, 0x3244));
    } else {
      const uint32_t swapped = __byte_perm(word, 0, 0x1032);
      const float2 pair = __half22float2(reinterpret_cast<const __half2&>(swapped));
      f[i] = pair.y;
      f[i + 1] = pair.x;
    }
  }
}

// Two of f16 or bf16 as the registers of matrix units hold them, the first in the low half.
template <class T>
__device__ __forceinline__ uint32_t pack_pair(float low, float high) {
  if constexpr (std::is_same_v<T, bf16>) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return reinterpret_cast<const uint32_t&>(pair);
  } else {
    const __half2 pair = __floats2half2_rn(low, high);
    return reinterpret_cast<const uint32_t&>(pair);
  }
}

template <class T>
__device__ __forceinline__ float2 unpack_pair(uint32_t pair) {
  if constexpr (std::is_same_v<T, bf16>)  // two instructions; of __bfloat1622float2 ptxas makes three
    return make_float2(__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u));
  else
    return __half22float2(reinterpret_cast<const __half2&>(pair));
}

// Sums of the elements of two words, rounded once. Of pairs also in f32 the bits would be the same.
template <class T>
__device__ __forceinline__ uint32_t add_words(uint32_t a, uint32_t b) {
  if constexpr (sizeof(T) == 4) {
    return __float_as_uint(__uint_as_float(a) + __uint_as_float(b));
  } else {
    using Pair = std::conditional_t<std::is_same_v<T, bf16>, __nv_bfloat162, __half2>;
    const Pair sum = __hadd2(reinterpret_cast<const Pair&>(a), reinterpret_cast<const Pair&>(b));
    return reinterpret_cast<const uint32_t&>(sum);
  }
}

// Four e4m3 to pairs of f16. Exact. The upper two are named in the conversion: the header's function would shift them down.
__device__ __forceinline__ void widen_e4m3(uint32_t four, uint32_t& low, uint32_t& high) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  asm("{\n.reg .b16 l, h;\nmov.b32 {l, h}, %2;\ncvt.rn.f16x2.e4m3x2 %0, l;\ncvt.rn.f16x2.e4m3x2 %1, h;\n}"
      : "=r"(low), "=r"(high)
      : "r"(four));
#else
  // The bits of e4m3, one place down in the upper byte of an f16, are the value over 2^8. NaN comes out as 480, the only one
  // that times 136.5 is infinite, and infinity times 0 is NaN.
  const auto widen = [](uint32_t two) {
    const uint32_t bits = (two & 0x80008000u) | (two >> 1 & 0x3f803f80u), factors[] = {0x5c005c00u, 0x58445844u, 0u};
    const auto pair = [](const uint32_t& x) { return reinterpret_cast<const __half2&>(x); };
    const __half2 value = __hmul2(pair(bits), pair(factors[0])), large = __hmul2(value, pair(factors[1]));
    const __half2 result = __hadd2(value, __hmul2(large, pair(factors[2])));
    return reinterpret_cast<const uint32_t&>(result);
  };
  low = widen(__byte_perm(four, 0, 0x1404)), high = widen(__byte_perm(four, 0, 0x3424));
#endif
}

// Pairs convert in one instruction, so 2-byte and e4m3 vectors are packed two at a time.
template <class T, int N>
__device__ __forceinline__ Vec<T, N> pack(const float (&f)[N]) {
  Vec<T, N> v;
  if constexpr (sizeof(T) == 2 && N % 2 == 0) {
#pragma unroll
    for (int i = 0; i < N; i += 2) {
      if constexpr (std::is_same_v<T, bf16>) {
        *reinterpret_cast<__nv_bfloat162*>(&v.v[i]) = __floats2bfloat162_rn(f[i], f[i + 1]);
      } else {
        *reinterpret_cast<__half2*>(&v.v[i]) = __floats2half2_rn(f[i], f[i + 1]);
      }
    }
  } else if constexpr (std::is_same_v<T, e4m3> && N % 2 == 0) {
#pragma unroll
    for (int i = 0; i < N; i += 2) {
      const __nv_fp8x2_storage_t pair =
          __nv_cvt_float2_to_fp8x2(make_float2(f[i], f[i + 1]), __NV_SATFINITE, __NV_E4M3);
      *reinterpret_cast<__nv_fp8x2_storage_t*>(&v.v[i]) = pair;
    }
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) v.v[i] = from_float<T>(f[i]);
  }
  return v;
}

}  // namespace ek
