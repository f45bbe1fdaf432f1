// SPDX-License-Identifier: Apache-2.0
// What the forward norms have in common, on the way from an op's arguments to a kernel: NormCall on the host, NormParams
// in the kernel. An op is a NormCall plus three choices known at compile time: what a row is made of, whether it is
// centred, whether the result is quantized.
#pragma once

#include "cuda/math.cuh"
#include "cuda/quant.cuh"
#include "cuda/rows.cuh"
#include "cuda/team.cuh"
#include "cuda/vec.cuh"
#include "ops/activation/formulas.h"
#include "ops/norm/norm_config.h"

namespace ek {

// What is normalised: x; T(x + residual), which replaces residual; x * silu(z); or x, with the result times silu(z).
enum class NormInput { kPlain, kAdd, kGateFirst, kGateLast };

template <class T_, class Out_, NormInput kInput_, bool kCentre_>
struct NormOp {
  using T = T_;
  using Out = Out_;
  static constexpr NormInput kInput = kInput_;
  static constexpr bool kCentre = kCentre_;          // layer_norm: subtract the mean
  static constexpr bool kQuant = sizeof(Out_) == 1;  // e4m3 or i8 with scales
  static constexpr NormKind kKind = norm_kind(kInput == NormInput::kPlain, kCentre, kQuant);
};

// The tensors that are walked row by row.
enum NormTensor { kNormX, kNormOther, kNormY, kNormWeight, kNormRstd, kNormMean, kNormScale, kNormTensors };

struct NormCall {
  static constexpr Tensor kNone = {};
  const Tensor *x = &kNone, *y = &kNone;
  const Tensor* other = &kNone;  // residual or z
  const Tensor *weight = &kNone, *bias = &kNone;
  const Tensor *rstd = &kNone, *mean = &kNone, *scale = &kNone;
  ek_dtype dtype = 0, out = 0;
  int lead = 0;
  int64_t dim = 0;    // what one norm runs over
  int64_t parts = 1;  // norms side by side in a row, each with its own part of weight
  float eps = 0.f, weight_offset = 0.f;
  bool mean_of_squares = true;  // false: their sum
  bool gate_last = false;
  int group = 0;  // elements of a quantization group, 0: the row
};

template <class T, class Out>
struct NormParams {
  const T* x;       // [rows, dim]
  T* other;         // [rows, dim] residual or z
  const T* weight;  // [dim] or null
  const T* bias;    // [dim] or null
  Out* y;           // [rows, dim]
  float* rstd;      // [rows] or null
  float* mean;      // [rows] or null
  float* scale;     // [rows, groups]
  int64_t dim;
  int32_t vectors;                   // dim / kVec<T>
  int32_t group;                     // elements of a quantization group; 0: one scale for the row
  int32_t group_shift;               // vec: log2 of the lanes that share a group
  int64_t scale_step;                // from one group's scale to the next
  float factor, eps, weight_offset;  // rstd = rsqrt(sum * factor + eps)
  RowItems<kNormTensors> rows;
};

// Each row becomes `parts` rows of `dim`: one more dim, innermost, or part of the innermost where all tensors allow it.
inline void norm_split_rows(Rows<kNormTensors>& rows, int64_t parts, int64_t dim, bool weight) {
  const int64_t step[kNormTensors] = {dim, dim, dim, weight ? dim : 0};
  bool even = rows.size[0] == 1 || !weight;
  for (int t = kNormX; t <= kNormY && even && rows.size[0] > 1; ++t) even = rows.stride[t][0] == parts * dim;
  if (!even) {
    for (int d = rows.ndim++; d > 0; --d) {
      rows.size[d] = rows.size[d - 1];
      for (int t = 0; t < kNormTensors; ++t) rows.stride[t][d] = rows.stride[t][d - 1];
    }
    rows.size[0] = 1;
  }
  rows.size[0] *= parts;
  rows.count *= parts;
  for (int t = 0; t < kNormTensors; ++t) rows.stride[t][0] = step[t];
}

template <class T, class Out>
NormParams<T, Out> norm_params(const NormCall& c) {
  NormParams<T, Out> p;
  p.x = c.x->ptr<const T>();
  p.other = c.other->ptr<T>();
  p.weight = c.weight->ptr<const T>();
  p.bias = c.bias->ptr<const T>();
  p.y = c.y->ptr<Out>();
  p.rstd = c.rstd->ptr<float>();
  p.mean = c.mean->ptr<float>();
  p.scale = c.scale->ptr<float>();
  p.dim = c.dim;
  p.vectors = static_cast<int32_t>(c.dim / kVec<T>);
  p.group = c.group > 0 && c.group < c.dim ? c.group : 0;
  p.group_shift = 0;
  p.scale_step = p.group ? c.scale->stride[c.lead] : 0;
  p.factor = c.mean_of_squares ? 1.f / static_cast<float>(c.dim) : 1.f;
  p.eps = c.eps;
  p.weight_offset = p.weight ? c.weight_offset : 0.f;  // kernels take 1 where there is no weight
  return p;
}

// run(p) for slabs that together hold all rows: nearly always once.
template <class T, class Out, class F>
ek_status norm_for_each_slab(const NormCall& c, F&& run) {
  const NormParams<T, Out> whole = norm_params<T, Out>(c);
  Rows<kNormTensors> rows =
      make_rows<kNormTensors>(c.lead, {c.x, c.other, c.y, &NormCall::kNone, c.rstd, c.mean, c.scale});
  if (c.parts > 1) norm_split_rows(rows, c.parts, c.dim, *c.weight ? true : false);
  const int64_t none[kNormTensors] = {};
  return for_each_slab(rows, 1, none, [&](const RowItems<kNormTensors>& items, const int64_t (&at)[kNormTensors]) {
    NormParams<T, Out> p = whole;
    p.x += at[kNormX];
    if (p.other) p.other += at[kNormOther];
    if (p.weight) p.weight += at[kNormWeight];
    p.y += at[kNormY];
    if (p.rstd) p.rstd += at[kNormRstd];
    if (p.mean) p.mean += at[kNormMean];
    if (p.scale) p.scale += at[kNormScale];
    p.rows = items;
    if (p.rows.ndim == 0) p.rows.ndim = 1;  // a single row: any stride will do
    return run(p);
  });
}

// Why 16-byte vectors can't be used, or null.
inline const char* norm_not_vectors(const NormCall& c) {
  const int v = 16 / dtype_bytes(c.dtype);
  if (c.dim == 0) return "rows have no elements";
  if (c.dim % v) return v == 8 ? "dim % 8 != 0" : "dim % 4 != 0";
  const bool aligned = rows_aligned(*c.x, c.lead, 16) && rows_aligned(*c.other, c.lead, 16) &&
                       rows_aligned(*c.y, c.lead, v * dtype_bytes(c.out));
  if (!aligned) return "rows are not 16-byte aligned";
  if (!rows_aligned(*c.weight, 0, 16) || !rows_aligned(*c.bias, 0, 16)) return "weight or bias is not 16-byte aligned";
  return nullptr;
}

// A quantization group must be a power of two of a warp's lanes, with all vectors of each thread.
inline const char* norm_not_groups(const NormCall& c, const NormConfig& config) {
  if (c.group <= 0 || c.group >= c.dim) return nullptr;
  const int v = 16 / dtype_bytes(c.dtype) * config.vectors, lanes = c.group / v;
  if (c.group % v || lanes & (lanes - 1) || lanes > 32 || lanes > config.threads)
    return "group is not 1, 2, 4 ... 32 times what a thread holds";
  return nullptr;
}

}  // namespace ek
