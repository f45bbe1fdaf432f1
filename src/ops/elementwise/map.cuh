// SPDX-License-Identifier: Apache-2.0
// The map: out[0..kOut) = f(in[0..kIn)), element by element, in f32, for every op of the activation and elementwise
// families. An op describes its streams (Streams) and a functor:
//   static constexpr int kIn, kOut; static constexpr bool kPairs: it has an interleaved layout
//   begin(): once in each thread, before the first load (for scalars that live on the device)
//   operator()(M, const float (&in)[kIn][V], float (&out)[kOut][V]): V elements; M is the math backend
// map_cuda_vec moves 16 bytes at a time, map_cuda takes any alignment. An output may be an input: a thread has read all
// that it needs of an element before it writes it, and no other thread reads that element.
#pragma once

#include "cuda/launch.h"
#include "cuda/math.cuh"
#include "cuda/pdl.cuh"
#include "cuda/rows.cuh"
#include "cuda/vec.cuh"
#include "ops/elementwise/map_config.h"

namespace ek {

// ---- host: what an op says about its tensors ------------------------------------------------------------------------

struct Stream {
  const Tensor* tensor;
  int64_t shift = 0;  // elements past its start
};

template <int kIn, int kOut>
struct Streams {
  Stream in[kIn], out[kOut];
  int32_t lead;         // leading dims
  int64_t dim;          // elements of a row in each stream
  bool paired = false;  // the last two inputs, and both of two outputs, alternate in one tensor: g0 u0 g1 u1 ...

  // 2 for a tensor of pairs, else 1. Streams are numbered inputs first.
  int width(int t) const { return paired && (t >= kIn ? kOut == 2 : t >= kIn - 2) ? 2 : 1; }
  const Stream& stream(int t) const { return t < kIn ? in[t] : out[t - kIn]; }
  // Elements in a vector: no access is wider than 16 bytes.
  int vector() const {
    const int a = dtype_bytes(in[0].tensor->dtype), b = dtype_bytes(out[0].tensor->dtype);
    return 16 / (a > b ? a : b) / (paired ? 2 : 1);
  }
};

// What most functors share: no scalars on the device, no interleaved layout.
struct MapFunctor {
  static constexpr bool kPairs = false;
  __device__ __forceinline__ void begin() {}
};

template <int kIn, int kOut>
Rows<kIn + kOut> map_rows(const Streams<kIn, kOut>& s) {
  const Tensor* tensors[kIn + kOut];
  for (int t = 0; t < kIn + kOut; ++t) tensors[t] = s.stream(t).tensor;
  return make_rows<kIn + kOut>(s.lead, tensors);
}

// Every tensor is one dense range, walked in the same order.
template <int kIn, int kOut>
bool map_is_flat(const Streams<kIn, kOut>& s, const Rows<kIn + kOut>& rows) {
  if (rows.count == 1) return true;
  for (int t = 0; t < kIn + kOut; ++t)
    if (rows.ndim > 1 || rows.stride[t][0] != s.dim * s.width(t)) return false;
  return true;
}

template <int kIn, int kOut>
const char* map_why_not_vec(const Streams<kIn, kOut>& s) {
  const int vector = s.vector();
  for (int t = 0; t < kIn + kOut; ++t) {
    const Stream& stream = s.stream(t);
    const int size = dtype_bytes(stream.tensor->dtype), bytes = vector * s.width(t) * size;
    if ((reinterpret_cast<uintptr_t>(stream.tensor->data) + stream.shift * size) % bytes)
      return "a tensor does not start on a multiple of 16 bytes";
  }
  const Rows<kIn + kOut> rows = map_rows(s);
  if (map_is_flat(s, rows)) return nullptr;
  if (s.dim % vector) return "dim is not a multiple of 16 bytes, and the tensors are not dense";
  for (int t = 0; t < kIn + kOut; ++t)
    for (int d = 0; d < rows.ndim; ++d)
      if (rows.stride[t][d] % (vector * s.width(t))) return "a row does not start on a multiple of 16 bytes";
  return nullptr;
}

// ---- device -----------------------------------------------------------------------------------------------------------

template <class S, class D, int kIn, int kOut>
struct MapParams {
  const S* in[kIn];
  D* out[kOut];
  uint32_t tail;  // elements after the last whole vector of a flat range
  RowItems<kIn + kOut> items;
};

// V elements of each input. Pairs stay as they lie in memory until they are used: the first half of the vector in
// raw[kIn - 2], the second in raw[kIn - 1].
template <class S, int kIn, bool kPaired, int V>
struct MapInput {
  static constexpr int kPlain = kPaired ? kIn - 2 : kIn;
  Vec<S, V> raw[kIn];

  // From offsets at[0 .. kIn) on
  __device__ __forceinline__ void load(const S* const (&in)[kIn], const int64_t* at) {
#pragma unroll
    for (int t = 0; t < kPlain; ++t) raw[t] = load_vec<S, V>(in[t] + at[t]);
    if constexpr (kPaired && V == 1) {
      raw[kPlain] = load_vec<S, 1>(in[kPlain] + at[kPlain]);  // a pair may be misaligned
      raw[kPlain + 1] = load_vec<S, 1>(in[kPlain] + at[kPlain] + 1);
    } else if constexpr (kPaired) {
      const Vec<S, 2 * V> both = load_vec<S, 2 * V>(in[kPlain] + at[kPlain]);
#pragma unroll
      for (int i = 0; i < V; ++i) raw[kPlain].v[i] = both.v[i], raw[kPlain + 1].v[i] = both.v[V + i];
    }
  }

  __device__ __forceinline__ void values(float (&x)[kIn][V]) const {
#pragma unroll
    for (int t = 0; t < kIn; ++t) unpack(raw[t], x[t]);
    if constexpr (kPaired) {
      float both[2 * V];
#pragma unroll
      for (int i = 0; i < V; ++i) both[i] = x[kPlain][i], both[V + i] = x[kPlain + 1][i];
#pragma unroll
      for (int i = 0; i < V; ++i) x[kPlain][i] = both[2 * i], x[kPlain + 1][i] = both[2 * i + 1];
    }
  }
};

// V elements of each stream, at offsets `at` of the tensors.
template <class S, class D, int kIn, int kOut, bool kPaired, int V>
struct MapItem {
  MapInput<S, kIn, kPaired, V> input;
  int64_t at[kIn + kOut];

  __device__ __forceinline__ void locate(const RowItems<kIn + kOut>& items, uint32_t item) {
    shift(static_cast<int64_t>(items.locate(item, at)) * V);
  }
  // The same where all items lie side by side.
  __device__ __forceinline__ void locate(uint32_t item) {
#pragma unroll
    for (int t = 0; t < kIn + kOut; ++t) at[t] = 0;
    shift(static_cast<int64_t>(item) * V);
  }
  __device__ __forceinline__ void shift(int64_t column) {
#pragma unroll
    for (int t = 0; t < kIn + kOut; ++t)
      at[t] += kPaired && (t >= kIn ? kOut == 2 : t >= kIn - 2) ? 2 * column : column;
  }

  template <class F>
  __device__ __forceinline__ void compute_and_store(const F& f, D* const (&out)[kOut]) const {
    float x[kIn][V], y[kOut][V];
    input.values(x);
    f(CudaMathFor<D>(), x, y);
    if constexpr (kPaired && kOut == 2) {
      float both[2 * V];
#pragma unroll
      for (int i = 0; i < V; ++i) both[2 * i] = y[0][i], both[2 * i + 1] = y[1][i];
      D* p = out[0] + at[kIn];
      if constexpr (V == 1) {
        p[0] = from_float<D>(both[0]);
        p[1] = from_float<D>(both[1]);
      } else {
        store_vec(p, pack<D>(both));
      }
    } else {
#pragma unroll
      for (int t = 0; t < kOut; ++t) store_vec(out[t] + at[kIn + t], pack<D>(y[t]));
    }
  }
};

// Items of V elements, U in each thread, a block's items side by side. kWhole: whole blocks of one flat range, from which every
// question about rows and ends folds away.
template <class F, class S, class D, bool kPaired, int V, int U, bool kWhole>
__global__ void __launch_bounds__(kMapThreads)
    map_kernel(const __grid_constant__ MapParams<S, D, F::kIn, F::kOut> p, F f) {
  pdl_launch();
  const uint32_t first = blockIdx.x * (U * blockDim.x) + threadIdx.x;
  MapItem<S, D, F::kIn, F::kOut, kPaired, V> item[U];
#pragma unroll
  for (int u = 0; u < U; ++u) {
    if constexpr (kWhole) {
      item[u].locate(first + u * blockDim.x);
    } else {
      item[u].locate(p.items, first + u * blockDim.x);
    }
  }

  pdl_wait();
  f.begin();
  // All loads before the first use
#pragma unroll
  for (int u = 0; u < U; ++u)
    if (kWhole || first + u * blockDim.x < p.items.count) item[u].input.load(p.in, item[u].at);
#pragma unroll
  for (int u = 0; u < U; ++u)
    if (kWhole || first + u * blockDim.x < p.items.count) item[u].compute_and_store(f, p.out);

  // What a flat range has beyond its last whole vector
  if (!kWhole && V > 1 && blockIdx.x == 0 && threadIdx.x < p.tail) {
    MapItem<S, D, F::kIn, F::kOut, kPaired, 1> rest = {};
    rest.shift(static_cast<int64_t>(p.items.count) * V + threadIdx.x);
    rest.input.load(p.in, rest.at);
    rest.compute_and_store(f, p.out);
  }
}

// ---- launch -----------------------------------------------------------------------------------------------------------

template <class S, class D, bool kPaired, int V, class F>
ek_status map_launch(const Launch& l, const Streams<F::kIn, F::kOut>& s, const F& f) {
  constexpr int kStreams = F::kIn + F::kOut;
  Rows<kStreams> rows = map_rows(s);
  int64_t width = s.dim;
  if (map_is_flat(s, rows)) {
    width *= rows.count;
    rows = Rows<kStreams>();
    rows.count = rows.ndim = 1;
    rows.size[0] = 1;
  }
  const int64_t per_row = width / V;
  int64_t step[kStreams], done = 0;
  for (int t = 0; t < kStreams; ++t) step[t] = V * s.width(t);

  return for_each_slab(rows, per_row, step, [&](const RowItems<kStreams>& items, const int64_t (&at)[kStreams]) {
    MapParams<S, D, F::kIn, F::kOut> p;
    for (int t = 0; t < F::kIn; ++t) p.in[t] = s.in[t].tensor->template ptr<S>() + s.in[t].shift + at[t];
    for (int t = 0; t < F::kOut; ++t) p.out[t] = s.out[t].tensor->template ptr<D>() + s.out[t].shift + at[F::kIn + t];
    p.items = items;
    done += items.count;
    p.tail =
        done == per_row ? static_cast<uint32_t>(width % V) : 0;  // not 0 only in a flat range, whose last slab this is

    constexpr int kItems = V == 1 ? kMapScalarItems : 1;
    const unsigned threads = map_threads(items.count / kItems, l.device.processors);
    const Grid grid = {grid_blocks(items.count, kItems * threads), threads};
    if constexpr (V > 1)
      if (items.ndim == 0 && p.tail == 0 && items.count % threads == 0)
        return launch(l, map_kernel<F, S, D, kPaired, V, kItems, true>, grid, p, f);
    return launch(l, map_kernel<F, S, D, kPaired, V, kItems, false>, grid, p, f);
  });
}

// kVector: 16-byte accesses, after map_why_not_vec took the call.
template <bool kVector, class S, class D, class F>
ek_status map_typed(const Launch& l, const Streams<F::kIn, F::kOut>& s, const F& f) {
  constexpr int kBytes = sizeof(S) > sizeof(D) ? sizeof(S) : sizeof(D);
  if constexpr (F::kPairs)
    if (s.paired) return map_launch<S, D, true, kVector ? 8 / kBytes : 1>(l, s, f);
  return map_launch<S, D, false, kVector ? 16 / kBytes : 1>(l, s, f);
}

// For ops with a single dtype.
template <class F>
ek_status map_cuda_vec(const Launch& l, const Streams<F::kIn, F::kOut>& s, const F& f) {
  return with_float(s.in[0].tensor->dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    return map_typed<true, T, T>(l, s, f);
  });
}
template <class F>
ek_status map_cuda(const Launch& l, const Streams<F::kIn, F::kOut>& s, const F& f) {
  return with_float(s.in[0].tensor->dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    return map_typed<false, T, T>(l, s, f);
  });
}

}  // namespace ek
