// SPDX-License-Identifier: Apache-2.0
// Launching a kernel from a row: grid, cluster, PDL attribute, error capture (core/cuda_launch.cpp). Host code.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <atomic>

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
  size_t smem = 0;  // dynamic bytes; more than 48 KB needs allow_smem() first
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

// Before the launch of a kernel with more than 48 KB of dynamic shared memory.
template <class Kernel>
ek_status allow_smem(const Launch& l, Kernel* kernel, size_t bytes) {
  const cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
  return error == cudaSuccess ? EK_STATUS_OK : fail_cuda(l.context, error, "shared memory of a kernel");
}
// The same for one that always takes as much, or (0) up to all that there is: the driver is asked once for each device.
template <auto kKernel, size_t kBytes = 0>
ek_status allow_smem(const Launch& l) {
  static std::atomic<uint64_t> allowed{0};
  const int id = l.device.id.id;
  const uint64_t bit = id < 64 ? uint64_t{1} << id : 0;
  if (allowed.load(std::memory_order_relaxed) & bit) return EK_STATUS_OK;
  const ek_status status = allow_smem(l, kKernel, kBytes ? kBytes : l.device.smem_per_block);
  if (status == EK_STATUS_OK) allowed.fetch_or(bit, std::memory_order_relaxed);
  return status;
}

// Blocks for `work` items, `per_block` each, as a grid-stride launch: never more than the x limit of a grid.
inline unsigned grid_blocks(int64_t work, int64_t per_block) {
  const int64_t blocks = (work + per_block - 1) / per_block;
  return static_cast<unsigned>(blocks < 1 ? 1 : blocks > 0x7fffffff ? 0x7fffffff : blocks);
}

}  // namespace ek
