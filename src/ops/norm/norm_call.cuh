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

// The tensors that are walked row by row: those of every norm first.
enum NormTensor { kNormX, kNormY, kNormWeight, kNormRstd, kNormMean, kNormOther, kNormScale };

template <class T_, class Out_, NormInput kInput_, bool kCentre_>
struct NormOp {
  using T = T_;
  using Out = Out_;
  static constexpr NormInput kInput = kInput_;
  static constexpr bool kCentre = kCentre_;          // layer_norm: subtract the mean
  static constexpr bool kQuant = sizeof(Out_) == 1;  // e4m3 or i8 with scales
  static constexpr bool kGated = kInput == NormInput::kGateFirst || kInput == NormInput::kGateLast;
  static constexpr NormKind kKind = norm_kind(kInput == NormInput::kPlain, kCentre, kQuant);
  // Of the enumeration above. A launch pays for every byte of its arguments, so that what an op has not is left out.
  static constexpr int kTensors = 1 + (kQuant                        ? kNormScale
                                       : kInput != NormInput::kPlain ? kNormOther
                                       : kCentre                     ? kNormMean
                                                                     : kNormRstd);
};

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

template <class Op>
struct NormParams {
  using T = typename Op::T;
  using Out = typename Op::Out;
  // In the order of use, what loads ask for in the first line of parameters, the rest of whole rows in the second: for each
  // line a kernel waits.
  const T* x;                        // [rows, dim]
  T* other;                          // [rows, dim] residual or z
  Out* y;                            // [rows, dim]
  int64_t spacing[3];                // of the rows of x, other and y, where they are evenly spaced
  const T* weight;                   // [dim] or null
  const T* bias;                     // [dim] or null
  uint32_t count;                    // of the rows
  float factor, eps, weight_offset;  // rstd = rsqrt(sum * factor + eps)
  float* rstd;                       // [rows] or null
  float* mean;                       // [rows] or null
  float* scale;                      // [rows, groups]
  int32_t vectors;                   // dim / kVec<T>
  int32_t group;                     // elements of a quantization group; 0: one scale for the row
  int32_t group_shift;               // vec: log2 of the lanes that share a group
  uint32_t ahead;                    // rows from one to the one that it asks for into L2
  int64_t scale_step;                // from one group's scale to the next
  int64_t dim;
  RowItems<Op::kTensors> rows;

#ifdef __CUDACC__
  // Where row `row` of a tensor begins; 0 for one that the op has not. kEven: rows are evenly spaced.
  template <int kTensor, bool kEven = false>
  __device__ __forceinline__ int64_t offset(uint32_t row) const {
    if constexpr (kTensor >= Op::kTensors)
      return 0;
    else if constexpr (kEven && kTensor == kNormX)
      return row * spacing[0];
    else if constexpr (kEven && kTensor == kNormOther)
      return row * spacing[1];
    else if constexpr (kEven && kTensor == kNormY)
      return row * spacing[2];
    else if constexpr (kEven)
      return row * rows.stride[kTensor][0];
    else
      return rows.offset(kTensor, row);
  }
#endif
};

// Each row becomes `parts` rows of `dim`: one more dim, innermost, or part of the innermost where all tensors allow it.
template <int N>
void norm_split_rows(Rows<N>& rows, int64_t parts, int64_t dim, bool weight) {
  const auto whole = [](int t) { return t == kNormX || t == kNormY || t == kNormOther; };  // rows of dim elements
  bool even = rows.size[0] == 1 || !weight;
  for (int t = 0; t < N && even && rows.size[0] > 1; ++t) even = !whole(t) || rows.stride[t][0] == parts * dim;
  if (!even) {
    for (int d = rows.ndim++; d > 0; --d) {
      rows.size[d] = rows.size[d - 1];
      for (int t = 0; t < N; ++t) rows.stride[t][d] = rows.stride[t][d - 1];
    }
    rows.size[0] = 1;
  }
  rows.size[0] *= parts;
  rows.count *= parts;
  for (int t = 0; t < N; ++t) rows.stride[t][0] = whole(t) || (t == kNormWeight && weight) ? dim : 0;
}

template <class Op>
NormParams<Op> norm_params(const NormCall& c) {
  using T = typename Op::T;
  using Out = typename Op::Out;
  NormParams<Op> p;
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
  p.ahead = 0;
  p.scale_step = p.group ? c.scale->stride[c.lead] : 0;
  p.factor = c.mean_of_squares ? 1.f / static_cast<float>(c.dim) : 1.f;
  p.eps = c.eps;
  p.weight_offset = p.weight ? c.weight_offset : 0.f;  // kernels take 1 where there is no weight
  return p;
}

// run(p) for slabs that together hold all rows: nearly always once.
template <class Op, class F>
ek_status norm_for_each_slab(const NormCall& c, F&& run) {
  constexpr int N = Op::kTensors;
  const NormParams<Op> whole = norm_params<Op>(c);
  const Tensor* const all[] = {c.x, c.y, &NormCall::kNone, c.rstd, c.mean, c.other, c.scale};
  const Tensor* tensors[N];
  for (int t = 0; t < N; ++t) tensors[t] = all[t];
  Rows<N> rows = make_rows<N>(c.lead, tensors);
  if (c.parts > 1) norm_split_rows(rows, c.parts, c.dim, *c.weight ? true : false);
  const int64_t none[N] = {};
  return for_each_slab(rows, 1, none, [&](const RowItems<N>& items, const int64_t (&at)[N]) {
    NormParams<Op> p = whole;
    p.x += at[kNormX];
    p.y += at[kNormY];
    if (p.weight) p.weight += at[kNormWeight];
    if (p.rstd) p.rstd += at[kNormRstd];
    if constexpr (N > kNormMean)
      if (p.mean) p.mean += at[kNormMean];
    if constexpr (N > kNormOther)
      if (p.other) p.other += at[kNormOther];
    if constexpr (N > kNormScale)
      if (p.scale) p.scale += at[kNormScale];
    p.rows = items;
    p.count = items.count;
    p.spacing[0] = items.stride[kNormX][0], p.spacing[2] = items.stride[kNormY][0];
    p.spacing[1] = 0;
    if constexpr (N > kNormOther) p.spacing[1] = items.stride[kNormOther][0];
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
