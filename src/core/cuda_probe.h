// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace ek {

// Does the library hold code for the current device? A cudaError_t; cudaSuccess if so. *target_out is what the code was
// compiled for (90 for compute capability 9.0), which may be an older GPU than the device.
int probe_kernel_image(int* target_out);

}  // namespace ek
