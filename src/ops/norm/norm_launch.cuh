// SPDX-License-Identifier: Apache-2.0
// The rows of a forward norm: from its arguments to a launch. An op's file gives a function that fills a NormCall.
#pragma once

#include <type_traits>

#include "ops/norm/norm_rows.cuh"
#include "ops/norm/norm_rows_any.cuh"

namespace ek {

// f(integral_constant K) with K = vectors, one of kLeast, kLeast * 2 ... kMost.
template <int kLeast, int kMost, class F>
ek_status with_vectors(int vectors, F&& f) {
  if constexpr (kLeast < kMost)
    if (vectors > kLeast) return with_vectors<kLeast * 2, kMost>(vectors, f);
  return f(std::integral_constant<int, kLeast>{});
}

// f(Type<NormOp<...>>) for the call's dtypes.
template <NormInput kInput, bool kCentre, bool kQuant, class F>
ek_status with_norm_op(const NormCall& c, F&& f) {
  return with_float(c.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    if constexpr (kQuant) {
      return c.out == EK_DTYPE_E4M3 ? f(Type<NormOp<T, e4m3, kInput, kCentre>>{})
                                    : f(Type<NormOp<T, int8_t, kInput, kCentre>>{});
    } else if constexpr (kInput == NormInput::kGateFirst) {
      return c.gate_last ? f(Type<NormOp<T, T, NormInput::kGateLast, kCentre>>{})
                         : f(Type<NormOp<T, T, NormInput::kGateFirst, kCentre>>{});
    } else {
      return f(Type<NormOp<T, T, kInput, kCentre>>{});
    }
  });
}

inline Grid norm_grid(uint32_t rows, const NormConfig& config) {
  Grid grid;
  grid.blocks = dim3(static_cast<unsigned>(norm_ceil_div(rows, config.rows_per_block)) * config.cluster);
  grid.threads = dim3(config.threads, config.rows_per_block);
  grid.cluster = config.cluster;
  return grid;
}

// Whether a slab's rows are what NormShape::kWhole says.
template <class Op>
bool norm_whole(const NormParams<Op>& p, const NormConfig& config) {
  return config.threads * config.vectors * config.cluster == p.vectors && p.rows.ndim == 1 &&
         p.count % config.rows_per_block == 0 && p.weight && (p.bias || !Op::kCentre);
}

template <class Op, int K, class Team>
ek_status norm_whole_launch(const Launch& l, const NormConfig& config, Grid grid, bool early, const NormParams<Op>& p) {
  if constexpr (Team::kCluster) {
    return launch(l, norm_rows_vec<Op, K, Team, false, NormShape::kWhole>, grid, p);
  } else {
    if constexpr (Op::kKind == NormKind::kHeavy && K == 4)
      if (const unsigned blocks = norm_stay_blocks(config, p.count, l.device.processors)) {
        grid.blocks.x = blocks;
        return launch(l, norm_rows_vec<Op, K, BlockTeam<2, kNormStayBlock / 32>, false, NormShape::kStays>, grid, p);
      }
    const auto go = [&](auto team) {
      using Of = typename decltype(team)::type;
      return early ? launch(l, norm_rows_vec<Op, K, Of, true, NormShape::kWhole>, grid, p)
                   : launch(l, norm_rows_vec<Op, K, Of, false, NormShape::kWhole>, grid, p);
    };
    if constexpr (Team::kWarp)
      return go(Type<Team>{});
    else
      return config.threads <= 256 ? go(Type<BlockTeam<2, 8>>{}) : go(Type<Team>{});
  }
}

template <class Args, NormCall (*kCall)(const Args&), NormInput kInput, bool kCentre, bool kQuant = false>
struct NormKernels {
  static constexpr bool kPlain = kInput == NormInput::kPlain;
  static constexpr NormKind kKind = norm_kind(kPlain, kCentre, kQuant);
  static constexpr int kMaxVectors = kPlain && !kQuant ? 8 : 4;
  static constexpr bool kThirds = kPlain && kQuant;  // bound by instructions, one input

  static int64_t vectors_of(const NormCall& c) { return c.dim * dtype_bytes(c.dtype) / 16; }
  static NormConfig vec_config(const NormCall& c) {
    if constexpr (kThirds) {
      const NormConfig thirds = norm_thirds_config(vectors_of(c));
      if (thirds.threads && (c.group <= 0 || c.group >= c.dim)) return thirds;
    }
    return norm_vec_config(vectors_of(c), kMaxVectors, kKind);
  }
  static NormConfig cluster_config(const NormCall& c) { return norm_cluster_config(vectors_of(c), kMaxVectors, kKind); }

  static const char* why_not_cluster(const Args& a, const Device&) {
    const NormCall c = kCall(a);
    if (const char* why = norm_not_vectors(c)) return why;
    const NormConfig config = cluster_config(c);
    if (!config.threads)
      return vec_config(c).threads ? "a row fits in the registers of a block"
                                   : "a row is wider than the registers of a cluster";
    return norm_not_groups(c, config);
  }

  static const char* why_not_vec(const Args& a, const Device&) {
    const NormCall c = kCall(a);
    if (const char* why = norm_not_vectors(c)) return why;
    const NormConfig config = vec_config(c);
    if (!config.threads) return "a row is wider than the registers of a block";
    return norm_not_groups(c, config);
  }

  template <class Team, int kLeast, int kMost>
  static ek_status rows(const NormCall& c, const NormConfig& config, const Launch& l) {
    return with_norm_op<kInput, kCentre, kQuant>(c, [&](auto type) {
      using Op = typename decltype(type)::type;
      return norm_for_each_slab<Op>(c, [&](auto p) {
        const Grid grid = norm_grid(p.count, config);
        p.ahead = norm_ahead(config, p.vectors, kPlain ? 1 : 2);
        // Few rows wait for memory, not for room on the SMs; so do small blocks of a light norm, of which three quarters
        // as many still suffice, and sums of two tensors, which wait twice as long. Clusters are slower with it.
        [[maybe_unused]] const bool few = grid.blocks.x <= 2u * l.device.processors;
        [[maybe_unused]] const bool small = kKind == NormKind::kLight && config.threads <= 256;
        [[maybe_unused]] const bool sums = kInput == NormInput::kAdd && config.rows_per_block == 1;
        [[maybe_unused]] const bool early = config.threads <= 512 && (few || small || sums);
        const auto with_k = [&](auto k) {
          constexpr int K = decltype(k)::value;
          if constexpr (kQuant) {
            if constexpr (!Team::kWarp && !Team::kCluster)
              if (!p.group && norm_whole(p, config))
                return config.threads <= 256
                           ? launch(l, norm_rows_vec<Op, K, BlockTeam<2, 8>, true, NormShape::kWhole>, grid, p)
                           : launch(l, norm_rows_vec<Op, K, Team, true, NormShape::kWhole>, grid, p);
            if (!p.group) return launch(l, norm_rows_vec<Op, K, Team, true>, grid, p);
            auto groups = p;
            for (int lanes = p.group / (K * kVec<typename Op::T>); lanes > 1; lanes /= 2) ++groups.group_shift;
            return launch(l, norm_rows_vec<Op, K, Team, true, NormShape::kGroups>, grid, groups);
          } else {
            if constexpr (!Op::kGated && (Team::kCluster || (Team::kWarp ? !Team::kLanes : K <= 4)))
              if (norm_whole(p, config)) return norm_whole_launch<Op, K, Team>(l, config, grid, early, p);
            if constexpr (K <= 4 && !Team::kCluster)
              if (early) return launch(l, norm_rows_vec<Op, K, Team, true>, grid, p);
            return launch(l, norm_rows_vec<Op, K, Team, false>, grid, p);
          }
        };
        if constexpr (kThirds && !Team::kWarp && !Team::kCluster)
          if (config.vectors == 3) return with_k(std::integral_constant<int, 3>{});
        return with_vectors<kLeast, kMost>(config.vectors, with_k);
      });
    });
  }

  static ek_status cluster(const Args& a, const Launch& l) {
    const NormCall c = kCall(a);
    return rows<ClusterTeam<2>, kMaxVectors, kMaxVectors>(c, cluster_config(c), l);
  }

  static ek_status vec(const Args& a, const Launch& l) {
    const NormCall c = kCall(a);
    const NormConfig config = vec_config(c);
    constexpr int kWarpVectors = kKind == NormKind::kHeavy ? kMaxVectors : 2;
    constexpr int kBlockVectors = kKind == NormKind::kHeavy ? 4 : 2;  // at least
    return config.threads < 32    ? rows<WarpTeam<2>, 2, 2>(c, config, l)
           : config.threads == 32 ? rows<WarpTeam<2, 32>, 2, kWarpVectors>(c, config, l)
                                  : rows<BlockTeam<2>, kBlockVectors, kMaxVectors>(c, config, l);
  }

  static ek_status any(const Args& a, const Launch& l) {
    const NormCall c = kCall(a);
    return with_norm_op<kInput, kCentre, kQuant>(c, [&](auto type) {
      using Op = typename decltype(type)::type;
      const NormConfig config = norm_any_config(c.dim);
      return norm_for_each_slab<Op>(c, [&](const auto& p) {
        const Grid grid = norm_grid(p.count, config);
        return config.threads <= 32 ? launch(l, norm_rows_any<Op, WarpTeam<2>>, grid, p)
                                    : launch(l, norm_rows_any<Op, BlockTeam<2>>, grid, p);
      });
    });
  }
};

}  // namespace ek
