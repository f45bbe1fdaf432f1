// SPDX-License-Identifier: Apache-2.0
// The Hopper kernels (TMA + wgmma) as rows: gemm_sm90 (whole tiles), gemm_sm90_split (k cut, for few or odd numbers of
// tiles) and gemm_sm90_swap (few rows of a). gemm_config.h plans; the tiles are built in gemm_sm90_<layout>_<dtype>.cu.
#include "cuda/hopper.h"
#include "cuda/launch.h"
#include "ops/gemm/gemm_rows.h"
#include "ops/gemm/gemm_sm90_run.h"

namespace ek {

namespace {

const char* why_not(const GemmCall& c, const Device& device) {
  if (const char* why = why_not_wgmma(device)) return why;
  return gemm_not_tma(c);
}

const char* why_not_split(const GemmCall& c, const Device& device) {
  if (const char* why = why_not(c, device)) return why;
  return gemm_sm90_splits(c, device) ? nullptr : "k is too short to be cut, or there are enough tiles";
}

const char* why_not_swap(const GemmCall& c, const Device& device) {
  if (const char* why = why_not_wgmma(device)) return why;
  if (c.m > kGemmSwapMaxM) return "m is more than 64";
  if (const char* why = gemm_not_tma(c)) return why;
  return c.a.col == 1 ? nullptr : "rows of a are not contiguous";
}

template <class T, bool kTransA, bool kTransB>
ek_status run_layout(const GemmCall& c, const GemmPlan& plan, const Launch& l) {
  if constexpr (!kTransA && !kTransB)
    if (gemm_finish(c) == GemmFinish::kPlain) return gemm_sm90_run<T, false, false, GemmFinish::kPlain>(c, plan, l);
  return gemm_sm90_run<T, kTransA, kTransB, GemmFinish::kFull>(c, plan, l);
}

ek_status run_plan(const GemmCall& c, const GemmPlan& plan, const Launch& l) {
  const auto with_type = [&](auto type) {
    using T = typename decltype(type)::type;
    const bool trans_a = c.a.col != 1, trans_b = c.b.row != 1;
    if (!trans_a && !trans_b) return run_layout<T, false, false>(c, plan, l);
    if (!trans_a) return run_layout<T, false, true>(c, plan, l);
    return trans_b ? run_layout<T, true, true>(c, plan, l) : run_layout<T, true, false>(c, plan, l);
  };
  return c.in == EK_DTYPE_BF16 ? with_type(Type<bf16>{}) : with_type(Type<half>{});
}

ek_status run(const GemmCall& c, const Launch& l) {
  // One tile for all m: the bits of a row are then the same whatever the matrix units do inside.
  if (l.flags & EK_FLAG_BATCH_INVARIANT) return run_plan(c, gemm_plan_tile(c, l.device, kGemmAnyTile), l);
  return run_plan(c, gemm_sm90_plan(c, l.device), l);
}

ek_status run_split(const GemmCall& c, const Launch& l) { return run_plan(c, gemm_sm90_split_plan(c, l.device), l); }

ek_status run_swap(const GemmCall& c, const Launch& l) {
  const GemmPlan plan = gemm_sm90_swap_plan(c, l.device);
  const auto with_type = [&](auto type) {
    using T = typename decltype(type)::type;
    return c.b.row == 1 ? gemm_sm90_run_swap<T, false>(c, plan, l) : gemm_sm90_run_swap<T, true>(c, plan, l);
  };
  return c.in == EK_DTYPE_BF16 ? with_type(Type<bf16>{}) : with_type(Type<half>{});
}

size_t swap_workspace(const GemmCall& c, const Device& device) {
  const GemmPlan plan = gemm_sm90_swap_plan(c, device);
  const GemmSwapTile& t = kGemmSwapTiles[plan.tile];
  return gemm_streamed_bytes(plan.schedule, gemm_sharing(t.share), t.rows, t.cols);
}

}  // namespace

const GemmKernel kGemmSm90 = {sm(90), why_not, run, nullptr, kDeterministic | kBatchInvariant, 0};
const GemmKernel kGemmSm90Split = {sm(90), why_not_split, run_split, nullptr, kDeterministic, 0};
const GemmKernel kGemmSm90Swap = {sm(90), why_not_swap, run_swap, swap_workspace, kDeterministic, 0};

}  // namespace ek
