// SPDX-License-Identifier: Apache-2.0
// From a plan to the kernel that it names. Each gemm_sm90_<layout>_<dtype>.cu builds the functions of gemm_sm90_run.h for
// its layout and dtype.
#pragma once

#include "ops/gemm/gemm_sm90_launch.cuh"
#include "ops/gemm/gemm_sm90_run.h"

namespace ek {

template <class T, bool kTransA, bool kTransB, GemmFinish kFinish, int kTile>
ek_status gemm_sm90_run_tile(const GemmCall& c, const GemmPlan& plan, const Launch& l) {
  if constexpr (kTile < kGemmTileCount) {
    constexpr GemmTileInfo kInfo = kGemmTiles[kTile];
    if (plan.tile != kTile) return gemm_sm90_run_tile<T, kTransA, kTransB, kFinish, kTile + 1>(c, plan, l);
    if constexpr (gemm_tile_built(kTile, !kTransA && !kTransB, kFinish))
      return gemm_sm90_launch<GemmSm90Tile<T, kInfo.groups == GemmGroups::kRows ? kInfo.rows / 2 : kInfo.rows,
                                           kInfo.groups == GemmGroups::kCols ? kInfo.cols / 2 : kInfo.cols,
                                           kInfo.groups, kInfo.share, kTransA, kTransB, kFinish, kInfo.turned>>(c, plan,
                                                                                                                l);
  }
  return fail(l.context, EK_STATUS_INTERNAL, "gemm_sm90: a plan for a tile that is not built");
}

template <class T, bool kTransA, bool kTransB, GemmFinish kFinish>
ek_status gemm_sm90_run(const GemmCall& c, const GemmPlan& plan, const Launch& l) {
  return gemm_sm90_run_tile<T, kTransA, kTransB, kFinish, 0>(c, plan, l);
}

template <class T, bool kTransB, GemmFinish kFinish, int kTile>
ek_status gemm_sm90_run_swap_tile(const GemmCall& c, const GemmPlan& plan, const Launch& l) {
  if constexpr (kTile < kGemmSwapCount) {
    constexpr GemmSwapTile kInfo = kGemmSwapTiles[kTile];
    if (plan.tile != kTile) return gemm_sm90_run_swap_tile<T, kTransB, kFinish, kTile + 1>(c, plan, l);
    if constexpr (gemm_swap_tile_built(kTile, kTransB, kFinish))
      return gemm_sm90_launch<GemmSm90Tile<T, kInfo.groups == GemmGroups::kRows ? kInfo.rows / 2 : kInfo.rows,
                                           kInfo.cols, kInfo.groups, kInfo.share, kTransB, false, kFinish, true>>(
          c, plan, l);
  }
  return fail(l.context, EK_STATUS_INTERNAL, "gemm_sm90: a plan for a tile that is not built");
}

template <class T, bool kTransB>
ek_status gemm_sm90_run_swap(const GemmCall& c, const GemmPlan& plan, const Launch& l) {
  if constexpr (!kTransB)
    if (gemm_swap_finish(c) == GemmFinish::kPlain)
      return gemm_sm90_run_swap_tile<T, false, GemmFinish::kPlain, 0>(c, plan, l);
  return gemm_sm90_run_swap_tile<T, kTransB, GemmFinish::kFull, 0>(c, plan, l);
}

}  // namespace ek
