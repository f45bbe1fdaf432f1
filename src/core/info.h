// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "einkorn/einkorn.h"

namespace ek {

// The dtype of this name ("bf16"), or 0.
ek_dtype find_dtype(const char* name, size_t length);

}  // namespace ek
