// SPDX-License-Identifier: Apache-2.0
// What a context has set to steer selection: forced rows and the routing table.
#pragma once

#include "core/context.h"

namespace ek {

// For a new context: EINKORN_KERNEL, EINKORN_LOG and the built-in table of its device. May throw std::bad_alloc.
// Errors go to ek_last_error, because the context is not yet the caller's.
ek_status init_routing(ek_context* context, const char* who);

}  // namespace ek
