// SPDX-License-Identifier: Apache-2.0
// Launches by the driver, with a handle of the kernel that is asked for once. The runtime looks for it in every call, which takes
// longer than all that we do (docs/measured-facts.md).
#include <atomic>
#include <mutex>

#include "core/cuda_driver.h"
#include "core/error.h"
#include "cuda/launch.h"

namespace ek {

namespace {

struct DriverCalls {
  decltype(&cuCtxGetId) context_id = driver_call<decltype(&cuCtxGetId)>("cuCtxGetId");
  decltype(&cuLaunchKernelEx) launch = driver_call<decltype(&cuLaunchKernelEx)>("cuLaunchKernelEx");
  decltype(&cuFuncGetAttribute) attribute = driver_call<decltype(&cuFuncGetAttribute)>("cuFuncGetAttribute");
  decltype(&cuFuncSetAttribute) set_attribute = driver_call<decltype(&cuFuncSetAttribute)>("cuFuncSetAttribute");
};

// Kernels by function and context. A context's number is never used again, so nothing that is found here belongs to one that is
// gone. Only ever added to; read without a lock.
class Handles {
 public:
  CUfunction find(const void* kernel, unsigned long long context) const {
    for (size_t i = 0; i < kNear; ++i) {
      const Handle& h = at(kernel, context, i);
      const void* there = h.kernel.load(std::memory_order_acquire);
      if (!there) return nullptr;
      if (there == kernel && h.context == context) return h.function;
    }
    return nullptr;
  }
  // Where all places near its own are taken it is asked for again in every call.
  void add(const void* kernel, unsigned long long context, CUfunction function) {
    const std::lock_guard<std::mutex> lock(adding_);
    for (size_t i = 0; i < kNear; ++i) {
      Handle& h = const_cast<Handle&>(at(kernel, context, i));
      const void* there = h.kernel.load(std::memory_order_relaxed);
      if (there == kernel && h.context == context) return;  // another thread was faster
      if (there) continue;
      h.context = context;
      h.function = function;
      h.kernel.store(kernel, std::memory_order_release);
      return;
    }
  }

 private:
  struct Handle {
    std::atomic<const void*> kernel{nullptr};
    unsigned long long context = 0;
    CUfunction function = nullptr;
  };
  static constexpr size_t kSize = 1 << 14, kNear = 16;

  const Handle& at(const void* kernel, unsigned long long context, size_t i) const {
    const uint64_t mixed = (reinterpret_cast<uintptr_t>(kernel) ^ context << 40) * 0x9e3779b97f4a7c15u;
    return handles_[((mixed >> 40) + i) & (kSize - 1)];
  }

  Handle handles_[kSize];
  std::mutex adding_;
};

Handles g_handles;

const DriverCalls& driver() {
  static const DriverCalls calls;
  return calls;
}

// The kernel in the current context. One with dynamic shared memory is allowed all that an SM gives a block, once: amounts that
// follow the shape would have threads take from one another what they are about to launch with.
ek_status load(const Launch& l, const void* kernel, bool dynamic, CUfunction* function) {
  int error = cudaGetFuncBySymbol(function, kernel);
  if (error) return fail_cuda(l.context, error, "loading a kernel");
  if (!dynamic) return EK_STATUS_OK;
  int of_its_own = 0;
  error = driver().attribute(&of_its_own, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, *function);
  if (!error)
    error = driver().set_attribute(*function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                   l.device.smem_per_block - of_its_own);
  return error ? fail_cuda(l.context, error, "shared memory of a kernel") : EK_STATUS_OK;
}

}  // namespace

ek_status launch_kernel(const Launch& l, const void* kernel, const Grid& grid, void** params) {
  if (!driver().context_id || !driver().launch)
    return fail(l.context, EK_STATUS_CUDA, "kernel launch: the driver is older than CUDA 12.0");
  unsigned long long context = 0;
  int error = driver().context_id(nullptr, &context);
  if (error) {  // this thread has none yet
    error = cudaSetDevice(l.device.id.id);
    if (!error) error = driver().context_id(nullptr, &context);
    if (error) return fail_cuda(l.context, error, "making the device current");
  }
  CUfunction function = g_handles.find(kernel, context);
  if (!function) {
    if (const ek_status status = load(l, kernel, grid.smem > 0, &function)) return status;
    g_handles.add(kernel, context, function);
  }

  CUlaunchConfig config = {};
  config.gridDimX = grid.blocks.x, config.gridDimY = grid.blocks.y, config.gridDimZ = grid.blocks.z;
  config.blockDimX = grid.threads.x, config.blockDimY = grid.threads.y, config.blockDimZ = grid.threads.z;
  config.sharedMemBytes = static_cast<unsigned>(grid.smem);
  config.hStream = static_cast<CUstream>(l.stream);
  CUlaunchAttribute attributes[2];
  config.attrs = attributes;
  if ((l.flags & EK_FLAG_PDL) && l.device.target >= 90) {
    CUlaunchAttribute& a = attributes[config.numAttrs++];
    a.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    a.value.programmaticStreamSerializationAllowed = 1;
  }
  if (grid.cluster > 1) {
    CUlaunchAttribute& a = attributes[config.numAttrs++];
    a.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    a.value.clusterDim.x = static_cast<unsigned>(grid.cluster);
    a.value.clusterDim.y = 1;
    a.value.clusterDim.z = 1;
  }
  error = driver().launch(&config, function, params, nullptr);
  return error ? fail_cuda(l.context, error, "kernel launch") : EK_STATUS_OK;
}

}  // namespace ek
