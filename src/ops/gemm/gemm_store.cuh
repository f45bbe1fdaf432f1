// SPDX-License-Identifier: Apache-2.0
// The end of a product kernel: accumulators of a tile, laid out in shared memory, go through the epilogue (gemm_call.h has
// the formula) and out, eight columns of z to a thread.
#pragma once

#include "cuda/vec.cuh"
#include "ops/gemm/gemm_epilogue.cuh"

namespace ek {

// The end of a GemmCall as kernels take it.
struct GemmOut {
  Matrix c, d;
  int64_t m, n;
  GemmEpilogue epilogue;
  bool gated;
  bool f32_out;         // c and d are f32, whatever a and b are
  bool wide_c, wide_d;  // their rows can be read and written eight (gated: four) columns at a time
};
// All of it, for the portable ones.
struct GemmParams : GemmOut {
  Matrix a, b;
  int64_t k;
};

inline bool gemm_wide_rows(const Matrix& x, int64_t batch, int bytes, int columns) {
  const int64_t unit = int64_t{columns} * bytes < 16 ? columns * bytes : 16;
  return x.data && x.col == 1 && reinterpret_cast<uintptr_t>(x.data) % unit == 0 && x.row * bytes % unit == 0 &&
         (batch == 1 || x.batch * bytes % unit == 0);
}

inline GemmOut gemm_out_of(const GemmCall& c) {
  const int bytes = dtype_bytes(c.out), columns = c.gated ? 4 : 8;
  return {c.c,
          c.d,
          c.m,
          c.n,
          gemm_epilogue_of(c),
          c.gated,
          c.out == EK_DTYPE_F32,
          gemm_wide_rows(c.c, c.batch, bytes, columns),
          gemm_wide_rows(c.d, c.batch, bytes, columns)};
}
inline GemmParams gemm_params_of(const GemmCall& c) { return {gemm_out_of(c), c.a, c.b, c.k}; }

// run(call) for parts of the batch that fit into a grid's y or z.
template <class F>
ek_status gemm_for_each_slab(GemmCall call, F&& run) {
  const int64_t batch = call.batch;
  const auto move = [](Matrix& x, int64_t by, ek_dtype type) {
    if (x.data) x.data = static_cast<char*>(x.data) + by * x.batch * dtype_bytes(type);
  };
  for (int64_t done = 0; done < batch; done += call.batch) {
    call.batch = batch - done < 65535 ? batch - done : 65535;
    if (const ek_status status = run(call)) return status;
    move(call.a, call.batch, call.in);
    move(call.b, call.batch, call.in);
    move(call.c, call.batch, call.out);
    move(call.d, call.batch, call.out);
  }
  return EK_STATUS_OK;
}

// v += beta * c for `count` <= N columns from `col` on.
template <class D, int N>
__device__ __forceinline__ void gemm_add_c(const D* c, int64_t step, bool wide, int count, float beta, float (&v)[N]) {
  if (wide && count == N) {
    constexpr int kPart = N < kVec<D> ? N : kVec<D>;
#pragma unroll
    for (int i = 0; i < N; i += kPart) {
      float x[kPart];
      unpack(load_vec<D, kPart>(c + i), x);
#pragma unroll
      for (int j = 0; j < kPart; ++j) v[i + j] = fmaf(beta, x[j], v[i + j]);
    }
    return;
  }
#pragma unroll
  for (int i = 0; i < N; ++i)
    if (i < count) v[i] = fmaf(beta, to_float(c[i * step]), v[i]);
}

template <class D, int N>
__device__ __forceinline__ void gemm_put(D* d, int64_t step, bool wide, int count, const float (&v)[N]) {
  if (wide && count == N) {
    constexpr int kPart = N < kVec<D> ? N : kVec<D>;
#pragma unroll
    for (int i = 0; i < N; i += kPart) {
      float x[kPart];
#pragma unroll
      for (int j = 0; j < kPart; ++j) x[j] = v[i + j];
      store_vec<D, kPart>(d + i, pack<D, kPart>(x));
    }
    return;
  }
#pragma unroll
  for (int i = 0; i < N; ++i)
    if (i < count) d[i * step] = from_float<D>(v[i]);
}

// N columns of d, from `col` on, of which `count` exist: v = act(z) or the gate, without out_scale.
template <class D, int N>
__device__ __forceinline__ void gemm_finish(const GemmOut& p, int64_t batch, int64_t row, int64_t col, int count,
                                            float (&v)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) v[i] *= p.epilogue.out_scale;
  if (p.c.data)
    gemm_add_c(static_cast<const D*>(p.c.data) + batch * p.c.batch + row * p.c.row + col * p.c.col, p.c.col, p.wide_c,
               count, p.epilogue.beta, v);
  gemm_put(static_cast<D*>(p.d.data) + batch * p.d.batch + row * p.d.row + col * p.d.col, p.d.col, p.wide_d, count, v);
}

// From z, columns `col` (a multiple of N, N even) and on, of which `count` exist, to d. D: of d.
template <class D, int N>
__device__ __forceinline__ void gemm_finish_sums(const GemmOut& p, int64_t batch, int64_t row, int64_t col, int count,
                                                 float (&z)[N]) {
  if (p.gated) {
    float gate[N / 2];
#pragma unroll
    for (int i = 0; i < N / 2; ++i) gate[i] = z[2 * i];
    gemm_activate<D>(p.epilogue.act, gate);
#pragma unroll
    for (int i = 0; i < N / 2; ++i) gate[i] *= z[2 * i + 1];
    gemm_finish<D>(p, batch, row, col / 2, count / 2, gate);
  } else {
    gemm_activate<D>(p.epilogue.act, z);
    gemm_finish<D>(p, batch, row, col, count, z);
  }
}

// The same from accumulators: z = alpha * acc + bias. T: of a, b, bias.
template <class T, class D, int N>
__device__ __forceinline__ void gemm_finish_columns(const GemmOut& p, int64_t batch, int64_t row, int64_t col,
                                                    float (&z)[N]) {
  const int count = p.n - col < N ? static_cast<int>(p.n - col) : N;
#pragma unroll
  for (int i = 0; i < N; ++i) z[i] *= p.epilogue.alpha;
  if (const T* bias = static_cast<const T*>(p.epilogue.bias))
#pragma unroll
    for (int i = 0; i < N; ++i)
      if (i < count) z[i] += to_float(bias[col + i]);
  gemm_finish_sums<D>(p, batch, row, col, count, z);
}

// Where column c of row r of a tile of sums lies in its row: groups of eight columns change places, so that the eight
// rows that a warp writes with mma's layout fall into different banks.
__device__ __forceinline__ int gemm_tile_column(int r, int c) { return c ^ ((r & 3) << 3); }

// `rows` x kColumns sums from shared memory, the corner of which is element (row0, col0) of z. Not inlined: one copy
// serves all tiles and layouts, and nothing but the arguments is alive in the caller.
template <class T, int kColumns>
__device__ __noinline__ void gemm_store_tile(const GemmOut& p, const float* tile, int rows, int64_t batch, int64_t row0,
                                             int64_t col0) {
  constexpr int kGroups = kColumns / 8;
#pragma unroll 1
  for (int i = threadIdx.x; i < rows * kGroups; i += blockDim.x) {
    const int r = i / kGroups, c = i % kGroups * 8;
    const int64_t row = row0 + r, col = col0 + c;
    if (row >= p.m || col >= p.n) continue;
    const float4* from = reinterpret_cast<const float4*>(tile + r * kColumns + gemm_tile_column(r, c));
    const float4 low = from[0], high = from[1];
    float z[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
    if (std::is_same_v<T, float> || p.f32_out)
      gemm_finish_columns<T, float>(p, batch, row, col, z);
    else
      gemm_finish_columns<T, T>(p, batch, row, col, z);
  }
}

}  // namespace ek
