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
      return gemm_sm90_launch<GemmSm90Tile<T, kInfo.pingpong ? kInfo.rows : kInfo.rows / 2, kInfo.cols, kInfo.pingpong,
                                           kInfo.share, kTransA, kTransB, kFinish>>(c, plan, l);
  }
  return fail(l.context, EK_STATUS_INTERNAL, "gemm_sm90: a plan for a tile that is not built");
}

template <class T, bool kTransA, bool kTransB, GemmFinish kFinish>
ek_status gemm_sm90_run(const GemmCall& c, const GemmPlan& plan, const Launch& l) {
  return gemm_sm90_run_tile<T, kTransA, kTransB, kFinish, 0>(c, plan, l);
}

template <class T, bool kTransB, int kTile>
ek_status gemm_sm90_run_swap_tile(const GemmCall& c, const GemmPlan& plan, const Launch& l) {
  if constexpr (kTile < kGemmSwapCount) {
    if (plan.tile != kTile) return gemm_sm90_run_swap_tile<T, kTransB, kTile + 1>(c, plan, l);
    return gemm_sm90_launch<
        GemmSm90Tile<T, 64, kGemmSwapCols[kTile], false, GemmShare::kNone, kTransB, false, GemmFinish::kSwap>>(c, plan,
                                                                                                               l);
  }
  return fail(l.context, EK_STATUS_INTERNAL, "gemm_sm90: a plan for a tile that is not built");
}

template <class T, bool kTransB>
ek_status gemm_sm90_run_swap(const GemmCall& c, const GemmPlan& plan, const Launch& l) {
  return gemm_sm90_run_swap_tile<T, kTransB, 0>(c, plan, l);
}

}  // namespace ek
