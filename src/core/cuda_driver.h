// SPDX-License-Identifier: Apache-2.0
// Calls of the CUDA driver, found at run time: the library links no driver.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

namespace ek {

// Null where the driver does not have it. All that is asked for here came with CUDA 12.0 or earlier.
template <class Call>
Call driver_call(const char* name) {
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  const cudaError_t error = cudaGetDriverEntryPointByVersion(name, &entry, 12000, cudaEnableDefault, &found);
  return error == cudaSuccess && found == cudaDriverEntryPointSuccess ? reinterpret_cast<Call>(entry) : nullptr;
}

}  // namespace ek
