// SPDX-License-Identifier: Apache-2.0
// gemm_sm90_narrow: up to 64 rows of a, 128 where there are few columns, a and b contiguous along k, 16-bit. gemm_sm90_narrow.cuh has the kernel.
#include "core/cuda_driver.h"
#include "cuda/hopper.h"
#include "cuda/launch.h"
#include "ops/gemm/gemm_rows.h"
#include "ops/gemm/gemm_sm90_narrow.cuh"

namespace ek {

namespace {

const char* why_not(const GemmCall& c, const Device& device) {
  if (const char* why = why_not_wgmma(device)) return why;
  if (c.m > kGemmNarrowTwiceM || (c.m > kGemmNarrowMaxM && (c.n > kGemmNarrowTwiceCols || c.batch > 1)))
    return "m is more than 64, or 128 where there is one matrix and n is at most 1056";
  if (const char* why = gemm_not_tma(c)) return why;
  if (c.k % kTileK) return "k is not a multiple of 64";
  if (c.a.col != 1) return "rows of a are not contiguous";
  return c.b.row == 1 ? nullptr : "columns of b are not contiguous";
}

// Nothing but the product, and eight columns at a time.
bool plain(const GemmCall& c) {
  return c.plain() && !c.c.data && c.out == c.in && c.n % 8 == 0 && gemm_out_of(c).wide_d;
}

// An operand [extent, k] in boxes of `box` of its extent by two blocks of 64 of k, one after the other. once: as in TensorBox, whose
// boxes have no third dim.
bool map_of(const GemmCall& c, const Matrix& x, int64_t extent, int64_t along_extent, int box, bool once,
            CUtensorMap* map) {
  static const auto encode = driver_call<decltype(&cuTensorMapEncodeTiled)>("cuTensorMapEncodeTiled");
  if (!encode) return false;
  const auto count = [](int64_t n) { return static_cast<cuuint64_t>(n); };
  const int64_t batch = x.batch ? c.batch : 1, size = dtype_bytes(c.in);
  const cuuint64_t sizes[4] = {kTileK, count(extent), count(c.k / kTileK), count(batch)};
  // The stride of a dim of size 1 is never used, but must be one that the driver accepts.
  const cuuint64_t strides[3] = {count(extent > 1 ? along_extent * size : 16), kSwizzleBytes,
                                 count(batch > 1 ? x.batch * size : 16)};
  const cuuint32_t extents[4] = {kTileK, static_cast<cuuint32_t>(box), kGemmNarrowK / kTileK, 1},
                   steps[4] = {1, 1, 1, 1};
  const auto type = c.in == EK_DTYPE_F16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  return encode(map, type, 4, x.data, sizes, strides, extents, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                CU_TENSOR_MAP_SWIZZLE_128B,
                once ? CU_TENSOR_MAP_L2_PROMOTION_L2_128B : CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

template <class T, int kRows>
ek_status run_rows(const GemmCall& c, const GemmNarrowPlan& plan, const Launch& l) {
  GemmSm90NarrowParams p;
  p.out = gemm_out_of(c);
  p.plan = plan;
  const int64_t steps = gemm_ceil(c.k, kGemmNarrowK);
  p.steps = static_cast<int32_t>(steps / plan.split);
  p.longer = static_cast<int32_t>(steps % plan.split);
  p.b_bytes = gemm_narrow_b_bytes(plan.cols);
  p.at = gemm_narrow_places(plan);
  p.a_batch = c.a.batch != 0;
  p.b_batch = c.b.batch != 0;
  p.constant_b = c.constant_b;
  p.plain = plain(c);
  if (!map_of(c, c.a, c.m, c.a.row, plan.a_rows, false, &p.a) || !map_of(c, c.b, c.n, c.b.col, plan.cols, true, &p.b))
    return fail(l.context, EK_STATUS_CUDA, "gemm_sm90_narrow: the driver refused a tensor map");
  Grid grid;
  grid.blocks = dim3(static_cast<unsigned>(gemm_ceil(c.n, plan.cols) * plan.row_tiles * plan.split),
                     static_cast<unsigned>(c.batch));
  grid.threads = dim3(kNarrowThreads);
  grid.smem = plan.smem;
  grid.cluster = plan.split;
  return launch(l, gemm_sm90_narrow<GemmSm90NarrowShape<T, kRows>>, grid, p);
}

template <class T>
ek_status run_plan(const GemmCall& c, const GemmNarrowPlan& plan, const Launch& l) {
  switch (plan.rows) {
    case 8: return run_rows<T, 8>(c, plan, l);
    case 16: return run_rows<T, 16>(c, plan, l);
    case 32: return run_rows<T, 32>(c, plan, l);
    default: return run_rows<T, 64>(c, plan, l);
  }
}

ek_status run(const GemmCall& call, const Launch& l) {
  return gemm_for_each_slab(call, [&](const GemmCall& c) {
    const GemmNarrowPlan plan = gemm_narrow_plan(c, l.device);
    return c.in == EK_DTYPE_BF16 ? run_plan<bf16>(c, plan, l) : run_plan<half>(c, plan, l);
  });
}

}  // namespace

const GemmKernel kGemmSm90Narrow = {sm(90), why_not, run, nullptr, kDeterministic, 0};

}  // namespace ek
