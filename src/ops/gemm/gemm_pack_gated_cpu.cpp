// SPDX-License-Identifier: Apache-2.0
// gemm_pack_gated on the CPU: b[:, 2 j] = gate[:, j], b[:, 2 j + 1] = up[:, j]. Bits are copied, by size.
#include "cpu/parallel.h"
#include "dispatch/ops_gen.h"

namespace ek::EK_CPU_NS {
namespace {

// Tiles of 64 x 64: with strides that run across each other, lines of all three tensors stay in the cache.
constexpr int64_t kSide = 64;

// y[i * step] = x[i * from]
template <class Bits>
void copy_line(const Bits* x, int64_t from, Bits* y, int64_t step, int64_t n) {
  if (from == 1 && step == 1)
    __builtin_memcpy(y, x, n * sizeof(Bits));
  else
    for (int64_t i = 0; i < n; ++i) y[i * step] = x[i * from];
}

template <class Bits>
void pack_tile(const GemmPackGatedArgs& a, int64_t row, int64_t column) {
  const int64_t rows = min_of(a.k - row, kSide), columns = min_of(a.n - column, kSide);
  const int64_t *g = a.gate.stride, *u = a.up.stride, *s = a.b.stride;
  const Bits* gate = static_cast<const Bits*>(a.gate.data) + row * g[0] + column * g[1];
  const Bits* up = static_cast<const Bits*>(a.up.data) + row * u[0] + column * u[1];
  Bits* b = static_cast<Bits*>(a.b.data) + row * s[0] + 2 * column * s[1];
  if (s[0] < s[1]) {
    for (int64_t j = 0; j < columns; ++j) {
      copy_line(gate + j * g[1], g[0], b + 2 * j * s[1], s[0], rows);
      copy_line(up + j * u[1], u[0], b + (2 * j + 1) * s[1], s[0], rows);
    }
  } else {
    for (int64_t i = 0; i < rows; ++i) {
      copy_line(gate + i * g[0], g[1], b + i * s[0], 2 * s[1], columns);
      copy_line(up + i * u[0], u[1], b + i * s[0] + s[1], 2 * s[1], columns);
    }
  }
}

ek_status gemm_pack_gated_cpu(const GemmPackGatedArgs& a, const Launch&) {
  const int64_t across = ceil_div(a.n, kSide), tiles = ceil_div(a.k, kSide) * across;
  parallel_for(tiles, grain_of(kSide * kSide), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const int64_t row = t / across * kSide, column = t % across * kSide;
      if (a.T == EK_DTYPE_F32)
        pack_tile<uint32_t>(a, row, column);
      else
        pack_tile<uint16_t>(a, row, column);
    }
  });
  return EK_STATUS_OK;
}

}  // namespace

const Kernel<GemmPackGatedArgs> kGemmPackGatedCpu[] = {
    {EK_CPU_ROW("gemm_pack_gated_cpu"), kCpuTarget, nullptr, gemm_pack_gated_cpu}, {}};

}  // namespace ek::EK_CPU_NS
