// SPDX-License-Identifier: Apache-2.0
// What gemm_cublaslt_cuda.cpp calls of cuBLASLt (12 and 13), found in the process or by dlopen: never linked, so that the
// library is no dependency. Values and sizes are those of NVIDIA's documented C interface.
#pragma once

#include <cuda_runtime.h>
#include <library_types.h>

#include <cstddef>
#include <cstdint>

namespace ek::cublaslt {

using Status = int;  // 0: success
using Handle = void*;
using MatmulDesc = void*;
using Layout = void*;
using Preference = void*;

enum Compute : int { kCompute32F = 68, kCompute32FFastTf32 = 77 };
enum Operation : int32_t { kOpN = 0, kOpT = 1 };
enum MatmulAttribute : int { kTransA = 3, kTransB = 4 };
enum LayoutAttribute : int { kBatchCount = 5, kBatchStride = 6 };  // int32_t, int64_t
enum PreferenceAttribute : int {
  kMaxWorkspace = 1,      // uint64_t
  kReductionSchemes = 3,  // uint32_t: a mask of
  kMinAlignmentA = 5,     // uint32_t; B, C, D follow
};
enum ReductionScheme : uint32_t { kInPlace = 1, kInComputeType = 2, kInOutputType = 4 };

struct Algorithm {
  uint64_t data[8];
};
struct HeuristicResult {
  Algorithm algorithm;
  size_t workspace;
  Status state;
  float waves;
  int reserved[4];
};

// The functions, each named as in the library after "cublasLt".
struct Api {
  Status (*Create)(Handle*);
  Status (*MatmulDescCreate)(MatmulDesc*, int compute, cudaDataType_t scale);
  Status (*MatmulDescDestroy)(MatmulDesc);
  Status (*MatmulDescSetAttribute)(MatmulDesc, int attribute, const void*, size_t);
  Status (*MatrixLayoutCreate)(Layout*, cudaDataType_t, uint64_t rows, uint64_t columns, int64_t leading);
  Status (*MatrixLayoutDestroy)(Layout);
  Status (*MatrixLayoutSetAttribute)(Layout, int attribute, const void*, size_t);
  Status (*MatmulPreferenceCreate)(Preference*);
  Status (*MatmulPreferenceDestroy)(Preference);
  Status (*MatmulPreferenceSetAttribute)(Preference, int attribute, const void*, size_t);
  Status (*MatmulAlgoGetHeuristic)(Handle, MatmulDesc, Layout a, Layout b, Layout c, Layout d, Preference, int wanted,
                                   HeuristicResult*, int* found);
  Status (*Matmul)(Handle, MatmulDesc, const void* alpha, const void* a, Layout, const void* b, Layout,
                   const void* beta, const void* c, Layout, void* d, Layout, const Algorithm*, void* workspace, size_t,
                   cudaStream_t);
};

}  // namespace ek::cublaslt
