// SPDX-License-Identifier: Apache-2.0
// The products of the family on the CPU, for a GemmCall: gemm_cpu.cpp has the kernel of our own, gemm_blas_cpu.cpp the
// one that calls a BLAS library. Both are compiled once for each x86-64 level, like everything that includes this.
#pragma once

#include "cpu/isa.h"
#include "ops/gemm/gemm_call.h"

namespace ek::EK_CPU_NS {

// Any call. Of the same bits for any number of threads, and for a row whatever other rows there are.
ek_status gemm_run_cpu(const GemmCall& call);

// cblas_sgemm of the BLAS library that the process can load. f32, dense rows or columns, nothing but alpha and beta.
const char* gemm_blas_why_not(const GemmCall& call);
ek_status gemm_blas_run(const GemmCall& call);

// What kCall says the arguments ask for. NOTE: flatten puts gemm_call.h's functions in line: a copy of them compiled for
// one level must not become the one that every CPU runs.
template <class Args, GemmCall (*kCall)(const Args&)>
__attribute__((flatten)) GemmCall call_of(const Args& a) {
  return kCall(a);
}

// Rows of an op whose arguments are one GemmCall.
template <class Args, GemmCall (*kCall)(const Args&)>
struct GemmCpuRow {
  static ek_status run(const Args& a, const Launch&) { return gemm_run_cpu(call_of<Args, kCall>(a)); }
  static const char* blas_why_not(const Args& a, const Device&) { return gemm_blas_why_not(call_of<Args, kCall>(a)); }
  static ek_status blas_run(const Args& a, const Launch&) { return gemm_blas_run(call_of<Args, kCall>(a)); }
};

}  // namespace ek::EK_CPU_NS
