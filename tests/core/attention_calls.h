// SPDX-License-Identifier: Apache-2.0
// Devices and calls of attention, for the tests of what is chosen for them.
#pragma once

#include <initializer_list>

#include "ops/attention/attention_call.h"

namespace ek {

inline Device attention_gpu(int target, int processors, int smem) {
  Device d;
  d.id = {EK_DEVICE_CUDA, 0};
  d.target = target, d.processors = processors, d.smem_per_block = smem;
  d.l2_bytes = int64_t{50} << 20;
  return d;
}
const Device kH200 = attention_gpu(90, 132, 232448), kA100 = attention_gpu(80, 108, 166912);
const Device kL40 = attention_gpu(89, 142, 101376), kT4 = attention_gpu(75, 40, 65536);

// Contiguous, in memory that nobody reads.
inline Tensor attention_tensor(ek_dtype dtype, std::initializer_list<int64_t> shape) {
  alignas(16) static char memory[16];
  Tensor t;
  t.data = memory, t.dtype = dtype;
  for (int64_t n : shape) t.shape[t.ndim++] = n;
  for (int64_t d = t.ndim - 1, step = 1; d >= 0; step *= t.shape[d--]) t.stride[d] = step;
  return t;
}

// Queries and keys of the same length, no mask.
inline AttentionArgs attention_dense(ek_dtype dtype, int64_t batch, int64_t heads, int64_t kv_heads, int64_t length,
                                     int64_t head_dim, int64_t v_dim) {
  const auto tensor = [&](int64_t h, int64_t dim) { return attention_tensor(dtype, {batch, length, h, dim}); };
  AttentionArgs a = {};
  a.q = tensor(heads, head_dim), a.y = tensor(heads, v_dim);
  a.k = tensor(kv_heads, head_dim), a.v = tensor(kv_heads, v_dim);
  a.window_left = a.window_right = -1;
  a.T = dtype, a.lead = 2, a.rows = batch * length;
  a.heads = heads, a.kv_heads = kv_heads, a.head_dim = head_dim, a.v_dim = v_dim;
  a.pages = a.batch = batch, a.page_size = a.q_len = a.max_kv = length;
  return a;
}

}  // namespace ek
