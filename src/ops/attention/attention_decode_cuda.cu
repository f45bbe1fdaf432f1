// SPDX-License-Identifier: Apache-2.0
// The rows of attention_decode on CUDA.
#include "cuda/hopper.h"
#include "ops/attention/attention_cuda.cuh"
#include "ops/attention/attention_decode_cuda_split.h"
#include "ops/attention/attention_decode_sm90.h"

namespace ek {

static bool aligned16(const Tensor& t, int64_t lead) {
  const int64_t unit = 16 / dtype_bytes(t.dtype);
  for (int64_t d = 0; d < lead; ++d)
    if (t.shape[d] > 1 && t.stride[d] % unit != 0) return false;
  return reinterpret_cast<uintptr_t>(t.data) % 16 == 0;
}

// What the tensor-core kernels have in common.
static const char* why_not_mma(const AttentionDecodeArgs& a, const DecodeShape& shape) {
  if (a.T == EK_DTYPE_F32) return "the inputs are f32";
  if (a.v_dim == 0) return "v_dim is 0";
  if (a.head_dim % 8 != 0 || a.v_dim % 8 != 0) return "head_dim or v_dim is not a multiple of 8";
  if (a.head_dim > 512 || a.v_dim > 512) return "head_dim or v_dim is above 512";
  if (!aligned16(a.q, 3) || !aligned16(a.k, 3) || !aligned16(a.v, 3) || !aligned16(a.y, 3))
    return "rows of q, k, v or y do not begin at multiples of 16 bytes";
  if (a.kv_heads * decode_sizes(attention_call(a), shape, false).row_blocks > kCounters)
    return "there are more than 16384 kv heads, counted for every 16 rows of a kv head";
  if (shape.groups < 1) return "heads of this size need more shared memory than the GPU has";
  return nullptr;
}

static const char* why_not_sm90(const AttentionDecodeArgs& a, const Device& device) {
  if (const char* why = why_not_wgmma(device)) return why;
  const AttentionCall call = attention_call(a);
  if (const char* why = why_not_mma(a, decode_shape_sm90(call, device))) return why;
  return decode_counts(call, device) ? nullptr : "there are 2^30 keys, or tiles of keys in all sequences, or more";
}
static size_t workspace_sm90(const AttentionDecodeArgs& a, const Device& device) {
  const AttentionCall call = attention_call(a);
  return decode_workspace(call, decode_shape_sm90(call, device));
}
static ek_status attention_decode_sm90(const AttentionDecodeArgs& a, const Launch& l) {
  const AttentionCall call = attention_call(a);
  if (a.K == EK_DTYPE_E4M3) return attention_decode_sm90_e4m3(call, l);
  if (a.K == EK_DTYPE_I8) return attention_decode_sm90_i8(call, l);
  return a.K == EK_DTYPE_F16 ? attention_decode_sm90_f16(call, l) : attention_decode_sm90_bf16(call, l);
}

static const char* why_not_sm80(const AttentionDecodeArgs& a, const Device& device) {
  return why_not_mma(a, decode_shape_sm80(attention_call(a), device));
}
static size_t workspace_sm80(const AttentionDecodeArgs& a, const Device& device) {
  const AttentionCall call = attention_call(a);
  return decode_workspace(call, decode_shape_sm80(call, device));
}
static ek_status attention_decode_sm80(const AttentionDecodeArgs& a, const Launch& l) {
  const AttentionCall call = attention_call(a);
  if (a.K == EK_DTYPE_E4M3) return attention_decode_sm80_e4m3(call, l);
  if (a.K == EK_DTYPE_I8) return attention_decode_sm80_i8(call, l);
  return a.K == EK_DTYPE_F16 ? attention_decode_sm80_f16(call, l) : attention_decode_sm80_bf16(call, l);
}

static const char* why_not_split(const AttentionDecodeArgs& a, const Device&) {
  if (a.T == EK_DTYPE_F32) return "the inputs are f32";
  if (a.heads / a.kv_heads * a.q_len > kCoreRows) return "more than 4 queries and heads share a kv head";
  const int64_t bytes = dtype_bytes(a.K);
  if (a.head_dim * bytes % 16 != 0 || a.v_dim * bytes % 16 != 0 || a.v_dim == 0)
    return "rows of k or v are not multiples of 16 bytes";
  if (a.head_dim > 256 || a.v_dim > 256) return "head_dim or v_dim is above 256";
  if (!aligned16(a.q, 3) || !aligned16(a.k, 3) || !aligned16(a.v, 3) || !aligned16(a.y, 3))
    return "rows of q, k, v or y do not begin at multiples of 16 bytes";
  const auto wide = [](const Tensor& t) {  // bytes in 32 bits
    const int64_t most = 0x7fffffff / dtype_bytes(t.dtype);
    for (int d = 0; d < t.ndim - 1; ++d)
      if (t.shape[d] > 1 && (t.stride[d] > most || t.stride[d] < -most)) return true;
    return false;
  };
  if (wide(a.q) || wide(a.k) || wide(a.v) || (a.page_table && wide(a.page_table)))
    return "strides of q, k, v or page_table are 2^31 bytes or more";
  if (a.max_kv >= kCoreNoWindow || a.kv_heads >= 1 << 26) return "there are 2^29 keys, or 2^26 kv heads, or more";
  return nullptr;
}
static const char* why_not_small(const AttentionDecodeArgs& a, const Device& device) {
  if (const char* why = why_not_split(a, device)) return why;
  return decode_cores_win(attention_call(a), device) ? nullptr : "there is more to do than latencies to wait for";
}
static ek_status attention_decode_cuda_split(const AttentionDecodeArgs& a, const Launch& l) {
  const AttentionCall call = attention_call(a);
  return dtype_bytes(a.K) == 1 ? attention_decode_cuda_split_narrow(call, l)
                               : attention_decode_cuda_split_wide(call, l);
}

static ek_status attention_decode_cuda(const AttentionDecodeArgs& a, const Launch& l) {
  const AttentionCall call = attention_call(a);
  if (a.K == EK_DTYPE_E4M3) return attention_run_simt<e4m3>(call, l);
  if (a.K == EK_DTYPE_I8) return attention_run_simt<int8_t>(call, l);
  return attention_run_simt_float(call, l);
}

// Batch-invariant where the context asks for it: the split is then fixed. The first row's place in the order depends on the
// batch; it is the same kernel as the fourth.
const Kernel<AttentionDecodeArgs> kAttentionDecodeCuda[] = {
    {"attention_decode_cuda_small", sm(90), why_not_small, attention_decode_cuda_split, nullptr, kDeterministic},
    {"attention_decode_sm90", sm(90), why_not_sm90, attention_decode_sm90, workspace_sm90},
    {"attention_decode_sm80", sm(80), why_not_sm80, attention_decode_sm80, workspace_sm80},
    {"attention_decode_cuda_split", sm(75), why_not_split, attention_decode_cuda_split},
    {"attention_decode_cuda", sm(75), nullptr, attention_decode_cuda},
    {},
};

}  // namespace ek
