// SPDX-License-Identifier: Apache-2.0
// y * scale = silu(gate) * up with a scale for each row or for each group of its elements, to e4m3 or i8. Values stay in
// f32, unrounded, until they are divided by their scale.
// _vec (16-byte loads): a row scale keeps the row in the registers of a block, and groups of 1, 2, 4 ... 32 vectors are
// reduced across lanes, so x is read once; wider rows and other groups are read again, from L2.
// The other row takes any alignment and any group, and reads twice.
#include "cuda/quant.cuh"
#include "cuda/reduce.cuh"
#include "ops/activation/activation.cuh"

namespace ek {
namespace {

template <class T>
struct QuantParams {
  const T* in[2];  // gate, up; vectors of interleaved pairs come from the first alone
  int64_t step;    // from an element of gate or up to the next: 2 where they are interleaved
  void* y;
  float* scale;
  int64_t scale_stride;  // from group to group
  int64_t dim, group;    // group <= dim, but for dim = 0
  RowItems<4> items;     // rows, groups, or vectors of x, up, y, scale
};

// V values at element `column` of the row whose offsets are `at`.
template <class T, bool kPaired, int V>
struct QuantItem {
  MapInput<T, 2, kPaired, V> input;

  __device__ __forceinline__ void load(const QuantParams<T>& p, const int64_t (&at)[4], int64_t column) {
    const int64_t here[2] = {at[0] + column * p.step, at[1] + column * p.step};
    input.load(p.in, here);
  }
  // Sets v and returns the largest of `most` and |v|, or NaN.
  __device__ __forceinline__ float values(float (&v)[V], float most) const {
    using M = CudaMathFor<T>;
    float x[2][V];
    input.values(x);
#pragma unroll
    for (int i = 0; i < V; ++i) {
      v[i] = Gate<Silu<M>>()(x[0][i], x[1][i]);
      most = MaxNan()(most, fabsf(v[i]));
    }
    return most;
  }
};

template <class Q, class T, int V>
__device__ __forceinline__ void quant_store(const QuantParams<T>& p, const int64_t (&at)[4], int64_t column,
                                            const Quantizer<Q>& quantize, const float (&v)[V]) {
  store_vec(static_cast<Q*>(p.y) + at[2] + column, quantize(v));
}

// One scale for a row, the row in registers: kValues of a thread. Items are rows.
// NOTE: the second bound matters even where it is 1: without it 32 values took 80 us in place of 71 (4096x28672).
template <class T, class Q, bool kPaired, int kValues>
__global__ void __launch_bounds__(kQuantRowThreads, sizeof(T) * kValues == 32 ? kSmThreads / kQuantRowThreads : 1)
    quant_row_kernel(const __grid_constant__ QuantParams<T> p) {
  constexpr int V = (kPaired ? 8 : 16) / static_cast<int>(sizeof(T)), kVectors = kValues / V;
  __shared__ float scratch[kQuantRowThreads / 32];
  pdl_launch();
  int64_t at[4];
  p.items.locate(blockIdx.x, at);
  const auto column = [&](int k) { return static_cast<int64_t>(threadIdx.x + k * blockDim.x) * V; };

  pdl_wait();
  QuantItem<T, kPaired, V> item[kVectors];
#pragma unroll
  for (int k = 0; k < kVectors; ++k)
    if (column(k) < p.dim) item[k].load(p, at, column(k));

  float v[kVectors][V], most = 0.f;
#pragma unroll
  for (int k = 0; k < kVectors; ++k)
    if (column(k) < p.dim) most = item[k].values(v[k], most);
  const Quantizer<Q> quantize(block_reduce(most, MaxNan(), scratch, blockDim.x));

  if (threadIdx.x == 0) p.scale[at[3]] = quantize.scale;
#pragma unroll
  for (int k = 0; k < kVectors; ++k)
    if (column(k) < p.dim) quant_store(p, at, column(k), quantize, v[k]);
}

// Groups of `lanes` vectors, a power of two up to 32. Items are vectors; the last group of a row is filled up with
// vectors past its end, which count as 0. All lanes stay for the reductions.
template <class T, class Q, bool kPaired>
__global__ void __launch_bounds__(kQuantGroupThreads)
    quant_group_kernel(const __grid_constant__ QuantParams<T> p, int lanes, int lanes_log2) {
  constexpr int V = (kPaired ? 8 : 16) / static_cast<int>(sizeof(T)), U = kQuantGroupUnroll;
  pdl_launch();
  int64_t at[U][4];
  uint32_t vector[U];  // of the row
  bool valid[U];
#pragma unroll
  for (int u = 0; u < U; ++u) {
    const uint32_t item = blockIdx.x * (U * kQuantGroupThreads) + u * kQuantGroupThreads + threadIdx.x;
    vector[u] = p.items.locate(item, at[u]);
    valid[u] = item < p.items.count && static_cast<int64_t>(vector[u]) * V < p.dim;
  }

  pdl_wait();
  QuantItem<T, kPaired, V> item[U];
#pragma unroll
  for (int u = 0; u < U; ++u)
    if (valid[u]) item[u].load(p, at[u], static_cast<int64_t>(vector[u]) * V);
#pragma unroll
  for (int u = 0; u < U; ++u) {
    float v[V], most = 0.f;
    if (valid[u]) most = item[u].values(v, most);
    const Quantizer<Q> quantize(warp_reduce(most, MaxNan(), lanes));
    if (!valid[u]) continue;
    // The first vector of a group is always within the row.
    if (threadIdx.x % lanes == 0) p.scale[at[u][3] + (vector[u] >> lanes_log2) * p.scale_stride] = quantize.scale;
    quant_store(p, at[u], static_cast<int64_t>(vector[u]) * V, quantize, v);
  }
}

// Any group, read twice. Items are groups, each the work of `team` threads: a warp, or the whole block.
template <class T, class Q, bool kPaired, int V>
__global__ void __launch_bounds__(kQuantAnyThreads)
    quant_any_kernel(const __grid_constant__ QuantParams<T> p, int team) {
  __shared__ float scratch[kQuantAnyThreads / 32];
  pdl_launch();
  const int thread = threadIdx.x % team;
  const uint32_t item = blockIdx.x * (kQuantAnyThreads / team) + threadIdx.x / team;
  int64_t at[4];
  const int64_t group = p.items.locate(item, at), begin = group * p.group;
  int64_t end = begin + p.group < p.dim ? begin + p.group : p.dim;
  if (item >= p.items.count) end = begin;  // a warp without work goes along

  pdl_wait();
  float most = 0.f;
  for (int64_t column = begin + thread * V; column < end; column += team * V) {
    float v[V];
    QuantItem<T, kPaired, V> values;
    values.load(p, at, column);
    most = values.values(v, most);
  }
  const Quantizer<Q> quantize(block_reduce(most, MaxNan(), scratch, team));
  if (thread == 0 && item < p.items.count) p.scale[at[3] + group * p.scale_stride] = quantize.scale;
  for (int64_t column = begin + thread * V; column < end; column += team * V) {
    float v[V];
    QuantItem<T, kPaired, V> values;
    values.load(p, at, column);
    values.values(v, 0.f);
    quant_store(p, at, column, quantize, v);
  }
}

// ---- launch -----------------------------------------------------------------------------------------------------------

// Calls f(Type<T>, Type<Q>).
template <class F>
ek_status with_types(const SwigluQuantArgs& a, F&& f) {
  return with_float(a.T, [&](auto t) { return a.Q == EK_DTYPE_E4M3 ? f(t, Type<e4m3>()) : f(t, Type<int8_t>()); });
}

// One scale for the whole row is a group of dim elements.
int64_t group_size(const SwigluQuantArgs& a) { return a.group == 0 || a.group > a.dim ? a.dim : a.group; }

// Elements in a vector: two of the layouts load it from two places, one loads pairs.
int vector_size(const SwigluQuantArgs& a) {
  return (a.layout == EK_GATE_LAYOUT_INTERLEAVED ? 8 : 16) / dtype_bytes(a.T);
}

// Slabs of rows with `per_row` items of `size` elements; run(p) launches one.
template <class T, class F>
ek_status quant_slabs(const SwigluQuantArgs& a, int64_t per_row, int64_t size, F&& run) {
  const Stream up = second_stream(a.x, a.up, a.layout, a.dim);
  const bool interleaved = a.layout == EK_GATE_LAYOUT_INTERLEAVED;
  const int64_t wide = interleaved ? 2 * size : size;
  const int64_t step[4] = {wide, wide, size, a.scale.stride[a.lead]};
  const Rows<4> rows = make_rows<4>(a.lead, {&a.x, up.tensor, &a.y, &a.scale});
  return for_each_slab(rows, per_row, step, [&](const RowItems<4>& items, const int64_t (&at)[4]) {
    QuantParams<T> p;
    p.in[0] = a.x.ptr<const T>() + at[0];
    p.in[1] = up.tensor->ptr<const T>() + (interleaved ? 1 : up.shift) + at[1];
    p.step = interleaved ? 2 : 1;
    p.y = a.y.ptr<char>() + at[2];
    p.scale = a.scale.ptr<float>() + at[3];
    p.scale_stride = a.scale.stride[a.lead];
    p.dim = a.dim - items.first * size;
    p.group = group_size(a);
    p.items = items;
    return run(p);
  });
}

template <class T, class Q, bool kPaired>
ek_status quant_rows(const SwigluQuantArgs& a, const Launch& l) {
  const QuantRowConfig config = choose_quant_row(a.dim, sizeof(T));
  return quant_slabs<T>(a, 1, a.dim, [&](const QuantParams<T>& p) {
    const Grid grid = {p.items.count, static_cast<unsigned>(config.threads)};
    if constexpr (sizeof(T) == 2)
      if (config.values == 32) return launch(l, quant_row_kernel<T, Q, kPaired, 32>, grid, p);
    return launch(l, quant_row_kernel<T, Q, kPaired, 16>, grid, p);
  });
}

template <class T, class Q, bool kPaired>
ek_status quant_groups(const SwigluQuantArgs& a, const Launch& l) {
  const int lanes = static_cast<int>(group_size(a)) / vector_size(a);
  int lanes_log2 = 0;
  while (1 << lanes_log2 < lanes) ++lanes_log2;
  return quant_slabs<T>(a, a.groups * lanes, vector_size(a), [&](const QuantParams<T>& p) {
    const unsigned blocks = grid_blocks(p.items.count, kQuantGroupUnroll * kQuantGroupThreads);
    return launch(l, quant_group_kernel<T, Q, kPaired>, {blocks, kQuantGroupThreads}, p, lanes, lanes_log2);
  });
}

template <class T, class Q, bool kPaired, int V>
ek_status quant_any(const SwigluQuantArgs& a, const Launch& l) {
  const int64_t group = group_size(a);
  const int team = choose_quant_team(group / V);
  return quant_slabs<T>(a, a.groups, group, [&](const QuantParams<T>& p) {
    const unsigned blocks = grid_blocks(p.items.count, kQuantAnyThreads / team);
    return launch(l, quant_any_kernel<T, Q, kPaired, V>, {blocks, kQuantAnyThreads}, p, team);
  });
}

const char* why_not_vec(const SwigluQuantArgs& a, const Device&) {
  const int vector = vector_size(a);
  if (a.dim % vector || group_size(a) % vector) return "dim or group is not a multiple of a vector";
  if (a.dim == 0 || a.dim >= int64_t(1) << 31) return "dim is 0, or 2^31 or more";
  if (!rows_aligned(a.x, a.lead, 16) || !rows_aligned(a.up, a.lead, 16))
    return "rows of x or up are not 16-byte aligned";
  if (!rows_aligned(a.y, a.lead, vector)) return "rows of y are not aligned to a vector";
  return nullptr;
}

template <class T, class Q, bool kPaired>
ek_status quant_vec(const SwigluQuantArgs& a, const Launch& l) {
  constexpr int V = (kPaired ? 8 : 16) / static_cast<int>(sizeof(T));
  const int64_t group = group_size(a), lanes = group / V;
  if (lanes <= 32 && (lanes & (lanes - 1)) == 0) return quant_groups<T, Q, kPaired>(a, l);
  if (group == a.dim && a.dim <= max_quant_row(sizeof(T))) return quant_rows<T, Q, kPaired>(a, l);
  return quant_any<T, Q, kPaired, V>(a, l);
}

ek_status swiglu_quant_cuda_vec(const SwigluQuantArgs& a, const Launch& l) {
  return with_types(a, [&](auto t, auto q) {
    using T = typename decltype(t)::type;
    using Q = typename decltype(q)::type;
    return a.layout == EK_GATE_LAYOUT_INTERLEAVED ? quant_vec<T, Q, true>(a, l) : quant_vec<T, Q, false>(a, l);
  });
}

ek_status swiglu_quant_cuda(const SwigluQuantArgs& a, const Launch& l) {
  return with_types(a, [&](auto t, auto q) {
    return quant_any<typename decltype(t)::type, typename decltype(q)::type, false, 1>(a, l);
  });
}

}  // namespace

const Kernel<SwigluQuantArgs> kSwigluQuantCuda[] = {
    {"swiglu_quant_cuda_vec", sm(75), why_not_vec, swiglu_quant_cuda_vec},
    {"swiglu_quant_cuda", sm(75), nullptr, swiglu_quant_cuda},
    {},
};

}  // namespace ek
