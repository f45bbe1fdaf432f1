// SPDX-License-Identifier: Apache-2.0
// Sums over a tile. 32 partial sums and then a tree: the error of 512 terms is that of about 20 additions, and the
// order is the same on every run. Callers add up tiles in f64.
#pragma once

#include "cpu/convert.h"

namespace ek::EK_CPU_NS {

// 16 floats, in as many registers as they take; aligned(4): loads may be unaligned.
typedef float Lanes __attribute__((vector_size(64), aligned(4), may_alias));
constexpr int64_t kLanes = 16;

// sum of term(i) for i < n; term16(i, out) sets out to the terms i ... i + 15.
template <class Term16, class Term>
EK_INLINE float sum_lanes(int64_t n, const Term16& term16, const Term& term) {
  Lanes a = {}, b = {}, t;
  int64_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
    term16(i, t);
    a += t;
    term16(i + kLanes, t);
    b += t;
  }
  a += b;
  float s[kLanes];
  __builtin_memcpy(s, &a, sizeof s);
  for (; i < n; ++i) s[i % kLanes] += term(i);
  for (int64_t width = kLanes / 2; width > 0; width /= 2)
    for (int64_t k = 0; k < width; ++k) s[k] += s[k + width];
  return s[0];
}

EK_INLINE const Lanes& lanes_at(const float* p) { return *reinterpret_cast<const Lanes*>(p); }

inline float sum(const float* v, int64_t n) {
  return sum_lanes(n, [=](int64_t i, Lanes& t) { t = lanes_at(v + i); }, [=](int64_t i) { return v[i]; });
}

inline float dot(const float* a, const float* b, int64_t n) {
  return sum_lanes(
      n, [=](int64_t i, Lanes& t) { t = lanes_at(a + i) * lanes_at(b + i); }, [=](int64_t i) { return a[i] * b[i]; });
}

// The largest |v|, as bits: in that order NaN is above infinity, so that it is never lost.
inline uint32_t max_magnitude(const float* v, int64_t n) {
  int32_t most = 0;
  for (int64_t i = 0; i < n; ++i) most = max_of(most, static_cast<int32_t>(bits_of(v[i]) & 0x7fffffffu));
  return static_cast<uint32_t>(most);
}

}  // namespace ek::EK_CPU_NS
