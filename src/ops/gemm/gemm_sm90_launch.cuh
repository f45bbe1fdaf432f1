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

// The box of an operand's last rows, in whole steps of the swizzle; 0 where they fill one like the others.
inline int gemm_edge(int64_t extent, int box) { return static_cast<int>(gemm_ceil(extent % box, 8) * 8); }

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
  p.stages = plan.stages ? std::min(plan.stages, Tile::kStages) : Tile::kStages;
  p.partials = static_cast<float*>(l.workspace);
  p.counters = l.counters;

  p.rows = static_cast<int32_t>(c.m);
  p.cols = static_cast<int32_t>(c.n);
  constexpr int kBoxA = Tile::kRows / Tile::Place::kCols;
  constexpr int kBoxB = Tile::kCols / Tile::Place::kRows;
  const int edge_a = gemm_edge(c.m, kBoxA), edge_b = gemm_edge(c.n, kBoxB);
  bool ok = gemm_operand_map(c, c.a, c.m, c.a.row, c.a.col, kBoxA, Tile::kFew, &p.a) &&
            gemm_operand_map(c, c.b, c.n, c.b.col, c.b.row, kBoxB, false, &p.b);
  if (edge_a) ok = ok && gemm_operand_map(c, c.a, c.m, c.a.row, c.a.col, edge_a, Tile::kFew, &p.a_edge);
  if (edge_b) ok = ok && gemm_operand_map(c, c.b, c.n, c.b.col, c.b.row, edge_b, false, &p.b_edge);
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
