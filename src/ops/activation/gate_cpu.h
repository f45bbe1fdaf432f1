// SPDX-License-Identifier: Apache-2.0
// Gated activations on the CPU: gate and up of any layout in tiles of f32, forward and backward.
#pragma once

#include "cpu/map.h"
#include "cpu/math.h"
#include "dispatch/ops_gen.h"
#include "ops/activation/formulas.h"

namespace ek::EK_CPU_NS {

// Where gate and up of a row lie. halves: x = [gate | up]; interleaved: x = g0 u0 g1 u1 ...; separate: x and up.
// T is const for reading.
template <class T>
struct GateRow {
  T* x;
  T* up;  // separate only
  int32_t layout;
  int64_t dim;

  // As load(): both outputs have room for padded(n) elements, and those past n are 0.
  void read(int64_t column, int64_t n, float* gate_out, float* up_out) const {
    if (layout == EK_GATE_LAYOUT_INTERLEAVED) {
      float pairs[2 * kTile];
      load(x + 2 * column, 2 * n, pairs);
      for (int64_t i = 2 * n; i < 2 * padded(n); ++i) pairs[i] = 0.f;
      for (int64_t i = 0; i < padded(n); ++i) gate_out[i] = pairs[2 * i];
      for (int64_t i = 0; i < padded(n); ++i) up_out[i] = pairs[2 * i + 1];
    } else {
      load(x + column, n, gate_out);
      load((layout == EK_GATE_LAYOUT_SEPARATE ? up : x + dim) + column, n, up_out);
    }
  }

  void write(int64_t column, int64_t n, const float* gate, const float* up_in) const {
    if (layout == EK_GATE_LAYOUT_INTERLEAVED) {
      float pairs[2 * kTile];
      for (int64_t i = 0; i < n; ++i) {
        pairs[2 * i] = gate[i];
        pairs[2 * i + 1] = up_in[i];
      }
      store(pairs, 2 * n, x + 2 * column);
    } else {
      store(gate, n, x + column);
      store(up_in, n, (layout == EK_GATE_LAYOUT_SEPARATE ? up : x + dim) + column);
    }
  }
};

// Rows one by one for halves, where a tile is in two places; else all elements, in one long row where they are dense.
template <int N, class Body>
void for_gates(int32_t layout, int32_t lead, const Tensor* const (&tensors)[N], int64_t dim, const Body& body) {
  if (layout == EK_GATE_LAYOUT_HALVES) return for_tiles(rows_of(lead, tensors), dim, body);
  for_elements(lead, tensors, dim, body);
}

// y = f(gate, up)
template <class Args, class F>
ek_status gate_forward(const Args& a, const F& f) {
  with_float(a.T, [&](auto type) {
    using T = typename decltype(type)::type;
    for_gates<3>(a.layout, a.lead, {&a.x, &a.up, &a.y}, a.dim, [&](const int64_t* at, int64_t column, int64_t n) {
      const GateRow<const T> row = {data_of<const T>(a.x) + at[0], data_of<const T>(a.up) + at[1], a.layout, a.dim};
      float gate[kTile], up[kTile];
      row.read(column, n, gate, up);
      for (int64_t i = 0; i < padded(n); ++i) gate[i] = f(gate[i], up[i]);
      store(gate, n, data_of<T>(a.y) + at[2] + column);
    });
  });
  return EK_STATUS_OK;
}

// dx (and dup), in the layout of x, which they may overwrite.
template <class Args, class F>
ek_status gate_backward(const Args& a, const F& f) {
  with_float(a.T, [&](auto type) {
    using T = typename decltype(type)::type;
    const auto tile = [&](const int64_t* at, int64_t column, int64_t n) {
      const GateRow<const T> row = {data_of<const T>(a.x) + at[0], data_of<const T>(a.up) + at[1], a.layout, a.dim};
      const GateRow<T> grad = {data_of<T>(a.dx) + at[2], data_of<T>(a.dup) + at[3], a.layout, a.dim};
      float gate[kTile], up[kTile], dy[kTile];
      row.read(column, n, gate, up);
      load(data_of<const T>(a.dy) + at[4] + column, n, dy);
      for (int64_t i = 0; i < padded(n); ++i) f.backward(dy[i], gate[i], up[i], gate[i], up[i]);
      grad.write(column, n, gate, up);
    };
    for_gates<5>(a.layout, a.lead, {&a.x, &a.up, &a.dx, &a.dup, &a.dy}, a.dim, tile);
  });
  return EK_STATUS_OK;
}

}  // namespace ek::EK_CPU_NS
