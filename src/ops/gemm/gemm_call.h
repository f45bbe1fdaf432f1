// SPDX-License-Identifier: Apache-2.0
// One product with its epilogue, as all rows of the family see it, whichever op asked:
//   z = alpha * a b + bias            d = beta * c + out_scale * act(z)            sums in f32
//   gated: columns of z alternate between gate and up, and d = beta * c + out_scale * act(gate) * up has half as many.
// Host code, without CUDA: the CPU rows and the unit tests use it too.
#pragma once

#include <utility>

#include "dispatch/ops_gen.h"

namespace ek {

// A matrix, or a batch of them: element (i, row, col) is at data[i * batch + row * row + col * col], in elements.
struct Matrix {
  void* data = nullptr;
  int64_t row = 0;
  int64_t col = 0;
  int64_t batch = 0;
};

struct GemmCall {
  ek_dtype in = 0;   // a, b, bias
  ek_dtype out = 0;  // c, d
  int64_t batch = 1;
  int64_t m = 0, n = 0, k = 0;
  int64_t n_out = 0;           // columns of c and d: n, or n / 2 if gated
  Matrix a;                    // [m, k]
  Matrix b;                    // [k, n]
  Matrix c;                    // [m, n_out]; no data where beta is 0
  Matrix d;                    // [m, n_out]
  const void* bias = nullptr;  // [n]
  int32_t act = EK_ACTIVATION_NONE;
  bool gated = false;
  bool constant_b = false;
  float alpha = 1, beta = 0, out_scale = 1;

  bool plain() const { return !bias && act == EK_ACTIVATION_NONE && !gated; }  // nothing but alpha, beta and a scale
};

// Blocks along the x of a grid.
constexpr int64_t kGemmMaxBlocks = 0x7fffffff;

inline int64_t gemm_tiles(const GemmCall& c, int64_t rows, int64_t cols) {
  return (c.m + rows - 1) / rows * ((c.n + cols - 1) / cols);
}

// run(part) for parts of a product with no more tiles of `rows` by `cols` (even) than a grid has room for. That is all of
// it at once, but for results with few rows or columns that fill the memory of the largest GPUs.
template <class F>
ek_status gemm_for_each_part(const GemmCall& call, int64_t rows, int64_t cols, F&& run) {
  if (gemm_tiles(call, rows, cols) <= kGemmMaxBlocks) return run(call);
  const auto move = [](const Matrix& x, int64_t row, int64_t col, ek_dtype type) {
    Matrix moved = x;
    if (x.data) moved.data = static_cast<char*>(x.data) + (row * x.row + col * x.col) * dtype_bytes(type);
    return moved;
  };
  const int64_t tiles_n = (call.n + cols - 1) / cols, wide = tiles_n < kGemmMaxBlocks ? tiles_n : kGemmMaxBlocks;
  const int64_t high = kGemmMaxBlocks / wide;
  for (int64_t row = 0; row < call.m; row += high * rows)
    for (int64_t col = 0; col < call.n; col += wide * cols) {
      GemmCall part = call;
      part.m = call.m - row < high * rows ? call.m - row : high * rows;
      part.n = call.n - col < wide * cols ? call.n - col : wide * cols;
      const int64_t out = call.gated ? col / 2 : col;
      part.n_out = call.gated ? part.n / 2 : part.n;
      part.a = move(call.a, row, 0, call.in);
      part.b = move(call.b, 0, col, call.in);
      part.c = move(call.c, row, out, call.out);
      part.d = move(call.d, row, out, call.out);
      if (call.bias) part.bias = static_cast<const char*>(call.bias) + col * dtype_bytes(call.in);
      if (const ek_status status = run(part)) return status;
    }
  return EK_STATUS_OK;
}

namespace gemm_detail {

// The last two dims of a tensor. The stride of a dim of size 1 is never used, but rows refuse by strides, and must refuse
// one row or one batch just as they would several: it is kept if several could lie so, else taken as a dense tensor's.
inline Matrix matrix_of(const Tensor& t) {
  if (!t) return {};
  const int r = t.ndim - 2, c = t.ndim - 1;
  Matrix x;
  x.data = t.data;
  x.row = t.stride[r];
  x.col = t.stride[c];
  if (t.shape[c] == 1 && t.shape[r] != 1 && x.row != 1) x.col = 1;
  if (t.shape[r] == 1) {
    if (t.shape[c] == 1) x.col = 1;
    x.row = x.col != 1 ? 1 : t.stride[r] < t.shape[c] ? t.shape[c] : t.stride[r];
  }
  const int64_t size = t.shape[r] * t.shape[c];
  if (t.ndim == 3) x.batch = t.shape[0] == 1 && t.stride[0] < size ? size : t.stride[0];
  return x;
}

template <class Args>
GemmCall product_of(const Args& a) {
  GemmCall call;
  call.in = a.T;
  call.out = a.D;
  call.m = a.m;
  call.n = call.n_out = a.n;
  call.k = a.k;
  call.a = matrix_of(a.a);
  call.b = matrix_of(a.b);
  call.constant_b = a.constant_b;
  return call;
}

// The same product the other way round, d^T = b^T a^T, where that makes the rows of d contiguous.
inline void prefer_rows_of_d(GemmCall* call) {
  if (call->d.col == 1 || call->d.row != 1) return;
  std::swap(call->m, call->n);
  std::swap(call->a, call->b);
  call->n_out = call->n;
  call->constant_b = false;
  for (Matrix* x : {&call->a, &call->b, &call->c, &call->d}) std::swap(x->row, x->col);
}

}  // namespace gemm_detail

template <class Args>
GemmCall gemm_call_with_c(const Args& a) {
  GemmCall call = gemm_detail::product_of(a);
  call.alpha = a.alpha;
  call.beta = a.beta;
  if (a.beta != 0) call.c = gemm_detail::matrix_of(a.c);
  call.d = gemm_detail::matrix_of(a.d);
  gemm_detail::prefer_rows_of_d(&call);
  return call;
}

inline GemmCall gemm_call(const GemmArgs& a) { return gemm_call_with_c(a); }

inline GemmCall gemm_batched_call(const GemmBatchedArgs& a) {
  GemmCall call = gemm_call_with_c(a);
  call.batch = a.batch;
  return call;
}

inline GemmCall gemm_epilogue_call(const GemmEpilogueArgs& a) {
  GemmCall call = gemm_detail::product_of(a);
  call.n_out = a.n_out;
  call.bias = a.bias.data;
  call.act = a.act;
  call.gated = a.gated;
  call.out_scale = a.out_scale;
  call.c = gemm_detail::matrix_of(a.residual);
  call.beta = a.residual ? 1.f : 0.f;
  call.d = gemm_detail::matrix_of(a.y);
  return call;
}

// The two products of an mlp; `hidden` [m, inner] lies in workspace, its rows on 16-byte boundaries.
inline int64_t mlp_hidden_pitch(const MlpArgs& a) { return (a.inner + 7) / 8 * 8; }
inline size_t mlp_hidden_bytes(const MlpArgs& a) { return a.m * mlp_hidden_pitch(a) * dtype_bytes(a.T); }

inline GemmCall mlp_first_call(const MlpArgs& a, void* hidden) {
  GemmCall call;
  call.in = call.out = a.T;
  call.m = a.m;
  call.n = a.width;
  call.n_out = a.inner;
  call.k = a.k;
  call.a = gemm_detail::matrix_of(a.x);
  call.b = gemm_detail::matrix_of(a.w1);
  call.bias = a.b1.data;
  call.act = a.act;
  call.gated = a.gated;
  call.constant_b = a.constant_weights;
  call.d = {hidden, mlp_hidden_pitch(a), 1, 0};
  return call;
}

inline GemmCall mlp_second_call(const MlpArgs& a, void* hidden) {
  GemmCall call;
  call.in = a.T;
  call.out = a.D;
  call.m = a.m;
  call.n = call.n_out = a.n;
  call.k = a.inner;
  call.a = {hidden, mlp_hidden_pitch(a), 1, 0};
  call.b = gemm_detail::matrix_of(a.w2);
  call.bias = a.b2.data;
  call.constant_b = a.constant_weights;
  call.c = gemm_detail::matrix_of(a.residual);
  call.beta = a.residual ? 1.f : 0.f;
  call.d = gemm_detail::matrix_of(a.y);
  return call;
}

}  // namespace ek
