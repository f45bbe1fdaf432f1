// SPDX-License-Identifier: Apache-2.0
// Products on the CPU, and the row of gemm. A task makes a block of d, kBlockM x kBlockN: for each kBlockK of k it copies
// its parts of a and b, as f32, into panels as wide as the micro-kernel's tile, whatever their strides and dtype were,
// and multiplies panel by panel. Sums: f32 with one rounding a term (two without FMA) in order of k within kBlockK,
// then the partial sums of the blocks in order. That order is the same for every element of every product, so nothing
// depends on m, on the place in a tile or on the number of threads.
#include "ops/gemm/gemm_cpu.h"

#include <cstdlib>

#include "cpu/convert.h"
#include "cpu/math.h"
#include "cpu/parallel.h"
#include "cpu/reduce.h"
#include "ops/activation/formulas.h"

namespace ek::EK_CPU_NS {
namespace {

// The micro-kernel's tile: kTileM rows by two vectors, as many as the registers hold beside two of b and one of a.
#if EK_CPU_LEVEL == 4
constexpr int kTileM = 12;
#elif EK_CPU_LEVEL == 3
constexpr int kTileM = 6;
#else
constexpr int kTileM = 4;
#endif
constexpr int kTileN = 2 * kVectorFloats;

// b's panel of kBlockK x kTileN stays in L1 while a's go by; all of a task's panels fit half of a 1.25 MB L2. A column of
// b is packed once for kBlockM rows. Multiples of every tile; kBlockN also of a gated pair and of padded().
constexpr int64_t kBlockM = 192, kBlockN = 256, kBlockK = 256;
static_assert(kBlockM % kTileM == 0 && kBlockN % kTileN == 0 && kBlockN % 32 == 0, "blocks are whole tiles");

EK_INLINE int64_t round_up(int64_t n, int64_t to) { return ceil_div(n, to) * to; }

// What a task works in: panels of a [rows][k][kTileM] and b [columns][k][kTileN], the block's sums [kBlockM][kBlockN].
struct Scratch {
  float *a, *b, *sums;
};

// ---- packing -------------------------------------------------------------------------------------------------------

// to[p * kWidth + i] = x[i * step + p * k_step] for i < n and p < k; the panel's other columns become 0.
template <int kWidth, class T>
void pack_panel(const T* x, int64_t step, int64_t k_step, int64_t n, int64_t k, float* to) {
  if (n < kWidth)
    for (int64_t i = 0; i < k * kWidth; ++i) to[i] = 0.f;
  if (step == 1 && n == kWidth) {
    for (int64_t p = 0; p < k; ++p)
      for (int i = 0; i < kWidth; ++i) to[p * kWidth + i] = to_f32(x[p * k_step + i]);
    return;
  }
  for (int64_t i = 0; i < n; ++i) {
    const T* from = x + i * step;
    if (k_step == 1) {
      float line[kBlockK];
      load(from, k, line);
      for (int64_t p = 0; p < k; ++p) to[p * kWidth + i] = line[p];
    } else {
      for (int64_t p = 0; p < k; ++p) to[p * kWidth + i] = to_f32(from[p * k_step]);
    }
  }
}

// All panels of `n` rows of a, or columns of b.
template <int kWidth, class T>
void pack(const T* x, int64_t step, int64_t k_step, int64_t n, int64_t k, float* to) {
  for (int64_t i = 0; i < n; i += kWidth)
    pack_panel<kWidth>(x + i * step, step, k_step, min_of<int64_t>(kWidth, n - i), k, to + i * k);
}

// ---- the micro-kernel ----------------------------------------------------------------------------------------------

// sums[kRows][kTileN] (+)= a b for one panel of each.
template <int kRows>
void multiply_panels(int64_t k, const float* __restrict a, const float* __restrict b, bool add,
                     float* __restrict sums) {
  Vector s[kRows][2] = {};
  for (int64_t p = 0; p < k; ++p, a += kTileM, b += kTileN) {
    const Vector b0 = vector_at(b), b1 = vector_at(b + kVectorFloats);
#pragma GCC unroll 12
    for (int i = 0; i < kRows; ++i) {
      s[i][0] += a[i] * b0;
      s[i][1] += a[i] * b1;
    }
  }
#pragma GCC unroll 12
  for (int i = 0; i < kRows; ++i)
    for (int j = 0; j < 2; ++j) {
      Vector& to = *reinterpret_cast<Vector*>(sums + i * kBlockN + j * kVectorFloats);
      to = add ? to + s[i][j] : s[i][j];
    }
}

// One panel of b with all of a. The last rows take a kernel that does not do much more than them.
void multiply_panel_of_b(int64_t m, int64_t k, const float* a, const float* b, bool add, float* sums) {
  for (int64_t i = 0; i < m; i += kTileM) {
    const float* panel = a + i * k;
    float* to = sums + i * kBlockN;
    if (m - i == 1)
      multiply_panels<1>(k, panel, b, add, to);
    else if (m - i <= kTileM / 2)
      multiply_panels<kTileM / 2>(k, panel, b, add, to);
    else
      multiply_panels<kTileM>(k, panel, b, add, to);
  }
}

// ---- the epilogue --------------------------------------------------------------------------------------------------

// v = f(v), or v[j] = f(v[2 j]) * v[2 j + 1] where gated. n: of the result. Loops are over whole vectors: see padded().
template <class F>
void activate(const F& f, bool gated, int64_t n, float* v) {
  if (gated) {
    float g[kBlockN / 2];
    for (int64_t j = 0; j < padded(n); ++j) g[j] = f(v[2 * j]) * v[2 * j + 1];
    for (int64_t j = 0; j < padded(n); ++j) v[j] = g[j];
  } else {
    for (int64_t j = 0; j < padded(n); ++j) v[j] = f(v[j]);
  }
}

struct Identity {
  EK_INLINE float operator()(float x) const { return x; }
};

void activate(int32_t act, bool gated, int64_t n, float* v) {
  switch (act) {
    case EK_ACTIVATION_SILU: return activate(Silu<Math>(), gated, n, v);
    case EK_ACTIVATION_GELU_ERF: return activate(GeluErf<Math>(), gated, n, v);
    case EK_ACTIVATION_GELU_TANH: return activate(GeluTanh<Math>(), gated, n, v);
    case EK_ACTIVATION_RELU: return activate(Relu<Math>(), gated, n, v);
    case EK_ACTIVATION_RELU2: return activate(Relu2<Math>(), gated, n, v);
    default:
      if (gated) activate(Identity(), gated, n, v);
  }
}

// A stretch of a row to f32 and back, whatever its stride.
template <class T>
void load_row(const T* x, int64_t step, int64_t n, float* v) {
  if (step == 1) return load(x, n, v);
  for (int64_t j = 0; j < n; ++j) v[j] = to_f32(x[j * step]);
  for (int64_t j = n; j < padded(n); ++j) v[j] = 0.f;
}
template <class T>
void store_row(const float* v, int64_t step, int64_t n, T* y) {
  if (step == 1) return store(v, n, y);
  for (int64_t j = 0; j < n; ++j) from_f32(v[j], y[j * step]);
}

// n sums of a row, which begin at column `column` of z, to d. v is overwritten.
template <class T, class D>
void finish_row(const GemmCall& call, int64_t item, int64_t row, int64_t column, int64_t n, float* v) {
  float w[kBlockN];
  if (call.bias) {
    load(static_cast<const T*>(call.bias) + column, n, w);
    for (int64_t j = 0; j < padded(n); ++j) v[j] = call.alpha * v[j] + w[j];
  } else if (call.alpha != 1.f) {
    for (int64_t j = 0; j < padded(n); ++j) v[j] *= call.alpha;
  }
  const int64_t n_out = call.gated ? n / 2 : n, column_out = call.gated ? column / 2 : column;
  activate(call.act, call.gated, n_out, v);
  const auto at = [&](const Matrix& x) { return item * x.batch + row * x.row + column_out * x.col; };
  if (call.beta != 0) {
    load_row(static_cast<const D*>(call.c.data) + at(call.c), call.c.col, n_out, w);
    for (int64_t j = 0; j < padded(n_out); ++j) v[j] = call.out_scale * v[j] + call.beta * w[j];
  } else if (call.out_scale != 1.f) {
    for (int64_t j = 0; j < padded(n_out); ++j) v[j] *= call.out_scale;
  }
  store_row(v, call.d.col, n_out, static_cast<D*>(call.d.data) + at(call.d));
}

// ---- blocks --------------------------------------------------------------------------------------------------------

template <class T, class D>
void run_block(const GemmCall& call, int64_t item, int64_t row, int64_t column, const Scratch& s) {
  const int64_t m = min_of(kBlockM, call.m - row), n = min_of(kBlockN, call.n - column);
  const T* a = static_cast<const T*>(call.a.data) + item * call.a.batch + row * call.a.row;
  const T* b = static_cast<const T*>(call.b.data) + item * call.b.batch + column * call.b.col;
  for (int64_t p = 0; p < call.k; p += kBlockK) {
    const int64_t k = min_of(kBlockK, call.k - p);
    pack<kTileM>(a + p * call.a.col, call.a.row, call.a.col, m, k, s.a);
    pack<kTileN>(b + p * call.b.row, call.b.col, call.b.row, n, k, s.b);
    for (int64_t j = 0; j < n; j += kTileN) multiply_panel_of_b(m, k, s.a, s.b + j * k, p > 0, s.sums + j);
  }
  for (int64_t i = 0; i < m; ++i) {
    float* v = s.sums + i * kBlockN;
    if (call.k == 0)
      for (int64_t j = 0; j < padded(n); ++j) v[j] = 0.f;
    finish_row<T, D>(call, item, row + i, column, n, v);
  }
}

template <class T, class D>
ek_status run(const GemmCall& call) {
  const int64_t rows = ceil_div(call.m, kBlockM), columns = ceil_div(call.n, kBlockN), blocks = rows * columns;
  const int64_t m = round_up(min_of(call.m, kBlockM), kTileM), n = round_up(min_of(call.n, kBlockN), kTileN);
  const int64_t k = min_of(call.k, kBlockK);
  const int64_t work = m * n * max_of<int64_t>(call.k, 16) / 16;  // in elements of an elementwise op, roughly
  bool failed = false;
  parallel_for(blocks * call.batch, grain_of(work), [&](int64_t begin, int64_t end) {
    // From the heap: too much for a stack, and no multiple of threads is known in advance for a workspace.
    float* memory = static_cast<float*>(std::malloc((m * k + n * k + m * kBlockN) * sizeof(float) + 64));
    if (!memory) return __atomic_store_n(&failed, true, __ATOMIC_RELAXED);
    // Panels begin on cache lines: their rows are loaded as whole vectors.
    const uintptr_t skip = -reinterpret_cast<uintptr_t>(memory) & 63;
    float* b = memory + skip / sizeof(float);
    const Scratch scratch = {b + n * k, b, b + n * k + m * k};
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t block = unit % blocks;
      run_block<T, D>(call, unit / blocks, block / columns * kBlockM, block % columns * kBlockN, scratch);
    }
    std::free(memory);
  });
  return failed ? EK_STATUS_OUT_OF_MEMORY : EK_STATUS_OK;
}

}  // namespace

ek_status gemm_run_cpu(const GemmCall& call) {
  ek_status status = EK_STATUS_OK;
  with_float(call.in, [&](auto in) {
    using T = typename decltype(in)::type;
    status = call.out == EK_DTYPE_F32 ? run<T, f32>(call) : run<T, T>(call);
  });
  return status;
}

using Row = GemmCpuRow<GemmArgs, gemm_call>;
const Kernel<GemmArgs> kGemmCpu[] = {
    {EK_CPU_ROW("gemm_cpu_blas"), kCpuTarget, Row::blas_why_not, Row::blas_run, nullptr, 0},
    {EK_CPU_ROW("gemm_cpu"), kCpuTarget, nullptr, Row::run},
    {},
};

}  // namespace ek::EK_CPU_NS
