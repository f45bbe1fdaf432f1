// SPDX-License-Identifier: Apache-2.0
// Each pixel becomes a 2 x 2 block. Every item is read and written to two rows of y. In nchw an element is written twice
// in each; in nhwc a pixel is two items, one for each column of y: a block that writes whole pieces of rows is quicker
// than one that reads less (3.85 against 3.54 TB/s). Elements are only moved, so their size is all that matters.
// _vec: 16-byte stores (nchw: from 8-byte loads); the other row takes any alignment.
#include "dispatch/ops_gen.h"
#include "ops/elementwise/map.cuh"

namespace ek {
namespace {

// Rows are the dims of x outside the last one, with the strides of y doubled where pixels are: x, y.
struct Upsample {
  Rows<2> rows;
  int64_t dim;    // of x
  int64_t below;  // from a row of y to the next one, in elements
  int grow;       // elements of y for one of x in a row
};

Upsample problem(const UpsampleNearest2xArgs& a) {
  const Tensor &x = a.x, &y = a.y;
  Rows<2> rows;
  if (a.layout == EK_IMAGE_LAYOUT_NCHW) {
    add_dim(&rows, a.d2, {x.stride[2], 2 * y.stride[2]});
    add_dim(&rows, a.d1, {x.stride[1], y.stride[1]});
    add_dim(&rows, a.batch, {x.stride[0], y.stride[0]});
    return {rows, a.d3, y.stride[2], 2};
  }
  add_dim(&rows, 2, {0, y.stride[2]});  // columns of y
  add_dim(&rows, a.d2, {x.stride[2], 2 * y.stride[2]});
  add_dim(&rows, a.d1, {x.stride[1], 2 * y.stride[1]});
  add_dim(&rows, a.batch, {x.stride[0], y.stride[0]});
  return {rows, a.d3, y.stride[1], 1};
}

template <class E>
struct UpsampleParams {
  const E* x;
  E* y;
  int64_t below;
  RowItems<2> items;
};

// V elements of x in an item.
template <class E, bool kNchw, int V>
__global__ void __launch_bounds__(kUpsampleThreads) upsample_kernel(const __grid_constant__ UpsampleParams<E> p) {
  constexpr int U = kUpsampleUnroll, kGrow = kNchw ? 2 : 1;
  pdl_launch();
  const uint32_t first = blockIdx.x * (U * kUpsampleThreads) + threadIdx.x;
  int64_t at[U][2];
#pragma unroll
  for (int u = 0; u < U; ++u) {
    const int64_t column = static_cast<int64_t>(p.items.locate(first + u * kUpsampleThreads, at[u])) * V;
    at[u][0] += column;
    at[u][1] += column * kGrow;
  }

  pdl_wait();
  Vec<E, V> in[U];
#pragma unroll
  for (int u = 0; u < U; ++u)
    if (first + u * kUpsampleThreads < p.items.count) in[u] = load_vec<E, V>(p.x + at[u][0]);
#pragma unroll
  for (int u = 0; u < U; ++u) {
    if (first + u * kUpsampleThreads >= p.items.count) break;
    E* y = p.y + at[u][1];
    if constexpr (kNchw && V == 1) {
      y[0] = y[1] = y[p.below] = y[p.below + 1] = in[u].v[0];
    } else if constexpr (kNchw) {
      Vec<E, 2 * V> out;
#pragma unroll
      for (int i = 0; i < V; ++i) out.v[2 * i] = out.v[2 * i + 1] = in[u].v[i];
      store_whole(y, out);
      store_whole(y + p.below, out);
    } else {
      store_whole(y, in[u]);
      store_whole(y + p.below, in[u]);
    }
  }
}

template <class E, bool kNchw, int V>
ek_status upsample_launch(const UpsampleNearest2xArgs& a, const Launch& l) {
  const Upsample u = problem(a);
  const int64_t step[2] = {V, V * u.grow};
  return for_each_slab(u.rows, u.dim / V, step, [&](const RowItems<2>& items, const int64_t (&at)[2]) {
    const UpsampleParams<E> p = {a.x.ptr<const E>() + at[0], a.y.ptr<E>() + at[1], u.below, items};
    const unsigned blocks = grid_blocks(items.count, kUpsampleUnroll * kUpsampleThreads);
    return launch(l, upsample_kernel<E, kNchw, V>, {blocks, kUpsampleThreads}, p);
  });
}

const char* why_not_vec(const UpsampleNearest2xArgs& a, const Device&) {
  const Upsample u = problem(a);
  const int bytes = dtype_bytes(a.T), to = 16 / bytes, from = to / u.grow;  // elements of a vector of y, of x
  if (u.dim % from) return "the last dim of x is not a multiple of a vector";
  if (reinterpret_cast<uintptr_t>(a.x.data) % (from * bytes) || reinterpret_cast<uintptr_t>(a.y.data) % 16)
    return "x or y does not start on a multiple of its vector";
  bool even = u.below % to == 0;
  for (int d = 0; d < u.rows.ndim; ++d) even = even && u.rows.stride[0][d] % from == 0 && u.rows.stride[1][d] % to == 0;
  return even ? nullptr : "a row of x or y does not start on a multiple of its vector";
}

ek_status upsample_nearest_2x_cuda_vec(const UpsampleNearest2xArgs& a, const Launch& l) {
  const bool nchw = a.layout == EK_IMAGE_LAYOUT_NCHW;
  if (dtype_bytes(a.T) == 2)
    return nchw ? upsample_launch<uint16_t, true, 4>(a, l) : upsample_launch<uint16_t, false, 8>(a, l);
  return nchw ? upsample_launch<uint32_t, true, 2>(a, l) : upsample_launch<uint32_t, false, 4>(a, l);
}

ek_status upsample_nearest_2x_cuda(const UpsampleNearest2xArgs& a, const Launch& l) {
  const bool nchw = a.layout == EK_IMAGE_LAYOUT_NCHW;
  if (dtype_bytes(a.T) == 2)
    return nchw ? upsample_launch<uint16_t, true, 1>(a, l) : upsample_launch<uint16_t, false, 1>(a, l);
  return nchw ? upsample_launch<uint32_t, true, 1>(a, l) : upsample_launch<uint32_t, false, 1>(a, l);
}

}  // namespace

const Kernel<UpsampleNearest2xArgs> kUpsampleNearest2xCuda[] = {
    {"upsample_nearest_2x_cuda_vec", sm(75), why_not_vec, upsample_nearest_2x_cuda_vec},
    {"upsample_nearest_2x_cuda", sm(75), nullptr, upsample_nearest_2x_cuda},
    {},
};

}  // namespace ek
