// SPDX-License-Identifier: Apache-2.0
// Launching a kernel from a row: grid, cluster, PDL attribute, error capture (core/cuda_launch.cpp). Host code.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "core/error.h"
#include "dispatch/kernel.h"

namespace ek {

using bf16 = __nv_bfloat16;
using half = __half;

template <class T>
struct Type {
  using type = T;
};

// Calls f(Type<float>{}), f(Type<half>{}) or f(Type<bf16>{}); the checks let no other dtype through.
template <class F>
ek_status with_float(ek_dtype dtype, F&& f) {
  if (dtype == EK_DTYPE_F32) return f(Type<float>{});
  if (dtype == EK_DTYPE_F16) return f(Type<half>{});
  return f(Type<bf16>{});
}

// The most threads that an SM of this target holds, for launch bounds.
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ == 800 || (__CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1100)
constexpr int kSmThreads = 2048;
#elif __CUDA_ARCH__ < 800
constexpr int kSmThreads = 1024;
#else
constexpr int kSmThreads = 1536;
#endif

struct Grid {
  dim3 blocks;
  dim3 threads;
  size_t smem = 0;  // dynamic bytes; a kernel that takes more than 48 KB has some in every launch
  int cluster = 1;  // blocks of a cluster along x (sm_90 and newer)
};

// Every kernel launched here calls pdl_wait() before it touches memory that another kernel may have written, in each thread
// that does or in one that the others wait for, so the PDL attribute is safe to set whenever the context asks for it.
ek_status launch_kernel(const Launch& l, const void* kernel, const Grid& grid, void** params);

template <class... Params, class... Args>
ek_status launch(const Launch& l, void (*kernel)(Params...), const Grid& grid, Args&&... args) {
  const auto with = [&](const Params&... params) {
    void* pointers[] = {const_cast<void*>(static_cast<const void*>(&params))...};
    return launch_kernel(l, reinterpret_cast<const void*>(kernel), grid, pointers);
  };
  return with(static_cast<const Params&>(args)...);
}

// Blocks for `work` items, `per_block` each, as a grid-stride launch: never more than the x limit of a grid.
inline unsigned grid_blocks(int64_t work, int64_t per_block) {
  const int64_t blocks = (work + per_block - 1) / per_block;
  return static_cast<unsigned>(blocks < 1 ? 1 : blocks > 0x7fffffff ? 0x7fffffff : blocks);
}

}  // namespace ek
