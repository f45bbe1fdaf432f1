// SPDX-License-Identifier: Apache-2.0
// A kernel that nobody runs. All .cu files are compiled for the same GPUs, so asking for this one answers for all.
#include <cuda_runtime_api.h>

#include "core/cuda_probe.h"

namespace ek {

namespace {
__global__ void probe_kernel() {}
}  // namespace

int probe_kernel_image(int* target_out) {
  cudaFuncAttributes attributes = {};
  const cudaError_t error = cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(&probe_kernel));
  *target_out = attributes.ptxVersion;
  return error;
}

}  // namespace ek
