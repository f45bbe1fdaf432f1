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

inline Grid norm_grid(int64_t rows, const NormConfig& config) {
  const int64_t most = 0x7fffffff / config.cluster, blocks = norm_ceil_div(rows, config.rows_per_block);
  Grid grid;
  grid.blocks = dim3(static_cast<unsigned>((blocks < most ? blocks : most) * config.cluster));
  grid.threads = dim3(config.threads, config.rows_per_block);
  grid.cluster = config.cluster;
  return grid;
}

template <class Args, NormCall (*kCall)(const Args&), NormInput kInput, bool kCentre, bool kQuant = false>
struct NormKernels {
  // Of a thread, limited by registers, and for the quantized ones, with their six pairs of dtypes, by compile time.
  static constexpr int kMaxVectors = kInput == NormInput::kPlain && !kQuant ? 8 : 4;

  static int64_t vectors_of(const NormCall& c) { return c.dim * dtype_bytes(c.dtype) / 16; }

  static const char* why_not_cluster(const Args& a, const Device&) {
    const NormCall c = kCall(a);
    if (const char* why = norm_not_vectors(c)) return why;
    if (vectors_of(c) <= kNormClusterFrom) return "a row fits in the registers of a block";
    const NormConfig config = norm_cluster_config(vectors_of(c), kMaxVectors);
    if (!config.threads) return "a row is wider than the registers of a cluster";
    return norm_not_groups(c, config);
  }

  static const char* why_not_vec(const Args& a, const Device&) {
    const NormCall c = kCall(a);
    if (const char* why = norm_not_vectors(c)) return why;
    const NormConfig config = norm_vec_config(vectors_of(c), kMaxVectors);
    if (!config.threads) return "a row is wider than the registers of a block";
    return norm_not_groups(c, config);
  }

  static ek_status cluster(const Args& a, const Launch& l) {
    const NormCall c = kCall(a);
    return with_norm_op<kInput, kCentre, kQuant>(c, [&](auto type) {
      using Op = typename decltype(type)::type;
      const NormConfig config = norm_cluster_config(vectors_of(c), kMaxVectors);
      const auto p = norm_params<typename Op::T, typename Op::Out>(c);
      return with_vectors<4, kMaxVectors>(config.vectors, [&](auto k) {
        return launch(l, norm_rows_vec<Op, decltype(k)::value, ClusterTeam<2>>, norm_grid(p.count, config), p);
      });
    });
  }

  static ek_status vec(const Args& a, const Launch& l) {
    const NormCall c = kCall(a);
    return with_norm_op<kInput, kCentre, kQuant>(c, [&](auto type) {
      using Op = typename decltype(type)::type;
      const NormConfig config = norm_vec_config(vectors_of(c), kMaxVectors);
      const auto p = norm_params<typename Op::T, typename Op::Out>(c);
      const Grid grid = norm_grid(p.count, config);
      if (config.threads <= 32)
        return with_vectors<2, kMaxVectors>(config.vectors, [&](auto k) {
          return launch(l, norm_rows_vec<Op, decltype(k)::value, WarpTeam<2>>, grid, p);
        });
      return with_vectors<2, kMaxVectors>(config.vectors, [&](auto k) {
        return launch(l, norm_rows_vec<Op, decltype(k)::value, BlockTeam<2>>, grid, p);
      });
    });
  }

  static ek_status any(const Args& a, const Launch& l) {
    const NormCall c = kCall(a);
    return with_norm_op<kInput, kCentre, kQuant>(c, [&](auto type) {
      using Op = typename decltype(type)::type;
      const NormConfig config = norm_any_config(c.dim);
      const auto p = norm_params<typename Op::T, typename Op::Out>(c);
      const Grid grid = norm_grid(p.count, config);
      return config.threads <= 32 ? launch(l, norm_rows_any<Op, WarpTeam<2>>, grid, p)
                                  : launch(l, norm_rows_any<Op, BlockTeam<2>>, grid, p);
    });
  }
};

}  // namespace ek
