// SPDX-License-Identifier: Apache-2.0
// Calls the generated entry points of future.toml with rows that only record what reached them.
// Built and run by tests/core/test_gen.py.
#include <cstdio>
#include <cstring>

#include "dispatch/entry.h"
#include "dispatch/ops_gen.h"

namespace ek {

static AttentionArgs g_attention;
static AdamwArgs g_adamw;
static Tensor g_adamw_param[4];
static GemmEpilogueArgs g_gemm;
static MoeFfnArgs g_moe;
static GemmGgufArgs g_gguf;
static int g_calls = 0;

template <class Args, Args& kSink>
static ek_status record(const Args& a, const Launch&) {
  kSink = a;
  ++g_calls;
  return EK_STATUS_OK;
}
static ek_status record_adamw(const AdamwArgs& a, const Launch&) {
  g_adamw = a;
  for (int64_t i = 0; i < a.param.count; ++i) g_adamw_param[i] = a.param.items[i];
  ++g_calls;
  return EK_STATUS_OK;
}

#define EK_TABLES(Op, run, name)                                                   \
  namespace cpu_v4 {                                                               \
  extern const Kernel<Op##Args> k##Op##Cpu[] = {{}};                               \
  }                                                                                \
  namespace cpu_v3 {                                                               \
  extern const Kernel<Op##Args> k##Op##Cpu[] = {{}};                               \
  }                                                                                \
  namespace cpu_v2 {                                                               \
  extern const Kernel<Op##Args> k##Op##Cpu[] = {{name, cpu(0), nullptr, run}, {}}; \
  }                                                                                \
  namespace cpu_base {                                                             \
  extern const Kernel<Op##Args> k##Op##Cpu[] = {{name, cpu(0), nullptr, run}, {}}; \
  }                                                                                \
  extern const Kernel<Op##Args> k##Op##Cuda[] = {{}};

EK_TABLES(Attention, (record<AttentionArgs, g_attention>), "attention_cpu")
EK_TABLES(Adamw, record_adamw, "adamw_cpu")
EK_TABLES(GemmEpilogue, (record<GemmEpilogueArgs, g_gemm>), "gemm_epilogue_cpu")
EK_TABLES(MoeFfn, (record<MoeFfnArgs, g_moe>), "moe_ffn_cpu")
EK_TABLES(GemmGguf, (record<GemmGgufArgs, g_gguf>), "gemm_gguf_cpu")

}  // namespace ek

static int g_failures = 0;
#define CHECK(x)                                          \
  do {                                                    \
    if (!(x)) {                                           \
      std::printf("%s:%d: %s\n", __FILE__, __LINE__, #x); \
      ++g_failures;                                       \
    }                                                     \
  } while (0)

static char g_memory[1 << 20];
static size_t g_used = 0;

// A dense CPU tensor over memory of its own.
struct View {
  int64_t shape[8];
  ek_tensor t;
  template <class... D>
  View(ek_dtype dtype, D... dims) : shape{static_cast<int64_t>(dims)...} {
    t = {g_memory + g_used, {EK_DEVICE_CPU, 0}, static_cast<int32_t>(sizeof...(dims)), dtype, shape, nullptr, 0};
    g_used += 16384;
  }
};

static bool says(ek_context* context, ek_status status, const char* text) {
  const bool ok = status == EK_STATUS_INVALID_ARGUMENT && !std::strcmp(ek_context_error(context), text);
  if (!ok) std::printf("status %d, error: %s\n  expected: %s\n", status, ek_context_error(context), text);
  return ok;
}

int main() {
  ek_context* c = nullptr;
  CHECK(ek_context_create({EK_DEVICE_CPU, 0}, &c) == EK_STATUS_OK);

  {  // attention: optional tensors, several dtype variables, combos, derived dims, an older caller
    View q(EK_DTYPE_BF16, 5, 8, 64), k(EK_DTYPE_E4M3, 3, 16, 2, 64), v(EK_DTYPE_E4M3, 3, 16, 2, 64),
        y(EK_DTYPE_BF16, 5, 8, 64);
    View cu(EK_DTYPE_I32, 3), len(EK_DTYPE_I32, 2), pages(EK_DTYPE_I32, 2, 2);
    ek_attention_args a = EK_ATTENTION_ARGS;
    a.q = &q.t, a.k = &k.t, a.v = &v.t, a.y = &y.t, a.cu_q = &cu.t, a.kv_len = &len.t, a.page_table = &pages.t;
    CHECK(ek_attention(c, &a) == EK_STATUS_OK);
    CHECK(ek::g_attention.batch == 2 && ek::g_attention.group_size == 4 && ek::g_attention.page_size == 16);
    CHECK(ek::g_attention.K == EK_DTYPE_E4M3 && ek::g_attention.causal && ek::g_attention.window_left == -1);
    CHECK(!ek::g_attention.alibi);
    a.page_table = nullptr;
    CHECK(says(c, ek_attention(c, &a), "attention: page_table and kv_len come together"));
    a.page_table = &pages.t;
    View wrong(EK_DTYPE_I32, 4);
    a.cu_q = &wrong.t;
    CHECK(says(c, ek_attention(c, &a),
               "attention: cu_q must have one entry more than there are sequences (cu_len = 4, batch = 2)"));
    a.cu_q = &cu.t;
    k.t.dtype = v.t.dtype = EK_DTYPE_I8;
    CHECK(says(
        c, ek_attention(c, &a),
        "attention: T = bf16, K = i8, I = i32, expected one of (bf16, bf16, i32), (bf16, e4m3, i32), (f16, f16, i32), "
        "(f32, f32, i64)"));
    k.t.dtype = v.t.dtype = EK_DTYPE_BF16;
    a.struct_size = offsetof(ek_attention_args, alibi);  // a caller from before alibi and softcap
    a.alibi = reinterpret_cast<const ek_tensor*>(1);
    a.softcap = -1;
    CHECK(ek_attention(c, &a) == EK_STATUS_OK);
    CHECK(!ek::g_attention.alibi && ek::g_attention.softcap == 0);
    a.struct_size = 40;
    CHECK(ek_attention(c, &a) == EK_STATUS_INVALID_ARGUMENT);
    a.struct_size = sizeof a + 8;
    CHECK(ek_attention(c, &a) == EK_STATUS_INVALID_ARGUMENT);
  }
  {  // adamw: lists whose items have shapes of their own, a device scalar
    View p0(EK_DTYPE_BF16, 4, 5), p1(EK_DTYPE_BF16, 7), g0(EK_DTYPE_BF16, 4, 5), g1(EK_DTYPE_BF16, 7);
    View m0(EK_DTYPE_F32, 4, 5), m1(EK_DTYPE_F32, 7), v0(EK_DTYPE_F32, 4, 5), v1(EK_DTYPE_F32, 7), step(EK_DTYPE_I64);
    const ek_tensor *p[] = {&p0.t, &p1.t}, *g[] = {&g0.t, &g1.t}, *m[] = {&m0.t, &m1.t}, *v[] = {&v0.t, &v1.t};
    ek_adamw_args a = EK_ADAMW_ARGS;
    a.param = p, a.grad = g, a.exp_avg = m, a.exp_avg_sq = v, a.step = &step.t;
    a.param_count = a.grad_count = a.exp_avg_count = a.exp_avg_sq_count = 2;
    CHECK(ek_adamw(c, &a) == EK_STATUS_OK);
    CHECK(ek::g_adamw.param.count == 2 && ek::g_adamw_param[1].data == p1.t.data && ek::g_adamw_param[1].shape[0] == 7);
    CHECK(!ek::present(ek::g_adamw.master) && ek::g_adamw.beta2 == 0.999f);
    g1.shape[0] = 6;
    CHECK(says(c, ek_adamw(c, &a), "adamw: param[1] has shape [7], expected [6] (as grad[1])"));
    g1.shape[0] = 7;
    a.exp_avg_count = 1;
    CHECK(says(c, ek_adamw(c, &a), "adamw: exp_avg has 1 tensors, expected 2 (as many as grad)"));
    a.grad_count = INT64_MAX;
    CHECK(says(c, ek_adamw(c, &a),
               "adamw: grad_count is 9223372036854775807, expected no more than there is memory for"));
  }
  {  // gemm_epilogue: strided operands, a derived output, an alias
    View x(EK_DTYPE_BF16, 3, 8), w(EK_DTYPE_BF16, 8, 6), y(EK_DTYPE_BF16, 3, 3);
    const int64_t column_major[] = {1, 8};
    w.t.strides = column_major;
    ek_gemm_epilogue_args a = EK_GEMM_EPILOGUE_ARGS;
    a.a = &x.t, a.b = &w.t, a.y = &y.t, a.gated = 1, a.act = EK_ACTIVATION_SILU;
    CHECK(ek_gemm_epilogue(c, &a) == EK_STATUS_OK && ek::g_gemm.n_out == 3 && ek::g_gemm.b.stride[1] == 8);
    a.residual = &y.t;
    CHECK(ek_gemm_epilogue(c, &a) == EK_STATUS_OK);
    a.gated = 0;
    CHECK(says(c, ek_gemm_epilogue(c, &a),
               "gemm_epilogue: residual has shape [3, 3], expected [..., n_out = 6] (n_out from the other arguments)"));
    a.gated = 2;
    CHECK(says(c, ek_gemm_epilogue(c, &a), "gemm_epilogue: gated is 2, expected 0 or 1"));
  }
  {  // moe_ffn: literal dims
    View x(EK_DTYPE_BF16, 3, 8), w1(EK_DTYPE_BF16, 4, 2, 16, 8), w2(EK_DTYPE_BF16, 4, 8, 16), y(EK_DTYPE_BF16, 3, 8);
    View ids(EK_DTYPE_I32, 3, 2), weights(EK_DTYPE_F32, 3, 2);
    ek_moe_ffn_args a = EK_MOE_FFN_ARGS;
    a.x = &x.t, a.w1 = &w1.t, a.w2 = &w2.t, a.y = &y.t, a.topk_ids = &ids.t, a.topk_weights = &weights.t;
    CHECK(ek_moe_ffn(c, &a) == EK_STATUS_OK && ek::g_moe.inter == 16 && ek::g_moe.act == EK_ACTIVATION_SILU);
    w1.shape[1] = 3;
    CHECK(says(c, ek_moe_ffn(c, &a), "moe_ffn: w1 has shape [4, 3, 16, 8], expected 2 in dimension 1"));
  }
  {  // gemm_gguf: packed bytes and a format
    View x(EK_DTYPE_F16, 2, 3, 512), b(EK_DTYPE_U8, 5, 288), y(EK_DTYPE_F16, 2, 3, 5);
    ek_gemm_gguf_args a = EK_GEMM_GGUF_ARGS;
    a.x = &x.t, a.b = &b.t, a.y = &y.t;
    CHECK(ek_gemm_gguf(c, &a) == EK_STATUS_OK && ek::g_gguf.rows == 6 && ek::g_gguf.lead == 2);
    a.type = EK_GGUF_TYPE_Q8_0;
    CHECK(
        says(c, ek_gemm_gguf(c, &a),
             "gemm_gguf: b has shape [5, 288], expected [..., row_bytes = 544] (row_bytes from the other arguments)"));
    a.type = 9;
    CHECK(says(c, ek_gemm_gguf(c, &a),
               "gemm_gguf: type is 9, expected 0 (q4_0), 1 (q8_0), 2 (q4_k), 3 (q5_k), 4 (q6_k)"));
  }
  CHECK(ek::g_calls == 7);  // the successes above
  char text[512];
  ek_gemm_gguf_args none = EK_GEMM_GGUF_ARGS;
  CHECK(ek_explain(c, "gemm_gguf", &none, text, sizeof text, nullptr) == EK_STATUS_INVALID_ARGUMENT);
  ek_context_destroy(c);
  std::printf("%d failures\n", g_failures);
  return g_failures != 0;
}
