// SPDX-License-Identifier: Apache-2.0
// How the copy engine swizzles a tile: the 16-byte units of a row change places by the row's number, so that eight rows of one
// unit are in different banks. Tiles begin at multiples of 1024 bytes.
#pragma once

namespace ek {

// The place in its row, of 64 or 128 bytes, of a unit.
template <int kRowBytes>
__device__ __forceinline__ int swizzled_unit(int row, int unit) {
  static_assert(kRowBytes == 64 || kRowBytes == 128, "");
  return unit ^ (kRowBytes == 128 ? row & 7 : row >> 1 & 3);
}

}  // namespace ek
