// SPDX-License-Identifier: Apache-2.0
// gemm_sm90_skinny: up to 8 rows of a, b contiguous along k, 16-bit. gemm_sm90_skinny.cuh has the kernel.
#include "cuda/hopper.h"
#include "cuda/tensor_map.h"
#include "ops/gemm/gemm_rows.h"
#include "ops/gemm/gemm_sm90_skinny.cuh"
#include "ops/gemm/gemm_sm90_skinny_config.h"
#include "ops/gemm/gemm_store.cuh"

namespace ek {

namespace {

const char* why_not(const GemmCall& c, const Device& device) {
  if (const char* why = why_not_wgmma(device)) return why;
  if (c.m > kGemmSm90SkinnyMaxM) return "m is more than 8";
  if (const char* why = gemm_not_tma(c)) return why;
  if (c.k % 8) return "k is not a multiple of 8";
  if (c.a.col != 1) return "rows of a are not contiguous";
  return c.b.row == 1 ? nullptr : "columns of b are not contiguous";
}

// Nothing but the product, and pairs of columns in one word.
bool plain(const GemmCall& c) {
  return c.plain() && !c.c.data && c.out == c.in && c.n % 2 == 0 && gemm_rows_aligned(c.d, c.out, 4);
}

template <class S>
ek_status run_shape(const GemmCall& c, const GemmSm90SkinnyPlan& plan, const Launch& l) {
  GemmSm90SkinnyParams p;
  static_cast<GemmSkinnyParams&>(p) = gemm_skinny_params(c);
  p.late = plan.late;
  p.plain = plain(c);
  TensorBox b = {c.b.data, c.in, c.k, c.n, c.b.batch ? c.batch : 1, c.b.col, c.b.batch, kTileK, S::kCols};
  b.once = true;
  if (!make_tensor_map(b, &p.b_map))
    return fail(l.context, EK_STATUS_CUDA, "gemm_sm90_skinny: the driver refused a tensor map");
  Grid grid;
  grid.blocks = dim3(static_cast<unsigned>(plan.blocks), static_cast<unsigned>(c.batch));
  grid.threads = dim3(S::kThreads);
  grid.smem = S::kSmemBytes;
  return launch(l, gemm_sm90_skinny<S>, grid, p);
}

// The best of some forty forms (docs/measured-facts/few-rows.md).
template <class T>
ek_status run_plan(const GemmCall& c, const GemmSm90SkinnyPlan& plan, const Launch& l) {
  return plan.resident == 3 ? run_shape<GemmSm90SkinnyShape<T, 8, 4, 3>>(c, plan, l)
                            : run_shape<GemmSm90SkinnyShape<T, 16, 3, 2>>(c, plan, l);
}

ek_status run(const GemmCall& call, const Launch& l) {
  return gemm_for_each_slab(call, [&](const GemmCall& c) {
    const GemmSm90SkinnyPlan plan = gemm_sm90_skinny_plan(c, l.device);
    return c.in == EK_DTYPE_BF16 ? run_plan<bf16>(c, plan, l) : run_plan<half>(c, plan, l);
  });
}

}  // namespace

const GemmKernel kGemmSm90Skinny = {sm(90), why_not, run, nullptr, kDeterministic, 0};

}  // namespace ek
