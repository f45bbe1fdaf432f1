// SPDX-License-Identifier: Apache-2.0
// group_norm on CUDA: y = (x - mean) * rstd * weight[c] + bias[c], mean and rstd of each (image, group), in f32.
// cluster, vec: the unit in the registers of a cluster (up to 1 MB) or of a block (up to 128 KB); x is read once. cluster has
// a kernel for units that are the same number of vectors for every thread, and one for the others.
// split: groups of any size, x is read twice: 3/2 of the bytes. The last is the same, element by element.
#include "dispatch/ops_gen.h"
#include "ops/norm/group_norm_split.cuh"
#include "ops/norm/group_norm_whole.cuh"

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

// What a call's units are in accesses of so many elements.
struct GroupNormUnits {
  int together;           // groups of a unit
  int64_t run, accesses;  // accesses of a run, of a unit
};
static GroupNormUnits group_norm_units(const GroupNormArgs& a, int width) {
  const int64_t run = group_run(a) / width;
  if (is_nchw(a)) return {1, run, run * group_channels(a)};
  const int together = group_norm_together(width * dtype_bytes(a.T), run, a.groups);
  return {together, run * together, run * together * a.positions};
}

template <class Params>
static Params group_norm_params(const GroupNormArgs& a, const GroupNormUnits& units) {
  Params p = {};
  p.x = a.x.ptr<std::remove_pointer_t<decltype(p.x)>>();
  p.y = a.y.ptr<std::remove_pointer_t<decltype(p.y)>>();
  p.weight = a.weight.ptr<std::remove_pointer_t<decltype(p.weight)>>();
  p.bias = a.bias.ptr<std::remove_pointer_t<decltype(p.bias)>>();
  p.together = units.together;
  p.channels = group_channels(a) * p.together;
  p.channel_runs = is_nchw(a);
  p.x_image = a.x.stride[0];
  p.x_run = a.x.stride[1];
  p.x_unit = p.channels * (p.channel_runs ? p.x_run : 1);
  p.y_image = a.y.stride[0];
  p.y_run = a.y.stride[1];
  p.y_unit = p.channels * (p.channel_runs ? p.y_run : 1);
  p.units = a.groups / p.together;
  p.count = a.batch * p.units;
  if (p.together > 1) {
    const int run = static_cast<int>(units.run);
    p.group_bits = run - run / p.together;
    while (run / p.together >> p.group_shift > 1) ++p.group_shift;
  }
  p.factor = 1.f / static_cast<float>(group_elements(a));
  p.eps = a.eps;
  return p;
}

// ---- cluster and vec: the unit in registers --------------------------------------------------------------------------

static GroupNormUnits group_vectors(const GroupNormArgs& a) { return group_norm_units(a, 16 / dtype_bytes(a.T)); }
static int64_t held_run(const GroupNormArgs& a) { return is_nchw(a) ? 1 : group_vectors(a).run; }

template <class Params>
static Params group_norm_held_params(const GroupNormArgs& a, const NormConfig& config) {
  const GroupNormUnits units = group_vectors(a);
  auto p = group_norm_params<Params>(a, units);
  p.per_image = Divider(p.units);
  p.run = Divider(units.run);
  p.cluster = config.cluster > 1;
  p.y_step = config.threads / units.run * p.y_run;
  p.vectors = static_cast<uint32_t>(units.accesses);
  p.share = static_cast<uint32_t>(group_norm_share(units.accesses, held_run(a), config.cluster));
  return p;
}

static const char* not_held(const GroupNormArgs& a) {
  if (group_norm_width(a) * dtype_bytes(a.T) != 16) return "runs of a group are not whole, aligned 16-byte vectors";
  return a.batch * a.groups <= 0x7fffffff / kMaxCluster && a.channels <= 0x7fffffff ? nullptr
                                                                                    : "too many groups or channels";
}

static NormConfig cluster_config(const GroupNormArgs& a) {
  return group_norm_cluster_config(group_vectors(a).accesses, held_run(a));
}
static NormConfig block_config(const GroupNormArgs& a) {
  return group_norm_block_config(group_vectors(a).accesses, held_run(a));
}

static const char* why_not_cluster(const GroupNormArgs& a, const Device&) {
  if (const char* why = not_held(a)) return why;
  if (cluster_config(a).threads) return nullptr;
  return block_config(a).threads ? "groups fit in the registers of a block"
                                 : "groups are larger than a cluster's registers, or of an odd width";
}

static const char* why_not_vec(const GroupNormArgs& a, const Device&) {
  if (const char* why = not_held(a)) return why;
  return block_config(a).threads ? nullptr : "groups are larger than a block's registers, or of an odd width";
}

static Grid group_norm_grid(int64_t units, const NormConfig& config) {
  Grid grid;
  grid.blocks = dim3(static_cast<unsigned>(units * config.cluster));
  grid.threads = dim3(config.threads);
  grid.cluster = config.cluster;
  return grid;
}

static ek_status group_norm_held_launch(const GroupNormArgs& a, const NormConfig& config, const Launch& l) {
  return with_float(a.T, [&](auto type) {
    using T = typename decltype(type)::type;
    const auto p = group_norm_held_params<GroupNormHeldParams<T>>(a, config);
    const Grid grid = group_norm_grid(p.count, config);
    if (config.vectors == 2) return launch(l, group_norm_held<T, 2>, grid, p);
    if (config.vectors == 4) return launch(l, group_norm_held<T, 4>, grid, p);
    return launch(l, group_norm_held<T, 8>, grid, p);
  });
}

// Whether a call is what group_norm_whole takes.
static bool group_norm_is_whole(const GroupNormArgs& a, const NormConfig& config) {
  const GroupNormUnits units = group_vectors(a);
  const int64_t run = group_run(a);
  const bool one_run = a.x.stride[1] == run && a.y.stride[1] == run && units.run % (32 * kGroupNormWholeVectors) == 0;
  return is_nchw(a) && one_run && config.threads <= kGroupNormWholeThreads &&
         config.vectors == kGroupNormWholeVectors &&
         units.accesses == int64_t{config.cluster} * config.threads * config.vectors && a.weight && a.bias;
}

static ek_status group_norm_whole_launch(const GroupNormArgs& a, const NormConfig& config, const Launch& l) {
  return with_float(a.T, [&](auto type) {
    using T = typename decltype(type)::type;
    const auto p = group_norm_held_params<GroupNormHeldParams<T>>(a, config);
    const Grid grid = group_norm_grid(p.count, config);
    if (config.threads <= 128) return launch(l, group_norm_whole<T, 128>, grid, p);
    if (config.threads <= 256) return launch(l, group_norm_whole<T, 256>, grid, p);
    return launch(l, group_norm_whole<T, 512>, grid, p);
  });
}

static ek_status group_norm_cuda_cluster(const GroupNormArgs& a, const Launch& l) {
  const NormConfig config = cluster_config(a);
  return group_norm_is_whole(a, config) ? group_norm_whole_launch(a, config, l) : group_norm_held_launch(a, config, l);
}

static ek_status group_norm_cuda_vec(const GroupNormArgs& a, const Launch& l) {
  return group_norm_held_launch(a, block_config(a), l);
}

// ---- split and the catch-all: two passes -----------------------------------------------------------------------------

static size_t group_norm_partials(const GroupNormArgs& a, int width) {
  const int64_t accesses = group_norm_units(a, width).accesses;
  return sizeof(GroupSums) * a.batch * a.groups * norm_ceil_div(accesses, group_norm_part(accesses));
}

// sum_part, part: accesses of a part in the first and the second pass.
template <class T, int W, bool kWhole>
static ek_status group_norm_two_passes(const GroupNormArgs& a, const Launch& l, int64_t sum_part, int64_t part) {
  const GroupNormUnits units = group_norm_units(a, W);
  auto p = group_norm_params<GroupNormSplitParams<T>>(a, units);
  p.run = units.run;
  p.accesses = units.accesses;
  p.runs_ahead = static_cast<int32_t>(kGroupNormSplitThreads / p.run);
  p.ahead = static_cast<int32_t>(kGroupNormSplitThreads % p.run);
  p.short_run = static_cast<int32_t>(p.run < 0x7fffffff ? p.run : 0x7fffffff);
  p.x_step = p.runs_ahead * p.x_run + p.ahead * W;
  p.y_step = p.runs_ahead * p.y_run + p.ahead * W;
  p.x_wrap = p.x_run - p.run * W;
  p.y_wrap = p.y_run - p.run * W;
  const auto cut = [&](int64_t size) {
    p.part = size;
    p.parts = static_cast<int32_t>(norm_ceil_div(p.accesses, size));
    Grid grid;
    grid.blocks = dim3(grid_blocks(p.count * p.parts, 1));
    grid.threads = dim3(kGroupNormSplitThreads);
    return grid;
  };
  GroupSums* partial = static_cast<GroupSums*>(l.workspace);
  Grid grid = cut(sum_part);
  p.summed = p.parts;
  if (const ek_status status = launch(l, group_norm_moments<T, W, kWhole>, grid, p, partial)) return status;
  // The second overlaps the end of the first whatever the context says: both are ours, and it waits for the results.
  Launch chained = l;
  chained.flags |= EK_FLAG_PDL;
  grid = cut(part);
  return launch(chained, group_norm_result<T, W, kWhole>, grid, p, static_cast<const GroupSums*>(partial));
}

template <class T, int W>
static ek_status group_norm_two_passes(const GroupNormArgs& a, const Launch& l) {
  const GroupNormUnits units = group_norm_units(a, W);
  if constexpr (W == kVec<T>)
    if (const int64_t part = is_nchw(a) ? group_norm_whole_part(units.accesses, units.run) : 0)
      return group_norm_two_passes<T, W, true>(a, l, part, kGroupNormWholePart);
  const int64_t part = group_norm_part(units.accesses);
  return group_norm_two_passes<T, W, false>(a, l, part, part);
}

static const char* why_not_split(const GroupNormArgs& a, const Device&) {
  return group_norm_width(a) > 1 ? nullptr : "runs of a group have an odd length or alignment";
}

static size_t split_workspace(const GroupNormArgs& a, const Device&) {
  return group_norm_partials(a, group_norm_width(a));
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

static size_t any_workspace(const GroupNormArgs& a, const Device&) { return group_norm_partials(a, 1); }

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
