// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "dispatch/kernel.h"

namespace ek {

// Why kernels with wgmma can't run, or null. It is an instruction of compute capability 9.0 alone, and only of code for
// sm_90a: anything else is compiled empty, the general code for 9.0 too that a newer GPU can translate.
inline const char* why_not_wgmma([[maybe_unused]] const Device& device) {
#ifdef EINKORN_SM90A
  return device.target == 90 && !device.translated ? nullptr : "for compute capability 9.0 only";
#else
  return "built without code for sm_90a";
#endif
}

}  // namespace ek
