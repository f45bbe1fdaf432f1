// SPDX-License-Identifier: Apache-2.0
// Sums over a tile. 32 partial sums and then a tree: the error of 512 terms is that of about 20 additions, and the
// order is the same on every run. Callers add up tiles in f64.
#pragma once

#include "cpu/convert.h"

namespace ek::EK_CPU_NS {

// One vector register.
#if EK_CPU_LEVEL == 4
constexpr int kVectorBytes = 64;
#elif EK_CPU_LEVEL == 3
constexpr int kVectorBytes = 32;
#else
constexpr int kVectorBytes = 16;
#endif
// aligned(4): loads need no alignment.
typedef float Vector __attribute__((vector_size(kVectorBytes), aligned(4), may_alias));

constexpr int kSums = 32;  // of partial sums: enough to hide the latency of an addition, the same for every level
constexpr int kVectorFloats = kVectorBytes / 4, kVectors = kSums / kVectorFloats;

EK_INLINE const Vector& vector_at(const float* p) { return *reinterpret_cast<const Vector*>(p); }

// The sum of the partial sums, after the terms i < rest that filled no whole round were added by `term`.
template <class Term>
EK_INLINE float finish_sum(const Vector (&sums)[kVectors], int64_t rest, const Term& term) {
  float s[kSums];
  __builtin_memcpy(s, sums, sizeof s);
  for (int64_t i = 0; i < rest; ++i) s[i] += term(i);
  for (int width = kSums / 2; width > 0; width /= 2)
    for (int k = 0; k < width; ++k) s[k] += s[k + width];
  return s[0];
}

inline float sum(const float* v, int64_t n) {
  Vector sums[kVectors] = {};
  for (; n >= kSums; n -= kSums, v += kSums)
    for (int k = 0; k < kVectors; ++k) sums[k] += vector_at(v + k * kVectorFloats);
  return finish_sum(sums, n, [=](int64_t i) { return v[i]; });
}

inline float dot(const float* a, const float* b, int64_t n) {
  Vector sums[kVectors] = {};
  for (; n >= kSums; n -= kSums, a += kSums, b += kSums)
    for (int k = 0; k < kVectors; ++k) sums[k] += vector_at(a + k * kVectorFloats) * vector_at(b + k * kVectorFloats);
  return finish_sum(sums, n, [=](int64_t i) { return a[i] * b[i]; });
}

// The largest |v|, as bits: in that order NaN is above infinity, so that it is never lost.
inline uint32_t max_magnitude(const float* v, int64_t n) {
  int32_t most = 0;
  for (int64_t i = 0; i < n; ++i) most = max_of(most, static_cast<int32_t>(bits_of(v[i]) & 0x7fffffffu));
  return static_cast<uint32_t>(most);
}

}  // namespace ek::EK_CPU_NS
