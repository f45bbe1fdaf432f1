// SPDX-License-Identifier: Apache-2.0
// From a GemmCall and a plan to a launch of gemm_sm90<Tile>.
#pragma once

#include "cuda/tensor_map.h"
#include "ops/gemm/gemm_config.h"
#include "ops/gemm/gemm_sm90.cuh"

namespace ek {

// The same product with rows and columns of d exchanged: what a turned tile computes.
inline GemmCall gemm_turned(GemmCall c) {
  std::swap(c.m, c.n);
  std::swap(c.a, c.b);
  std::swap(c.a.row, c.a.col);
  std::swap(c.b.row, c.b.col);
  return c;  // c and d stay as they are: the kernel stores transposed
}

// An operand [extent, k] as the copy engine sees it; `box` of its extent at a time. once: as in TensorBox.
inline bool gemm_operand_map(const GemmCall& c, const Matrix& x, int64_t extent, int64_t along_extent, int64_t along_k,
                             int box, bool once, CUtensorMap* map) {
  const int64_t batch = x.batch ? c.batch : 1;
  TensorBox t = {x.data, c.in, c.k, extent, batch, along_extent, x.batch, kTileK, box};
  if (along_k != 1) t = {x.data, c.in, extent, c.k, batch, along_k, x.batch, 64, kTileK};
  t.once = once;
  return make_tensor_map(t, map);
}

// An operand's maps: of its boxes and of the last of them.
inline bool gemm_operand_maps(const GemmCall& c, const Matrix& x, int64_t extent, int64_t along_extent, int64_t along_k,
                              int box, bool once, CUtensorMap* map, CUtensorMap* edge, GemmEdge* last_out) {
  if (along_k != 1) box = 64;
  const int64_t last = (extent - 1) / box * box;
  *last_out = {static_cast<int32_t>(last), static_cast<int32_t>(gemm_ceil(extent - last, 8) * 8)};
  if (!gemm_operand_map(c, x, extent, along_extent, along_k, box, once, map)) return false;
  *edge = *map;
  return last_out->rows == box || along_k != 1 ||
         gemm_operand_map(c, x, extent, along_extent, along_k, last_out->rows, once, edge);
}

template <class Tile>
ek_status gemm_sm90_launch(const GemmCall& call, const GemmPlan& plan, const Launch& l) {
  const GemmCall c = Tile::kTurned ? gemm_turned(call) : call;
  GemmSm90Params p;
  p.schedule = plan.schedule;
  p.schedule.divide_by_hand();
  p.out = gemm_out_of(call);
  p.scale = c.alpha * c.out_scale;
  p.a_batch = c.a.batch != 0;
  p.b_batch = c.b.batch != 0;
  p.constant_b = c.constant_b;
  p.late = plan.late;
  p.stages = plan.stages ? std::min(plan.stages, Tile::kStages) : Tile::kStages;
  const int split = plan.schedule.split;
  p.each = Divider(gemm_split_each(Tile::kCols, split));
  p.sums = 0;
  if (Tile::kFew && split > 1) {
    const int bytes = gemm_split_bytes(Tile::kCols, split);
    p.stages = std::min(p.stages, Tile::kStages - (bytes + Tile::kStageBytes - 1) / Tile::kStageBytes);
    p.sums = p.stages * Tile::kStageBytes;
  }
  p.partials = static_cast<float*>(l.workspace);
  p.counters = l.counters;

  constexpr int kBoxA = Tile::kRows / Tile::Place::kCols;
  constexpr int kBoxB = Tile::kCols / Tile::Place::kRows;
  bool ok = gemm_operand_maps(c, c.a, c.m, c.a.row, c.a.col, kBoxA, Tile::kFew, &p.a, &p.a_edge, &p.a_last) &&
            gemm_operand_maps(c, c.b, c.n, c.b.col, c.b.row, kBoxB, false, &p.b, &p.b_edge, &p.b_last);
  const auto result_map = [&](const Matrix& x, CUtensorMap* map) {
    return make_tensor_map({x.data, c.out, call.n, call.m, x.batch ? c.batch : 1, x.row, x.batch,
                            Tile::kTurned ? 64 : Tile::kChunkCols, Tile::kTurned ? Tile::kChunkCols : 64},
                           map);
  };
  if (Tile::kPlain) ok = ok && result_map(c.d, &p.d);
  p.c_batch = c.c.batch != 0;
  p.boxes = !Tile::kPlain && Tile::kBoxes && gemm_takes_boxes(call) && result_map(c.d, &p.d) &&
            (!c.c.data || result_map(c.c, &p.c));
  p.shares = p.boxes && plan.shares;
  if (!Tile::kPlain && Tile::kBoxesOnly) ok = ok && p.boxes;
  if (!ok) return fail(l.context, EK_STATUS_CUDA, "gemm_sm90: the driver refused a tensor map");

  Grid grid;
  const int cluster = Tile::kCluster * plan.schedule.split;
  grid.blocks = dim3(plan.schedule.workers * cluster);
  grid.threads = dim3(kGemmSm90Threads);
  grid.smem = Tile::kSmemBytes;
  grid.cluster = cluster;
  return launch(l, gemm_sm90<Tile>, grid, p);
}

}  // namespace ek
