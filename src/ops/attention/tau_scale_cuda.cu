// SPDX-License-Identifier: Apache-2.0
// tau_scale on CUDA: in place, f32.
// _vec: a thread for two vectors of a token, whose position it reads once. The other row takes any alignment: a warp for each
// token and head, first the heads of q, then those of v.
#include "cuda/math.cuh"
#include "cuda/pdl.cuh"
#include "cuda/rows.cuh"
#include "cuda/vec.cuh"
#include "dispatch/ops_gen.h"

namespace ek {

namespace {

constexpr int kWarps = 4, kThreads = 256;

// ---- vectors ----------------------------------------------------------------------------------------------------------

constexpr int kTogether = 2;  // vectors of a thread: with as many heads in v as in q, one of each

// q or v.
template <class T>
struct TauPart {
  T* x;
  const T* tok;
  const float* table;
  int64_t x_head, tok_head, table_row, table_head;  // strides
  Divider vectors;                                  // of a head
};

template <class T, class P>
struct TauParams {
  TauPart<T> q, v;
  const P* pos;
  uint32_t q_vectors, vectors, apart;  // of a token: those of q, all of them; between those of a thread
  RowItems<5> items;                   // kTogether vectors; rows of q, tok_q, v, tok_v, pos
};

template <class T, class P>
__global__ void __launch_bounds__(kThreads) tau_vec_kernel(const __grid_constant__ TauParams<T, P> p) {
  constexpr int V = kVec<T>;
  const uint32_t item = blockIdx.x * kThreads + threadIdx.x;
  pdl_wait();
  pdl_launch();
  if (item >= p.items.count) return;
  int64_t at[5];
  const uint32_t first = p.items.locate(item, at);
  const int64_t position = static_cast<int64_t>(p.pos[at[4]]);
  T* to[kTogether];
  Vec<uint32_t, 4> raw[kTogether];
  float tok[kTogether], row[kTogether];
#pragma unroll
  for (int i = 0; i < kTogether; ++i) {
    const uint32_t vector = first + i * p.apart;
    to[i] = nullptr;
    if (vector >= p.vectors) continue;
    const bool is_v = vector >= p.q_vectors;
    const TauPart<T>& part = is_v ? p.v : p.q;
    const uint32_t own = is_v ? vector - p.q_vectors : vector, head = part.vectors.divide(own);
    to[i] = part.x + (is_v ? at[2] : at[0]) + head * part.x_head + (own - head * part.vectors.divisor) * V;
    raw[i] = load_vec<uint32_t, 4>(reinterpret_cast<const uint32_t*>(to[i]));
    tok[i] = to_float(part.tok[(is_v ? at[3] : at[1]) + head * part.tok_head]);
    row[i] = part.table[position * part.table_row + head * part.table_head];
  }
#pragma unroll
  for (int i = 0; i < kTogether; ++i) {
    if (!to[i]) continue;
    const float factor = CudaMathFor<T>::tanh(tok[i]) + row[i];
    float f[V];
    unpack(*reinterpret_cast<const Vec<T, V>*>(&raw[i]), f);
#pragma unroll
    for (int j = 0; j < V; ++j) f[j] *= factor;
    store_vec(to[i], pack<T, V>(f));
  }
}

int64_t vectors_of_token(const TauScaleArgs& a) {
  return (a.heads * a.head_dim + a.kv_heads * a.v_dim) * dtype_bytes(a.T) / 16;
}

const char* why_not_vec(const TauScaleArgs& a, const Device&) {
  const int vector = 16 / dtype_bytes(a.T);
  if (a.head_dim % vector || !rows_aligned(a.q, a.lead + 1, 16)) return "heads of q are not multiples of 16 bytes";
  if (a.v_dim % vector || !rows_aligned(a.v, a.lead + 1, 16)) return "heads of v are not multiples of 16 bytes";
  if (vectors_of_token(a) > kMaxItems) return "a token has 2^31 vectors or more";
  return nullptr;
}

template <class T>
TauPart<T> tau_part(const Tensor& x, const Tensor& tok, const Tensor& table, int lead, int64_t dim) {
  return {x.ptr<T>(),       tok.ptr<const T>(), table.ptr<const float>(), x.stride[lead],
          tok.stride[lead], table.stride[0],    table.stride[1],          Divider(dim < kVec<T> ? 1 : dim / kVec<T>)};
}

template <class T, class P>
ek_status tau_vec(const TauScaleArgs& a, const Launch& l) {
  const Rows<5> rows = make_rows<5>(a.lead, {&a.q, &a.tok_q, &a.v, &a.tok_v, &a.pos});
  const int64_t vectors = vectors_of_token(a), items = (vectors + kTogether - 1) / kTogether, none[5] = {};
  if (items == 0) return EK_STATUS_OK;
  return for_each_slab(rows, items, none, [&](const RowItems<5>& slab, const int64_t (&at)[5]) {
    TauParams<T, P> p;
    p.q = tau_part<T>(a.q, a.tok_q, a.table_q, a.lead, a.head_dim);
    p.v = tau_part<T>(a.v, a.tok_v, a.table_v, a.lead, a.v_dim);
    p.q.x += at[0], p.q.tok += at[1], p.v.x += at[2], p.v.tok += at[3];
    p.pos = a.pos.ptr<const P>() + at[4];
    p.q_vectors = static_cast<uint32_t>(a.heads * a.head_dim / kVec<T>);
    p.vectors = static_cast<uint32_t>(vectors);
    p.apart = static_cast<uint32_t>(items);
    p.items = slab;
    return launch(l, tau_vec_kernel<T, P>, {grid_blocks(slab.count, kThreads), kThreads}, p);
  });
}

ek_status tau_scale_cuda_vec(const TauScaleArgs& a, const Launch& l) {
  return with_float(a.T, [&](auto type) {
    using T = typename decltype(type)::type;
    return a.P == EK_DTYPE_I32 ? tau_vec<T, int32_t>(a, l) : tau_vec<T, int64_t>(a, l);
  });
}

// ---- any alignment ----------------------------------------------------------------------------------------------------

// rows: of q, v, tok_q, tok_v, pos.
template <class T, class P>
__global__ void __launch_bounds__(kWarps * 32)
    tau_kernel(const __grid_constant__ TauScaleArgs a, const __grid_constant__ Rows<5> rows) {
  pdl_wait();
  pdl_launch();
  const int lane = threadIdx.x % 32;
  const int64_t all = a.heads + a.kv_heads, count = a.rows * all, step = static_cast<int64_t>(gridDim.x) * kWarps;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32; i < count; i += step) {
    const int64_t row = row_quotient(i, all);
    int64_t head = i - row * all, at[5];
    rows.offsets(row, at);
    const bool is_v = head >= a.heads;
    if (is_v) head -= a.heads;
    const Tensor &tok = is_v ? a.tok_v : a.tok_q, &table = is_v ? a.table_v : a.table_q, &x = is_v ? a.v : a.q;
    const int64_t position = static_cast<int64_t>(static_cast<const P*>(a.pos.data)[at[4]]);
    const float factor = CudaMathFor<T>::tanh(to_float(
                             static_cast<const T*>(tok.data)[(is_v ? at[3] : at[2]) + head * tok.stride[a.lead]])) +
                         static_cast<const float*>(table.data)[position * table.stride[0] + head * table.stride[1]];
    T* to = static_cast<T*>(x.data) + (is_v ? at[1] : at[0]) + head * x.stride[a.lead];
    const int64_t dim = is_v ? a.v_dim : a.head_dim;
    for (int64_t d = lane; d < dim; d += 32) to[d] = from_float<T>(to_float(to[d]) * factor);
  }
}

ek_status tau_scale_cuda(const TauScaleArgs& a, const Launch& l) {
  const Rows<5> rows = make_rows<5>(a.lead, {&a.q, &a.v, &a.tok_q, &a.tok_v, &a.pos});
  const Grid grid = {grid_blocks(a.rows * (a.heads + a.kv_heads), kWarps), kWarps * 32};
  return with_float(a.T, [&](auto type) {
    using T = typename decltype(type)::type;
    if (a.P == EK_DTYPE_I32) return launch(l, tau_kernel<T, int32_t>, grid, a, rows);
    return launch(l, tau_kernel<T, int64_t>, grid, a, rows);
  });
}

}  // namespace

const Kernel<TauScaleArgs> kTauScaleCuda[] = {
    {"tau_scale_cuda_vec", sm(75), why_not_vec, tau_scale_cuda_vec},
    {"tau_scale_cuda", sm(75), nullptr, tau_scale_cuda},
    {},
};

}  // namespace ek
