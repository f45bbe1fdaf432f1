// SPDX-License-Identifier: Apache-2.0
// The kernels of the family, each in a file of its own, and how an op makes rows of its table from them.
#pragma once

#include "ops/gemm/gemm_call.h"

namespace ek {

// One kernel for a GemmCall. Fields as in Kernel.
struct GemmKernel {
  Target target;
  const char* (*why_not)(const GemmCall&, const Device&);
  ek_status (*run)(const GemmCall&, const Launch&);
  size_t (*workspace)(const GemmCall&, const Device&);
  uint32_t promises;
  uint32_t needs;
};

extern const GemmKernel kGemmSm90;        // gemm_sm90.cu: TMA + wgmma tiles
extern const GemmKernel kGemmSm90Split;   // gemm_sm90.cu: the same with k cut, so that all SMs have work
extern const GemmKernel kGemmSm90Swap;    // gemm_sm90.cu: few rows of a: b takes their place in wgmma
extern const GemmKernel kGemmSm90Narrow;  // gemm_sm90_narrow.cu: few rows of a, TMA + wgmma, several blocks to an SM
extern const GemmKernel kGemmSm90Skinny;  // gemm_sm90_skinny.cu: few rows of a, TMA + mma.sync
extern const GemmKernel kGemmSkinny;      // gemm_skinny.cu: few rows of a, straight into mma.sync
extern const GemmKernel kGemmGemv;        // gemm_gemv.cu: one to eight rows of a
extern const GemmKernel kGemmSm80;        // gemm_sm80.cu: mma.sync + cp.async, f16 and bf16
extern const GemmKernel kGemmSm80Tf32;    // gemm_sm80.cu: the same for f32, with EK_FLAG_TF32
extern const GemmKernel kGemmSm75;        // gemm_sm75.cu: mma.sync, f16
extern const GemmKernel kGemmCublaslt;    // gemm_cublaslt_cuda.cpp: cuBLASLt, if the process can load it
extern const GemmKernel kGemmSimt;        // gemm_simt.cu: anything

// A row of an op's table: kCall says what its arguments ask for.
template <class Args, GemmCall (*kCall)(const Args&), const GemmKernel& kKernel>
struct GemmRow {
  static const char* why_not(const Args& a, const Device& device) { return kKernel.why_not(kCall(a), device); }
  static ek_status run(const Args& a, const Launch& l) { return kKernel.run(kCall(a), l); }
  static size_t workspace(const Args& a, const Device& device) {
    return kKernel.workspace ? kKernel.workspace(kCall(a), device) : 0;
  }
  static Kernel<Args> named(const char* name) {
    return {name, kKernel.target, why_not, run, workspace, kKernel.promises, kKernel.needs};
  }
};

}  // namespace ek
