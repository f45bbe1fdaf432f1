// SPDX-License-Identifier: Apache-2.0
// One source, several instruction sets. Every <op>_cpu.cpp is compiled once for each EK_CPU_LEVEL (x86-64-v2, v3, v4;
// 0: the base of another architecture), and each build lives in its own namespace.
// NOTE: inline functions and templates that these files use must live in ek::EK_CPU_NS too, or have a template argument
// that does. Of two copies under one name the linker keeps either, and an AVX-512 copy traps on an older CPU. For the
// same reason nothing inline of std:: is used here; builtins take its place.
#pragma once

#include <cstdint>

#include "dispatch/kernel.h"

#ifndef EK_CPU_LEVEL
#error "EK_CPU_LEVEL must be 2, 3 or 4 on x86-64, 0 elsewhere"
#endif

#if EK_CPU_LEVEL == 4
#define EK_CPU_NS cpu_v4
#define EK_CPU_ROW(name) name "_v4"
#elif EK_CPU_LEVEL == 3
#define EK_CPU_NS cpu_v3
#define EK_CPU_ROW(name) name "_v3"
#elif EK_CPU_LEVEL == 2
#define EK_CPU_NS cpu_v2
#define EK_CPU_ROW(name) name "_v2"
#else
#define EK_CPU_NS cpu_base
#define EK_CPU_ROW(name) name
#endif

// For what runs once per element: a call in the loop would keep it from vectorising.
#define EK_INLINE inline __attribute__((always_inline))

namespace ek::EK_CPU_NS {

constexpr Target kCpuTarget = cpu(EK_CPU_LEVEL);

template <class T>
EK_INLINE T min_of(T a, T b) {
  return b < a ? b : a;
}
template <class T>
EK_INLINE T max_of(T a, T b) {
  return a < b ? b : a;
}
EK_INLINE int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace ek::EK_CPU_NS
