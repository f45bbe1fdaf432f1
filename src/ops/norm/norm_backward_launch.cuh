// SPDX-License-Identifier: Apache-2.0
// The rows of a backward norm: from its arguments to launches. An op's file gives a function that fills the call.
#pragma once

#include <algorithm>

#include "ops/norm/norm_backward_any.cuh"

namespace ek {

struct NormBackwardCall {
  static constexpr Tensor kNone = {};
  const Tensor *dy = &kNone, *x = &kNone, *dx = &kNone;
  const Tensor *weight = &kNone, *rstd = &kNone, *mean = &kNone;
  const Tensor *dweight = &kNone, *dbias = &kNone;
  ek_dtype dtype = 0;
  int lead = 0;
  int64_t rows = 0, dim = 0;
  float eps = 0.f, weight_offset = 0.f;

  int64_t vectors() const { return dim * dtype_bytes(dtype) / 16; }
  bool wants_sums() const { return *dweight || *dbias; }
};

// `dweight`, `dbias`: partial sums in the workspace, or null.
template <class T>
NormBackwardParams<T> norm_backward_params(const NormBackwardCall& c, float* dweight, float* dbias) {
  NormBackwardParams<T> p;
  p.dy = c.dy->ptr<const T>();
  p.x = c.x->ptr<const T>();
  p.weight = c.weight->ptr<const T>();
  p.rstd = c.rstd->ptr<const float>();
  p.mean = c.mean->ptr<const float>();
  p.dx = c.dx->ptr<T>();
  p.dweight = dweight;
  p.dbias = dbias;
  p.dim = c.dim;
  p.vectors = static_cast<int32_t>(c.dim / kVec<T>);
  p.factor = 1.f / static_cast<float>(c.dim);
  p.eps = c.eps;
  p.weight_offset = p.weight ? c.weight_offset : 1.f;  // kernels read 0 where there is no weight: a factor of 1
  p.rows = make_rows<kBackwardTensors>(c.lead, {c.dy, c.x, c.dx, c.rstd, c.mean});
  p.count = p.rows.count;
  p.even = p.rows.ndim == 1;
  for (int t = 0; t < kBackwardTensors; ++t) p.step[t] = p.rows.stride[t][0];
  return p;
}

inline const char* norm_backward_not_vectors(const NormBackwardCall& c) {
  const int v = 16 / dtype_bytes(c.dtype);
  if (c.dim % v) return v == 8 ? "dim % 8 != 0" : "dim % 4 != 0";
  for (const Tensor* t : {c.dy, c.x, c.dx})
    if (!rows_aligned(*t, c.lead, 16)) return "rows are not 16-byte aligned";
  return rows_aligned(*c.weight, 0, 16) ? nullptr : "weight is not 16-byte aligned";
}

// The blocks of a call, and whether they come in pairs, which add up their sums. Fixed by rows, dim and the GPU, so that the
// order of the sums is. Larger clusters would leave SMs out: of four there is room for 62 where 66 would take all.
struct NormBackwardBlocks {
  int64_t count;
  bool pairs;

  NormBackwardBlocks(const NormBackwardCall& c, const NormConfig& config, const Device& device) {
    const int64_t most = static_cast<int64_t>(device.processors) * config.blocks_per_sm;
    count = std::min(norm_ceil_div(c.rows, config.rows_per_block), most);
    pairs = device.target >= 90 && config.threads > 32 && count == most && count % 2 == 0 && c.wants_sums();
  }
  int64_t partials() const { return pairs ? count / 2 : count; }
  Grid grid(const NormConfig& config) const {
    Grid grid;
    grid.blocks = dim3(static_cast<unsigned>(count));
    grid.threads = dim3(config.threads, config.rows_per_block);
    grid.cluster = pairs ? 2 : 1;
    return grid;
  }
};

inline size_t norm_partial_bytes(const NormBackwardCall& c, int64_t blocks) {
  return sizeof(float) * c.dim * blocks * ((*c.dweight ? 1 : 0) + (*c.dbias ? 1 : 0));
}

// The partial sums of `blocks` blocks, one after the other from `at` on.
struct NormPartials {
  float *dweight = nullptr, *dbias = nullptr;
  NormPartials(const NormBackwardCall& c, int64_t blocks, float* at) {
    if (*c.dweight) dweight = at;
    if (*c.dbias) dbias = at + (*c.dweight ? blocks * c.dim : 0);
  }
};

// dweight and dbias from their partial sums. Overlaps the end of the kernel before it whatever the context says: both
// are ours, and this one waits for the other's results.
template <class T>
ek_status norm_backward_sums(const NormBackwardCall& c, const Launch& l, const NormPartials& partials, int64_t blocks) {
  if (!c.wants_sums()) return EK_STATUS_OK;
  Launch chained = l;
  if (blocks > 0) chained.flags |= EK_FLAG_PDL;
  Grid grid;
  grid.blocks = dim3(grid_blocks(c.dim, kNormFinishColumns), 2);
  grid.threads = dim3(kNormFinishColumns, kNormFinishRows);
  return launch(chained, norm_backward_finish<T>, grid, partials.dweight, partials.dbias, c.dweight->ptr<T>(),
                c.dbias->ptr<T>(), c.dim, static_cast<int>(blocks));
}

template <class Args, NormBackwardCall (*kCall)(const Args&), bool kCentre>
struct NormBackwardKernels {
  static NormConfig bulk_config(const NormBackwardCall& c, const Device& device) {
    return norm_backward_bulk_config(c.vectors(), dtype_bytes(c.dtype), device);
  }

  static const char* why_not_bulk(const Args& a, const Device& device) {
    const NormBackwardCall c = kCall(a);
    if (const char* why = norm_backward_not_vectors(c)) return why;
    if (c.vectors() <= kNormBulkFrom) return "a row is short enough for registers";
    return bulk_config(c, device).threads ? nullptr : "two stages of a row do not fit in shared memory";
  }

  static size_t bulk_workspace(const Args& a, const Device& device) {
    const NormBackwardCall c = kCall(a);
    return norm_partial_bytes(c, NormBackwardBlocks(c, bulk_config(c, device), device).partials());
  }

  static ek_status bulk(const Args& a, const Launch& l) {
    const NormBackwardCall c = kCall(a);
    const NormConfig config = bulk_config(c, l.device);
    const NormBackwardBlocks blocks(c, config, l.device);
    const NormPartials partials(c, blocks.partials(), static_cast<float*>(l.workspace));
    return with_float(c.dtype, [&](auto type) {
      using T = typename decltype(type)::type;
      const auto p = norm_backward_params<T>(c, partials.dweight, partials.dbias);
      const auto run = [&](auto kernel) {
        Grid grid = blocks.grid(config);
        const int64_t stages = int64_t{config.rows_per_block} * config.stages * 2 * 16 * p.vectors;
        grid.smem = std::max(stages, norm_backward_bulk_room(config, l.device));  // the sums take less
        return launch(l, kernel, grid, p, config.stages, blocks.pairs);
      };
      if (blocks.count > 0) {
        ek_status status;
        if (config.threads == 32)
          status = config.vectors == 4 ? run(norm_backward_bulk<kCentre, T, 4, WarpTeam<2, 32>>)
                                       : run(norm_backward_bulk<kCentre, T, kNormBulkWarpVectors, WarpTeam<2, 32>>);
        else if (config.vectors == 2)
          status = run(norm_backward_bulk<kCentre, T, 2, BlockTeam<2>>);
        else if (config.vectors == 4 || sizeof(T) == 2)
          status = run(norm_backward_bulk<kCentre, T, 4, BlockTeam<2>>);
        else
          status = run(norm_backward_bulk < kCentre, T, sizeof(T) == 2 ? 4 : 8, BlockTeam<2> >);
        if (status) return status;
      }
      return norm_backward_sums<T>(c, l, partials, blocks.partials());
    });
  }

  static const char* why_not_vec(const Args& a, const Device&) {
    const NormBackwardCall c = kCall(a);
    if (const char* why = norm_backward_not_vectors(c)) return why;
    return norm_backward_vec_config(c.vectors()).threads ? nullptr : "a row is wider than the registers of a block";
  }

  static size_t vec_workspace(const Args& a, const Device& device) {
    const NormBackwardCall c = kCall(a);
    return norm_partial_bytes(c, NormBackwardBlocks(c, norm_backward_vec_config(c.vectors()), device).partials());
  }

  static ek_status vec(const Args& a, const Launch& l) {
    const NormBackwardCall c = kCall(a);
    const NormConfig config = norm_backward_vec_config(c.vectors());
    const NormBackwardBlocks blocks(c, config, l.device);
    const NormPartials partials(c, blocks.partials(), static_cast<float*>(l.workspace));
    return with_float(c.dtype, [&](auto type) {
      using T = typename decltype(type)::type;
      const auto p = norm_backward_params<T>(c, partials.dweight, partials.dbias);
      Grid grid = blocks.grid(config);
      grid.smem = config.rows_per_block > 1 ? sizeof(float) * config.rows_per_block * c.dim
                  : blocks.pairs            ? norm_backward_pair_bytes(config, sizeof(T))
                                            : sizeof(float4);
      if (blocks.count > 0) {
        ek_status status;
        if (config.threads <= 32)
          status = config.vectors == 2
                       ? launch(l, norm_backward_vec<kCentre, T, 2, WarpTeam<2>>, grid, p, blocks.pairs)
                       : launch(l, norm_backward_vec<kCentre, T, 4, WarpTeam<2>>, grid, p, blocks.pairs);
        else
          status = config.vectors == 2
                       ? launch(l, norm_backward_vec<kCentre, T, 2, BlockTeam<2>>, grid, p, blocks.pairs)
                       : launch(l, norm_backward_vec<kCentre, T, 4, BlockTeam<2>>, grid, p, blocks.pairs);
        if (status) return status;
      }
      return norm_backward_sums<T>(c, l, partials, blocks.partials());
    });
  }

  // [rstd, mean] where they were not given, to a multiple of 256 bytes; then the partial sums.
  static size_t stats_bytes(const NormBackwardCall& c) {
    return *c.rstd ? 0 : static_cast<size_t>(norm_ceil_div(2 * sizeof(float) * c.rows, 256) * 256);
  }

  static size_t any_workspace(const Args& a, const Device&) {
    const NormBackwardCall c = kCall(a);
    return stats_bytes(c) + norm_partial_bytes(c, norm_backward_slices(c.rows));
  }

  static ek_status any(const Args& a, const Launch& l) {
    const NormBackwardCall c = kCall(a);
    const NormConfig config = norm_any_config(c.dim);
    const int64_t slices = norm_backward_slices(c.rows);
    float* stats = *c.rstd ? nullptr : static_cast<float*>(l.workspace);
    char* after_stats = static_cast<char*>(l.workspace) + stats_bytes(c);
    const NormPartials partials(c, slices, reinterpret_cast<float*>(after_stats));
    return with_float(c.dtype, [&](auto type) {
      using T = typename decltype(type)::type;
      const auto p = norm_backward_params<T>(c, partials.dweight, partials.dbias);
      if (c.rows == 0) return norm_backward_sums<T>(c, l, partials, 0);
      Grid grid;
      grid.blocks = dim3(grid_blocks(c.rows, config.rows_per_block));
      grid.threads = dim3(config.threads, config.rows_per_block);
      const bool warp = config.threads <= 32;
      ek_status status = EK_STATUS_OK;
      if (stats)
        status = warp ? launch(l, norm_backward_stats<kCentre, T, WarpTeam<2>>, grid, p, stats)
                      : launch(l, norm_backward_stats<kCentre, T, BlockTeam<2>>, grid, p, stats);
      if (status) return status;
      if (c.wants_sums()) {
        Grid columns;
        columns.blocks = dim3(grid_blocks(c.dim, 32), static_cast<unsigned>(slices));
        columns.threads = dim3(32, kNormColumnsRows);
        status = launch(l, norm_backward_columns<kCentre, T>, columns, p, stats, norm_ceil_div(c.rows, slices));
        if (status) return status;
        status = norm_backward_sums<T>(c, l, partials, slices);
        if (status) return status;
      }
      return warp ? launch(l, norm_backward_dx<kCentre, T, WarpTeam<2>>, grid, p, stats)
                  : launch(l, norm_backward_dx<kCentre, T, BlockTeam<2>>, grid, p, stats);
    });
  }
};

}  // namespace ek
