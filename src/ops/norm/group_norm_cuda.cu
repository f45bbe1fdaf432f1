// SPDX-License-Identifier: Apache-2.0
// group_norm on CUDA: y = (x - mean) * rstd * weight[c] + bias[c], mean and rstd of each (image, group), in f32.
// cluster, vec: the group in the registers of a cluster (up to 1 MB) or of a block; x is read once.
// split: groups of any size, x is read twice: 3/2 of the bytes. The last is the same, element by element.
#include "dispatch/ops_gen.h"
#include "ops/norm/group_norm.cuh"

namespace ek {

static bool is_nchw(const GroupNormArgs& a) { return a.layout == EK_IMAGE_LAYOUT_NCHW; }
static int64_t group_channels(const GroupNormArgs& a) { return a.channels / a.groups; }
static int64_t group_run(const GroupNormArgs& a) { return is_nchw(a) ? a.positions : group_channels(a); }
static int64_t group_elements(const GroupNormArgs& a) { return group_channels(a) * a.positions; }

// The most elements, up to 16 bytes, that every access to x and y can have.
static int group_norm_width(const GroupNormArgs& a) {
  const int bytes = dtype_bytes(a.T);
  for (int width = 16 / bytes; width > 1; width /= 2) {
    const bool aligned =
        rows_aligned(a.x, 2, width * bytes) && rows_aligned(a.y, 2, width * bytes) &&
        (is_nchw(a) || (rows_aligned(a.weight, 0, width * bytes) && rows_aligned(a.bias, 0, width * bytes)));
    if (aligned && group_run(a) % width == 0) return width;
  }
  return 1;
}

template <class T>
static GroupNormParams<T> group_norm_params(const GroupNormArgs& a, int width) {
  GroupNormParams<T> p;
  p.x = a.x.ptr<const T>();
  p.y = a.y.ptr<T>();
  p.weight = a.weight.ptr<const T>();
  p.bias = a.bias.ptr<const T>();
  p.channels = group_channels(a);
  p.channel_runs = is_nchw(a);
  p.x_image = a.x.stride[0];
  p.x_run = a.x.stride[1];
  p.x_group = p.channels * (p.channel_runs ? p.x_run : 1);
  p.y_image = a.y.stride[0];
  p.y_run = a.y.stride[1];
  p.y_group = p.channels * (p.channel_runs ? p.y_run : 1);
  p.count = a.batch * a.groups;
  p.groups = a.groups;
  p.run = group_run(a) / width;
  p.accesses = group_elements(a) / width;
  p.runs_ahead = kGroupNormSplitThreads / p.run;
  p.ahead = kGroupNormSplitThreads % p.run;
  p.factor = 1.f / static_cast<float>(group_elements(a));
  p.eps = a.eps;
  return p;
}

// ---- cluster and vec: the group in registers -------------------------------------------------------------------------

static int64_t group_vectors(const GroupNormArgs& a) { return group_elements(a) * dtype_bytes(a.T) / 16; }

static const char* not_vectors(const GroupNormArgs& a) {
  return group_norm_width(a) * dtype_bytes(a.T) == 16 ? nullptr
                                                      : "runs of a group are not whole, aligned 16-byte vectors";
}

static const char* why_not_cluster(const GroupNormArgs& a, const Device&) {
  if (const char* why = not_vectors(a)) return why;
  if (group_vectors(a) <= kGroupNormClusterFrom) return "a group fits in the registers of a block";
  return group_norm_cluster_config(group_vectors(a)).threads ? nullptr : "a group is larger than a cluster's registers";
}

static const char* why_not_vec(const GroupNormArgs& a, const Device&) {
  if (const char* why = not_vectors(a)) return why;
  return group_norm_block_config(group_vectors(a)).threads ? nullptr : "a group is larger than a block's registers";
}

static Grid group_norm_grid(int64_t count, const NormConfig& config) {
  const int64_t most = 0x7fffffff / config.cluster;
  Grid grid;
  grid.blocks = dim3(static_cast<unsigned>((count < most ? count : most) * config.cluster));
  grid.threads = dim3(config.threads);
  grid.cluster = config.cluster;
  return grid;
}

static ek_status group_norm_cuda_cluster(const GroupNormArgs& a, const Launch& l) {
  const NormConfig config = group_norm_cluster_config(group_vectors(a));
  return with_float(a.T, [&](auto type) {
    using T = typename decltype(type)::type;
    const auto p = group_norm_params<T>(a, kVec<T>);
    const Grid grid = group_norm_grid(p.count, config);
    return config.vectors == 4 ? launch(l, group_norm_held<T, 4, ClusterTeam<2>>, grid, p)
                               : launch(l, group_norm_held<T, 8, ClusterTeam<2>>, grid, p);
  });
}

static ek_status group_norm_cuda_vec(const GroupNormArgs& a, const Launch& l) {
  const NormConfig config = group_norm_block_config(group_vectors(a));
  return with_float(a.T, [&](auto type) {
    using T = typename decltype(type)::type;
    const auto p = group_norm_params<T>(a, kVec<T>);
    const Grid grid = group_norm_grid(p.count, config);
    return config.vectors == 2 ? launch(l, group_norm_held<T, 2, BlockTeam<2>>, grid, p)
                               : launch(l, group_norm_held<T, 4, BlockTeam<2>>, grid, p);
  });
}

// ---- split and the catch-all: two passes -----------------------------------------------------------------------------

static int64_t group_norm_parts(const GroupNormArgs& a, int width) {
  const int64_t accesses = group_elements(a) / width;
  return norm_ceil_div(accesses, group_norm_part(accesses));
}

template <class T, int W>
static ek_status group_norm_two_passes(const GroupNormArgs& a, const Launch& l) {
  const auto p = group_norm_params<T>(a, W);
  const int64_t part = group_norm_part(p.accesses), parts = norm_ceil_div(p.accesses, part);
  Moments* partial = static_cast<Moments*>(l.workspace);
  Grid grid;
  grid.blocks = dim3(grid_blocks(p.count * parts, 1));
  grid.threads = dim3(kGroupNormSplitThreads);
  if (const ek_status status = launch(l, group_norm_moments<T, W>, grid, p, partial, parts, part)) return status;
  // The second overlaps the end of the first whatever the context says: both are ours, and it waits for the results.
  Launch chained = l;
  chained.flags |= EK_FLAG_PDL;
  return launch(chained, group_norm_result<T, W>, grid, p, static_cast<const Moments*>(partial), parts, part);
}

static const char* why_not_split(const GroupNormArgs& a, const Device&) {
  return group_norm_width(a) > 1 ? nullptr : "runs of a group have an odd length or alignment";
}

static size_t split_workspace(const GroupNormArgs& a, const Device&) {
  return sizeof(Moments) * a.batch * a.groups * group_norm_parts(a, group_norm_width(a));
}

static ek_status group_norm_cuda_split(const GroupNormArgs& a, const Launch& l) {
  const int width = group_norm_width(a);
  return with_float(a.T, [&](auto type) {
    using T = typename decltype(type)::type;
    constexpr int V = kVec<T>;
    if (width == V) return group_norm_two_passes<T, V>(a, l);
    if (width == V / 2) return group_norm_two_passes<T, V / 2>(a, l);
    return group_norm_two_passes<T, 2>(a, l);
  });
}

static size_t any_workspace(const GroupNormArgs& a, const Device&) {
  return sizeof(Moments) * a.batch * a.groups * group_norm_parts(a, 1);
}

static ek_status group_norm_cuda(const GroupNormArgs& a, const Launch& l) {
  return with_float(a.T, [&](auto type) { return group_norm_two_passes<typename decltype(type)::type, 1>(a, l); });
}

const Kernel<GroupNormArgs> kGroupNormCuda[] = {
    {"group_norm_cuda_cluster", sm(90), why_not_cluster, group_norm_cuda_cluster},
    {"group_norm_cuda_vec", sm(75), why_not_vec, group_norm_cuda_vec},
    {"group_norm_cuda_split", sm(75), why_not_split, group_norm_cuda_split, split_workspace},
    {"group_norm_cuda", sm(75), nullptr, group_norm_cuda, any_workspace},
    {},
};

}  // namespace ek
