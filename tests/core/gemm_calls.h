// SPDX-License-Identifier: Apache-2.0
// A device and calls of products, for the tests of what is chosen for them.
#pragma once

#include "ops/gemm/gemm_call.h"

namespace ek {

inline Device h200() {
  Device d;
  d.id = {EK_DEVICE_CUDA, 0};
  d.target = 90;
  d.processors = 132;
  return d;
}

alignas(16) inline char g_memory[16];

// a [m, k] and b [k, n], both contiguous along k, as in a linear layer.
inline GemmCall linear(int64_t m, int64_t n, int64_t k) {
  GemmCall c;
  c.in = c.out = EK_DTYPE_BF16;
  c.m = m;
  c.n = c.n_out = n;
  c.k = k;
  c.a = {g_memory, (k + 7) / 8 * 8, 1, 0};
  c.b = {g_memory, 1, (k + 7) / 8 * 8, 0};
  c.d = {g_memory, (n + 7) / 8 * 8, 1, 0};
  return c;
}

}  // namespace ek
