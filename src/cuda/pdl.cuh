// SPDX-License-Identifier: Apache-2.0
// Programmatic dependent launch. Both calls do nothing when the kernel was launched without the attribute, and on GPUs
// before sm_90.
#pragma once

namespace ek {

// Wait until the kernels before this one have finished and their writes are visible.
// NOTE: every thread block must call it, even one with nothing to do: a kernel further down the stream takes the end of
// this kernel as proof that all earlier ones have ended too.
__device__ __forceinline__ void pdl_wait() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Let the next kernel's blocks be scheduled; they still wait for our end in their pdl_wait().
__device__ __forceinline__ void pdl_launch() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

}  // namespace ek
