// SPDX-License-Identifier: Apache-2.0
// What the forward norms have in common, on the way from an op's arguments to a kernel: NormCall on the host, NormParams
// in the kernel. An op is a NormCall plus three choices known at compile time: what a row is made of, whether it is
// centred, whether the result is quantized.
#pragma once

#include "cuda/math.cuh"
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
  static constexpr bool kCentre = kCentre_;           // layer_norm: subtract the mean
  static constexpr bool kQuant = sizeof(Out_) == 1;   // e4m3 or i8 with scales
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
  int64_t dim = 0;     // what one norm runs over
  int64_t parts = 1;   // norms side by side in a row, each with its own part of weight
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
  int64_t count, dim;
  int32_t vectors;      // dim / kVec<T>
  int32_t group;        // elements of a quantization group; 0: one scale for the row
  int64_t scale_step;   // from one group's scale to the next
  float factor, eps, weight_offset;  // rstd = rsqrt(sum * factor + eps)
  uint32_t zero[2];                  // 0: see hidden() in cuda/vec.cuh
  // The usual case first and close together, so that a launch-bound kernel touches few lines of its arguments.
  bool even;                   // row r of tensor t begins at r * step[t]
  int64_t step[kNormTensors];
  Rows<kNormTensors> rows;     // else

  // Where row `row` begins in each tensor.
  __device__ __forceinline__ void offsets(int64_t row, int64_t (&at)[kNormTensors]) const {
    if (even) {
#pragma unroll
      for (int t = 0; t < kNormTensors; ++t) at[t] = row * step[t];
    } else {
      rows.offsets(row, at);
    }
  }
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
  p.scale_step = p.group ? c.scale->stride[c.lead] : 0;
  p.factor = c.mean_of_squares ? 1.f / static_cast<float>(c.dim) : 1.f;
  p.eps = c.eps;
  p.zero[0] = p.zero[1] = 0;
  p.weight_offset = p.weight ? c.weight_offset : 1.f;  // kernels read 0 where there is no weight: a factor of 1
  p.rows = make_rows<kNormTensors>(c.lead, {c.x, c.other, c.y, &NormCall::kNone, c.rstd, c.mean, c.scale});
  if (c.parts > 1) norm_split_rows(p.rows, c.parts, c.dim, *c.weight ? true : false);
  p.count = p.rows.count;
  p.even = p.rows.ndim == 1;
  for (int t = 0; t < kNormTensors; ++t) p.step[t] = p.rows.stride[t][0];
  return p;
}

// Why 16-byte vectors can't be used, or null.
inline const char* norm_not_vectors(const NormCall& c) {
  const int v = 16 / dtype_bytes(c.dtype);
  if (c.dim % v) return v == 8 ? "dim % 8 != 0" : "dim % 4 != 0";
  const bool aligned = rows_aligned(*c.x, c.lead, 16) && rows_aligned(*c.other, c.lead, 16) &&
                       rows_aligned(*c.y, c.lead, v * dtype_bytes(c.out));
  if (!aligned) return "rows are not 16-byte aligned";
  if (!rows_aligned(*c.weight, 0, 16) || !rows_aligned(*c.bias, 0, 16)) return "weight or bias is not 16-byte aligned";
  return nullptr;
}

// A quantization group must be a power of two of a warp's lanes, and a row's threads a multiple of it.
inline const char* norm_not_groups(const NormCall& c, const NormConfig& config) {
  if (c.group <= 0 || c.group >= c.dim) return nullptr;
  const int v = 16 / dtype_bytes(c.dtype), lanes = c.group / v;
  if (c.group % v || lanes & (lanes - 1) || lanes > 32 || lanes > config.threads)
    return "group is not 1, 2, 4 ... 32 vectors of 16 bytes";
  return nullptr;
}

// ---- quantization ----------------------------------------------------------------------------------------------------

template <class Out>
constexpr float kNormLimit = 1.f;
template <>
constexpr float kNormLimit<e4m3> = 448.f;
template <>
constexpr float kNormLimit<int8_t> = 127.f;

// v / scale for many v: a product with the reciprocal and one correction give the quotient rounded to nearest, as the
// division would. An infinite scale: the correction is switched off, since 0 * inf would make NaN of finite values.
template <class Out>
struct Quantizer {
  float scale, reciprocal, divisor;

  __device__ __forceinline__ explicit Quantizer(float amax) {
    scale = (amax < 1e-20f ? 1e-20f : amax) / kNormLimit<Out>;  // NaN is not less and stays
    reciprocal = 1.f / scale;
    divisor = scale == __int_as_float(0x7f800000) ? 0.f : scale;
  }
  __device__ __forceinline__ float operator()(float v) const {
    const float q = v * reciprocal;
    return fmaf(fmaf(-q, divisor, v), reciprocal, q);
  }
};

}  // namespace ek
