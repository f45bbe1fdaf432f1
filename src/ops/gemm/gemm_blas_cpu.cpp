// SPDX-License-Identifier: Apache-2.0
// f32 products by the process's BLAS library (core/blas.h). It promises nothing: how a library cuts k and among how many
// threads depends on the library, on m and on the load.
#include "core/blas.h"
#include "cpu/parallel.h"
#include "ops/gemm/gemm_cpu.h"

namespace ek::EK_CPU_NS {
namespace {

// From here on OpenBLAS is faster than gemm_run_cpu (docs/measured-facts.md: 0.9 x at 256^3, 1.2 x at 1536^3, 0.8 x at
// 16 x 4096 x 4096).
constexpr int64_t kFrom = int64_t{1} << 27, kLeastSide = 64;

bool fits(int64_t n) { return n <= INT32_MAX; }
// A matrix that BLAS can describe: one stride is 1, the other a leading dimension of at least `rows` or `columns`.
bool by_rows(const Matrix& x, int64_t columns) {
  return x.col == 1 && x.row >= max_of<int64_t>(columns, 1) && fits(x.row);
}
bool by_columns(const Matrix& x, int64_t rows) { return by_rows({x.data, x.col, x.row, x.batch}, rows); }

}  // namespace

const char* gemm_blas_why_not(const GemmCall& call) {
  if (call.in != EK_DTYPE_F32) return "not f32";
  if (!call.plain() || call.out_scale != 1.f) return "bias, activation, gate or scale";
  // BLAS does not read a and b for an alpha of 0, and would lose their NaN.
  if (call.alpha == 0.f || call.k == 0) return "alpha or k is 0";
  if (call.m * call.n < ceil_div(kFrom, call.k)) return "fewer than 2^27 multiplications: too few for a BLAS to gain";
  if (call.m < kLeastSide || call.n < kLeastSide) return "fewer than 64 rows or columns: too few for a BLAS to gain";
  if (!fits(call.m) || !fits(call.n) || !fits(call.k)) return "a dimension beyond 32 bits";
  if (!by_rows(call.a, call.k) && !by_columns(call.a, call.m)) return "a is neither row- nor column-major";
  if (!by_rows(call.b, call.n) && !by_columns(call.b, call.k)) return "b is neither row- nor column-major";
  if (!by_rows(call.d, call.n)) return "d is neither row- nor column-major";
  if (!find_sgemm()) return "no BLAS library is found (libopenblas.so.0, libblis.so, libmkl_rt.so.2, libcblas.so.3)";
  return nullptr;
}

ek_status gemm_blas_run(const GemmCall& call) {
  const float *a = static_cast<const float*>(call.a.data), *b = static_cast<const float*>(call.b.data);
  const float* c = static_cast<const float*>(call.c.data);
  float* d = static_cast<float*>(call.d.data);
  if (call.beta != 0.f && c != d) {
    // BLAS reads c where it writes d.
    parallel_for(call.batch * call.m, grain_of(call.n), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const int64_t item = r / call.m, row = r % call.m;
        const float* from = c + item * call.c.batch + row * call.c.row;
        float* to = d + item * call.d.batch + row * call.d.row;
        for (int64_t j = 0; j < call.n; ++j) to[j] = from[j * call.c.col];
      }
    });
  }
  const bool a_rows = by_rows(call.a, call.k), b_rows = by_rows(call.b, call.n);
  for (int64_t i = 0; i < call.batch; ++i)
    find_sgemm()(kCblasRowMajor, a_rows ? kCblasNoTrans : kCblasTrans, b_rows ? kCblasNoTrans : kCblasTrans,
                 static_cast<int>(call.m), static_cast<int>(call.n), static_cast<int>(call.k), call.alpha,
                 a + i * call.a.batch, static_cast<int>(a_rows ? call.a.row : call.a.col), b + i * call.b.batch,
                 static_cast<int>(b_rows ? call.b.row : call.b.col), call.beta, d + i * call.d.batch,
                 static_cast<int>(call.d.row));
  return EK_STATUS_OK;
}

}  // namespace ek::EK_CPU_NS
