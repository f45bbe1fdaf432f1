// SPDX-License-Identifier: Apache-2.0
// b[:, 2 j] = gate[:, j], b[:, 2 j + 1] = up[:, j]. Bits are copied, by size: weights are packed once, before they are used.
// _vec: 16-byte accesses where all three tensors have the same contiguous dimension. With k contiguous (weights as
// PyTorch's linear layers store them) a column is copied as it is; with n contiguous the two are interleaved.
// The other row takes any strides, an element at a time.
#include "cuda/pdl.cuh"
#include "cuda/vec.cuh"
#include "dispatch/ops_gen.h"

namespace ek {
namespace {

constexpr int kThreads = 256;

// The matrices seen as `lines` of `length` elements that are contiguous (in the vector kernels).
struct Pack {
  const void *gate, *up;
  void* b;
  int64_t lines, length;
  int64_t gate_line, up_line, b_line;  // elements from a line to the next; of b: to the next pair (k contiguous)
  int64_t up_offset;                   // of b: from gate's column to up's, where they are not interleaved
};

bool k_contiguous(const GemmPackGatedArgs& a) {
  return a.gate.stride[0] == 1 && a.up.stride[0] == 1 && a.b.stride[0] == 1;
}
bool n_contiguous(const GemmPackGatedArgs& a) {
  return a.gate.stride[1] == 1 && a.up.stride[1] == 1 && a.b.stride[1] == 1;
}

Pack pack_of(const GemmPackGatedArgs& a) {
  Pack p = {a.gate.data, a.up.data, a.b.data, a.k, a.n, a.gate.stride[0], a.up.stride[0], a.b.stride[0], 0};
  if (n_contiguous(a)) return p;
  p.lines = a.n;
  p.length = a.k;
  p.gate_line = a.gate.stride[1];
  p.up_line = a.up.stride[1];
  p.b_line = 2 * a.b.stride[1];
  p.up_offset = a.b.stride[1];
  return p;
}

// V elements are one 16-byte access.
template <class Bits, int V, bool kInterleave>
__global__ void __launch_bounds__(kThreads) pack_vec_kernel(const Pack p) {
  pdl_wait();
  const int64_t vectors = p.length / V, count = p.lines * vectors;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < count; i += step) {
    const int64_t line = row_quotient(i, vectors), at = (i - line * vectors) * V;
    const Vec<Bits, V> gate = load_vec<Bits, V>(static_cast<const Bits*>(p.gate) + line * p.gate_line + at);
    const Vec<Bits, V> up = load_vec<Bits, V>(static_cast<const Bits*>(p.up) + line * p.up_line + at);
    Bits* b = static_cast<Bits*>(p.b) + line * p.b_line;
    if constexpr (kInterleave) {
      Vec<Bits, V> low, high;
#pragma unroll
      for (int e = 0; e < V / 2; ++e) {
        low.v[2 * e] = gate.v[e];
        low.v[2 * e + 1] = up.v[e];
        high.v[2 * e] = gate.v[V / 2 + e];
        high.v[2 * e + 1] = up.v[V / 2 + e];
      }
      store_vec<Bits, V>(b + 2 * at, low);
      store_vec<Bits, V>(b + 2 * at + V, high);
    } else {
      store_vec<Bits, V>(b + at, gate);
      store_vec<Bits, V>(b + p.up_offset + at, up);
    }
  }
  pdl_launch();
}

// Neighbouring threads take neighbours along k or along n, whichever is nearer in memory.
template <class Bits>
__global__ void __launch_bounds__(kThreads) pack_any_kernel(const GemmPackGatedArgs a, bool along_k) {
  pdl_wait();
  const Bits *gate = static_cast<const Bits*>(a.gate.data), *up = static_cast<const Bits*>(a.up.data);
  Bits* b = static_cast<Bits*>(a.b.data);
  const int64_t count = a.k * a.n, inner = along_k ? a.k : a.n;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < count; i += step) {
    const int64_t outer = row_quotient(i, inner), rest = i - outer * inner;
    const int64_t row = along_k ? rest : outer, column = along_k ? outer : rest;
    b[row * a.b.stride[0] + 2 * column * a.b.stride[1]] = gate[row * a.gate.stride[0] + column * a.gate.stride[1]];
    b[row * a.b.stride[0] + (2 * column + 1) * a.b.stride[1]] = up[row * a.up.stride[0] + column * a.up.stride[1]];
  }
  pdl_launch();
}

const char* why_not_vec(const GemmPackGatedArgs& a, const Device&) {
  if (!k_contiguous(a) && !n_contiguous(a)) return "neither k nor n is contiguous in all three tensors";
  const Pack p = pack_of(a);
  const int bytes = dtype_bytes(a.T);
  if (p.length * bytes % 16) return "the contiguous dimension is not a whole number of 16-byte vectors";
  for (const Tensor* t : {&a.gate, &a.up, &a.b})
    if (reinterpret_cast<uintptr_t>(t->data) % 16) return "a tensor does not begin on 16 bytes";
  for (int64_t line : {p.gate_line, p.up_line, p.b_line, p.up_offset})
    if (line * bytes % 16) return "lines are not 16-byte aligned";
  return nullptr;
}

template <class Bits>
ek_status run_vec(const Launch& l, const Pack& p) {
  constexpr int V = kVec<Bits>;
  const Grid grid = {grid_blocks(p.lines * (p.length / V), kThreads), kThreads};
  if (p.up_offset == 0) return launch(l, pack_vec_kernel<Bits, V, true>, grid, p);
  return launch(l, pack_vec_kernel<Bits, V, false>, grid, p);
}

ek_status gemm_pack_gated_cuda_vec(const GemmPackGatedArgs& a, const Launch& l) {
  return a.T == EK_DTYPE_F32 ? run_vec<uint32_t>(l, pack_of(a)) : run_vec<uint16_t>(l, pack_of(a));
}

ek_status gemm_pack_gated_cuda(const GemmPackGatedArgs& a, const Launch& l) {
  const Grid grid = {grid_blocks(a.k * a.n, kThreads), kThreads};
  const bool along_k = a.gate.stride[0] < a.gate.stride[1];
  if (a.T == EK_DTYPE_F32) return launch(l, pack_any_kernel<uint32_t>, grid, a, along_k);
  return launch(l, pack_any_kernel<uint16_t>, grid, a, along_k);
}

}  // namespace

const Kernel<GemmPackGatedArgs> kGemmPackGatedCuda[] = {
    {"gemm_pack_gated_cuda_vec", sm(75), why_not_vec, gemm_pack_gated_cuda_vec},
    {"gemm_pack_gated_cuda", sm(75), nullptr, gemm_pack_gated_cuda},
    {},
};

}  // namespace ek
