// SPDX-License-Identifier: Apache-2.0
// Both headers are clean C++17, and an args struct can be made and filled as in C.
#include <einkorn/einkorn.h>
#include <einkorn/ops.h>

#include <type_traits>

#include "check.h"

static_assert(std::is_standard_layout_v<ek_tensor> && std::is_trivial_v<ek_tensor>);
static_assert(std::is_same_v<decltype(&ek_last_error), const char* (*)()>);

int main() {
  ek_rms_norm_args args = EK_RMS_NORM_ARGS;
  CHECK(args.struct_size == sizeof(args));
  CHECK(args.eps == 1e-6f && args.x == nullptr);
  CHECK(strcmp(ek_dtype_name(EK_DTYPE_E4M3), "e4m3") == 0);
  return report("test_headers_cpp17");
}
