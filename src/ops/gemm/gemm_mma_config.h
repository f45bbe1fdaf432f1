// SPDX-License-Identifier: Apache-2.0
// Which tile of gemm_mma.cuh a product gets, and which operands those kernels can read. Host code, without CUDA.
#pragma once

#include "ops/gemm/gemm_call.h"

namespace ek {

// An operand lies contiguous along k, or along the other dim (m of a, n of b).
enum class GemmLayout { kAlongK, kAcross, kNeither };

// `k_step`, `step`: strides along k and along the other dim, in elements; 16 bytes must be the unit of all others.
inline GemmLayout gemm_operand_layout(const Matrix& x, int64_t k_step, int64_t step, int64_t batch, ek_dtype type) {
  const int64_t unit = 16 / dtype_bytes(type);
  if (reinterpret_cast<uintptr_t>(x.data) % 16 || (batch > 1 && x.batch % unit)) return GemmLayout::kNeither;
  if (k_step == 1 && step % unit == 0) return GemmLayout::kAlongK;
  if (step == 1 && k_step % unit == 0) return GemmLayout::kAcross;
  return GemmLayout::kNeither;
}
inline GemmLayout gemm_layout_of_a(const GemmCall& c) {
  return gemm_operand_layout(c.a, c.a.col, c.a.row, c.batch, c.in);
}
inline GemmLayout gemm_layout_of_b(const GemmCall& c) {
  return gemm_operand_layout(c.b, c.b.row, c.b.col, c.batch, c.in);
}

inline const char* gemm_mma_why_not(const GemmCall& c) {
  if (gemm_layout_of_a(c) == GemmLayout::kNeither) return "rows or columns of a do not lie on 16-byte boundaries";
  if (gemm_layout_of_b(c) == GemmLayout::kNeither) return "rows or columns of b do not lie on 16-byte boundaries";
  if (c.d.col != 1 || (c.c.data && c.c.col != 1)) return "the columns of c or d are not contiguous";
  const int64_t most = (int64_t{1} << 31) - 1024;
  if (c.m > most || c.n > most || c.k > most) return "a dim is 2^31 or larger";
  if (gemm_tiles(c, 64, 64) > kGemmMaxBlocks) return "more tiles than a grid has blocks";
  return nullptr;
}

struct GemmMmaTile {
  int m, n;
  double speed;  // of a full grid, against that of the largest tile: shared memory is read less often by large ones
};
constexpr GemmMmaTile kGemmMmaTiles[] = {{128, 256, 1.0}, {128, 128, 0.9}, {64, 64, 0.55}};

// The tile that ends first if a wave of blocks fills the SMs: waves * area / speed. All tiles add in the same order, so
// that the choice, which depends on m, does not change the bits of a row.
inline int gemm_mma_tile(const GemmCall& c, const Device& device, int first) {
  int best = first;
  double least = 0;
  for (int i = first; i < 3; ++i) {
    const GemmMmaTile& t = kGemmMmaTiles[i];
    const int64_t blocks = c.batch * ((c.m + t.m - 1) / t.m) * ((c.n + t.n - 1) / t.n);
    const int64_t waves = (blocks + device.processors - 1) / device.processors;
    const double cost = static_cast<double>(waves) * t.m * t.n / t.speed;
    if (i == first || cost < least) best = i, least = cost;
  }
  return best;
}

}  // namespace ek
