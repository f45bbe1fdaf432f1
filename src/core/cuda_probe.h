// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace ek {

// Does the library hold code for the current device? A cudaError_t; cudaSuccess if so.
int probe_kernel_image();

}  // namespace ek
