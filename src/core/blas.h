// SPDX-License-Identifier: Apache-2.0
// The BLAS library of the process, if there is one. It is not linked: whoever has none needs none.
#pragma once

namespace ek {

// cblas_sgemm with 32-bit integers; order, trans_a and trans_b are CBLAS's enums.
using CblasSgemm = void (*)(int order, int trans_a, int trans_b, int m, int n, int k, float alpha, const float* a,
                            int lda, const float* b, int ldb, float beta, float* c, int ldc);
constexpr int kCblasRowMajor = 101, kCblasNoTrans = 111, kCblasTrans = 112;

// nullptr where no library is found. The first call loads it, which starts its threads. How many, what happens to them
// in a fork and whether its sums repeat bit for bit are its own business.
CblasSgemm find_sgemm();

}  // namespace ek
