// SPDX-License-Identifier: Apache-2.0
// Division by a number that the host knows, as a multiplication: a division takes a GPU a hundred cycles.
#pragma once

#include "core/tensor.h"

namespace ek {

// n / d for n < 2^31, as a multiplication by 2^32 / d rounded up, with the part above 2^32 added by hand.
struct Divider {
  uint32_t divisor = 1, multiplier = 1, shift = 0;

  Divider() = default;
  explicit Divider(int64_t d) : divisor(static_cast<uint32_t>(d)) {
    while ((uint64_t(1) << shift) < divisor) ++shift;
    multiplier = static_cast<uint32_t>((((uint64_t(1) << shift) - divisor) << 32) / divisor + 1);
  }
  EK_HOST_DEVICE uint32_t divide(uint32_t n) const {
    return (static_cast<uint32_t>(uint64_t{n} * multiplier >> 32) + n) >> shift;
  }
};

}  // namespace ek
