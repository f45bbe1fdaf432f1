// SPDX-License-Identifier: Apache-2.0
// Structs that the caller sizes: an older caller has a shorter one and gets the fields it knows; a newer caller has a
// longer one and finds zeros where this library knows nothing.
#pragma once

#include <cstring>

#include "core/error.h"

namespace ek {

// A size outside of this was not set by the caller.
constexpr uint32_t kLeastStruct = 8, kMostStruct = 4096;

template <class Info>
ek_status check_sized(ek_context* context, const char* caller, const char* name, const Info* info) {
  if (!info) return fail(context, EK_STATUS_INVALID_ARGUMENT, "%s: %s is NULL", caller, name);
  if (info->struct_size < kLeastStruct || info->struct_size > kMostStruct)
    return fail(context, EK_STATUS_INVALID_ARGUMENT, "%s: %s->struct_size is %u, expected sizeof(*%s) = %zu", caller,
                name, info->struct_size, name, sizeof(Info));
  return EK_STATUS_OK;
}

// Writes what fits; struct_size stays the caller's.
template <class Info>
void fill_sized(Info* out, Info values) {
  values.struct_size = out->struct_size;
  const size_t known = values.struct_size < sizeof(Info) ? values.struct_size : sizeof(Info);
  memcpy(static_cast<void*>(out), &values, known);
  if (values.struct_size > known) memset(reinterpret_cast<char*>(out) + known, 0, values.struct_size - known);
}

}  // namespace ek
