// SPDX-License-Identifier: Apache-2.0
// Tensor maps: how the copy engine of the SM is told about a matrix. Host code.
#pragma once

#include <cuda.h>

#include "core/tensor.h"

namespace ek {

// A batch of matrices, x along contiguous memory. Strides in elements; base and strides are multiples of 16 bytes.
struct TensorBox {
  const void* data;
  ek_dtype dtype;  // f16 or bf16
  int64_t size_x, size_y, size_z;
  int64_t stride_y, stride_z;
  int box_x, box_y;  // what one copy moves; box_x times the element's size is the swizzle: 32, 64 or 128 bytes
  int64_t size_w = 0, stride_w = 0;  // a fourth dim, outside of z; 0: there is none, and copies have three coordinates
  // Memory that is read once, as fast as it goes: L2 then fetches lines of 128 bytes and no neighbours, which takes 6 % off
  // the time. Where several blocks read the same, or time passes between neighbours, 256 bytes are better.
  bool once = false;
};

// False where the driver has no tensor maps or refuses this one.
bool make_tensor_map(const TensorBox& box, CUtensorMap* map_out);

}  // namespace ek
