// SPDX-License-Identifier: Apache-2.0
// Storage types and their conversion to and from f32: round to nearest even; NaN, infinities and denormals are kept.
// Branch-free integer code on purpose: it vectorises for every instruction set, and does not care whether the thread
// flushes denormals.
#pragma once

#include "cpu/isa.h"

namespace ek::EK_CPU_NS {

using f32 = float;
struct f16 {
  uint16_t bits;
};
struct bf16 {
  uint16_t bits;
};
struct e4m3 {
  uint8_t bits;
};
struct i8 {
  int8_t value;
};

EK_INLINE uint32_t bits_of(float x) {
  uint32_t u;
  __builtin_memcpy(&u, &x, 4);
  return u;
}
EK_INLINE float float_of(uint32_t u) {
  float x;
  __builtin_memcpy(&x, &u, 4);
  return x;
}

EK_INLINE float to_f32(f32 x) { return x; }
EK_INLINE float to_f32(bf16 x) { return float_of(static_cast<uint32_t>(x.bits) << 16); }
EK_INLINE float to_f32(f16 x) {
  const uint32_t u = (x.bits & 0x7fffu) << 13;                       // exponent and mantissa in their f32 places
  const float small = float_of(u + (113u << 23)) - 0x1p-14f;         // denormal: an exact subtraction normalises it
  const uint32_t bias = u >= (31u << 23) ? 224u << 23 : 112u << 23;  // inf and NaN go up to exponent 255
  const uint32_t magnitude = u < (1u << 23) ? bits_of(small) : u + bias;
  return float_of(magnitude | (x.bits & 0x8000u) << 16);
}
EK_INLINE float to_f32(e4m3 x) {
  const uint32_t u = (x.bits & 0x7fu) << 20;
  const float small = float_of(u + (121u << 23)) - 0x1p-6f;
  uint32_t magnitude = u < (1u << 23) ? bits_of(small) : u + (120u << 23);
  magnitude = (x.bits & 0x7fu) == 0x7fu ? 0x7fc00000u : magnitude;
  return float_of(magnitude | (x.bits & 0x80u) << 24);
}
EK_INLINE float to_f32(i8 x) { return x.value; }

// Drop the low `shift` bits of u, to nearest, ties to even.
EK_INLINE uint32_t round_bits(uint32_t u, int shift) { return u + (1u << (shift - 1)) - 1 + ((u >> shift) & 1); }

EK_INLINE void from_f32(float x, f32& y) { y = x; }
EK_INLINE void from_f32(float x, bf16& y) {
  const uint32_t u = bits_of(x);
  const uint32_t nan = u >> 16 | 0x40u;  // stays a NaN even where its payload is in the bits that are dropped
  y.bits = static_cast<uint16_t>((u & 0x7fffffffu) > 0x7f800000u ? nan : round_bits(u, 16) >> 16);
}
EK_INLINE void from_f32(float x, f16& y) {
  const uint32_t u = bits_of(x) & 0x7fffffffu, sign = bits_of(x) >> 16 & 0x8000u;
  // Adding 0.5 leaves multiples of 2^-24, the f16 denormal step, in the low bits: rounded by the addition itself.
  const uint32_t small = bits_of(float_of(u) + 0.5f) - bits_of(0.5f);
  const uint32_t normal = (round_bits(u, 13) - (112u << 23)) >> 13;
  uint32_t magnitude = u < (113u << 23) ? small : normal;
  magnitude = u >= bits_of(65520.f) ? 0x7c00u : magnitude;
  magnitude = u > 0x7f800000u ? 0x7e00u : magnitude;
  y.bits = static_cast<uint16_t>(magnitude | sign);
}
// Saturates at 448; NaN is 0x7f.
EK_INLINE void from_f32(float x, e4m3& y) {
  const uint32_t u = bits_of(x) & 0x7fffffffu, sign = bits_of(x) >> 24 & 0x80u;
  const uint32_t small = bits_of(float_of(u) + 0x1p14f) - bits_of(0x1p14f);  // multiples of 2^-9
  const uint32_t normal = (round_bits(u, 20) - (120u << 23)) >> 20;
  uint32_t magnitude = u < (121u << 23) ? small : normal;
  magnitude = u >= bits_of(448.f) ? 0x7eu : magnitude;
  y.bits = static_cast<uint8_t>(u > 0x7f800000u ? 0x7fu : magnitude | sign);
}
// Clamped to +-127; NaN is 0.
EK_INLINE void from_f32(float x, i8& y) {
  x = x != x ? 0.f : x;
  x = x > 127.f ? 127.f : x;
  x = x < -127.f ? -127.f : x;
  const float magic = 12582912.f;  // 1.5 * 2^23: the sum has a step of 1, the integer is in its low bits
  y.value = static_cast<int8_t>(bits_of(x + magic) - bits_of(magic));
}

// Elements that a kernel holds in f32 at a time, in a buffer on the stack: small enough for the L1 cache three times
// over, large enough that a call per tile costs nothing.
constexpr int64_t kTile = 512;

// n rounded up to whole vectors of any level. A loop over padded(n) has no scalar remainder, which would be slow, and
// could fuse multiply-adds differently: an element's bits must not depend on its place in a tile.
EK_INLINE int64_t padded(int64_t n) { return (n + 15) & ~int64_t{15}; }

// Columns to f32. dst has room for padded(n) elements; those past n are set to 0.
template <class T>
void load(const T* __restrict src, int64_t n, float* __restrict dst) {
  for (int64_t i = 0; i < n; ++i) dst[i] = to_f32(src[i]);
  for (int64_t i = n; i < padded(n); ++i) dst[i] = 0.f;
}
template <class T>
void store(const float* __restrict src, int64_t n, T* __restrict dst) {
  for (int64_t i = 0; i < n; ++i) from_f32(src[i], dst[i]);
}

#if defined(__F16C__)
// x86-64-v3 converts 8 at a time. Builtins, as the intrinsics' header would double the time to compile.
typedef short Half8 __attribute__((vector_size(16)));
typedef float Float8 __attribute__((vector_size(32)));

EK_INLINE void load8(const f16* src, float* dst) {
  Half8 h;
  __builtin_memcpy(&h, src, 16);
  const Float8 v = __builtin_ia32_vcvtph2ps256(h);
  __builtin_memcpy(dst, &v, 32);
}
EK_INLINE void store8(const float* src, f16* dst) {
  Float8 v;
  __builtin_memcpy(&v, src, 32);
  const Half8 h = __builtin_ia32_vcvtps2ph256(v, 0);  // 0: to nearest even
  __builtin_memcpy(dst, &h, 16);
}

template <>
inline void load(const f16* __restrict src, int64_t n, float* __restrict dst) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) load8(src + i, dst + i);
  if (i < n) {
    f16 rest[8] = {};
    __builtin_memcpy(rest, src + i, (n - i) * sizeof(f16));
    load8(rest, dst + i);
    i += 8;
  }
  for (; i < padded(n); ++i) dst[i] = 0.f;
}
template <>
inline void store(const float* __restrict src, int64_t n, f16* __restrict dst) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) store8(src + i, dst + i);
  if (i < n) {
    float last[8] = {};
    f16 rest[8];
    __builtin_memcpy(last, src + i, (n - i) * sizeof(float));
    store8(last, rest);
    __builtin_memcpy(dst + i, rest, (n - i) * sizeof(f16));
  }
}
#endif

template <class T>
struct Type {
  using type = T;
};

// Calls f(Type<T>()) for the T that the dtype names.
template <class F>
EK_INLINE void with_float(ek_dtype dtype, const F& f) {
  if (dtype == EK_DTYPE_F32) return f(Type<f32>());
  if (dtype == EK_DTYPE_F16) return f(Type<f16>());
  return f(Type<bf16>());
}
template <class F>
EK_INLINE void with_quant(ek_dtype dtype, const F& f) {
  if (dtype == EK_DTYPE_E4M3) return f(Type<e4m3>());
  return f(Type<i8>());
}

template <class T>
EK_INLINE T* data_of(const Tensor& t) {
  return static_cast<T*>(t.data);
}

}  // namespace ek::EK_CPU_NS
