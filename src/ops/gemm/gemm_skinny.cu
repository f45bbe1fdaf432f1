// SPDX-License-Identifier: Apache-2.0
// gemm_sm80_skinny: up to 16 rows of a, b contiguous along k, 16-bit. gemm_skinny.cuh has the kernel.
#include "ops/gemm/gemm_config.h"
#include "ops/gemm/gemm_rows.h"
#include "ops/gemm/gemm_skinny.cuh"
#include "ops/gemm/gemm_store.cuh"

namespace ek {

namespace {

const char* why_not(const GemmCall& c, const Device&) {
  if (c.in == EK_DTYPE_F32) return "16-bit inputs only";
  if (c.m > 16) return "m is more than 16";
  if (c.n == 0 || c.batch == 0) return "a dim is 0";
  if (c.k == 0 || c.k % 8 || c.k > kGemmMaxDim) return "k is not a positive multiple of 8, below 2^31";
  if (c.b.row != 1 || !gemm_rows_aligned(c.b, c.in, 16)) return "columns of b are not contiguous on 16-byte boundaries";
  if (c.a.col != 1 || !gemm_rows_aligned(c.a, c.in, 16)) return "rows of a are not contiguous on 16-byte boundaries";
  if (c.d.col != 1 || (c.c.data && c.c.col != 1)) return "rows of c or d are not contiguous";
  return nullptr;
}

template <class S>
ek_status run_shape(const GemmCall& c, const Launch& l) {
  Grid grid;
  const int64_t blocks = gemm_skinny_blocks(c, l.device, S::kCols, S::kBlocks);
  grid.blocks = dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(c.batch));
  grid.threads = dim3(kSkinnyWarps * 32);
  grid.smem = S::kSmemBytes;
  return launch(l, gemm_skinny<S>, grid, gemm_skinny_params(c));
}

ek_status run(const GemmCall& call, const Launch& l) {
  return gemm_for_each_slab(call, [&](const GemmCall& c) {
    const auto with_type = [&](auto type) {
      using T = typename decltype(type)::type;
      // One group of 16 columns, four steps of k in flight, two blocks an SM: the best of seven forms. Where no more steps than
      // those follow, a third block has the registers that they would take.
      const auto with_rows = [&](auto tokens) {
        constexpr int kTokens = decltype(tokens)::value;
        using Once = GemmSkinnyShape<T, 1, kTokens, 4, 3, true>;
        return c.k <= Once::kMaxOnce ? run_shape<Once>(c, l) : run_shape<GemmSkinnyShape<T, 1, kTokens, 4, 2>>(c, l);
      };
      return c.m <= 8 ? with_rows(std::integral_constant<int, 1>{}) : with_rows(std::integral_constant<int, 2>{});
    };
    return c.in == EK_DTYPE_BF16 ? with_type(Type<bf16>{}) : with_type(Type<half>{});
  });
}

}  // namespace

const GemmKernel kGemmSkinny = {sm(80), why_not, run, nullptr, kDeterministic, 0};

}  // namespace ek
