// SPDX-License-Identifier: Apache-2.0
#include "core/error.h"

#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "core/context.h"

namespace ek {

namespace {
thread_local char t_error[kErrorBytes];
}  // namespace

ek_status fail(ek_context* context, ek_status status, const char* format, ...) {
  char* text = context ? context->error : t_error;
  // Into a buffer of its own first: an argument may be the old text.
  char formatted[kErrorBytes];
  va_list values;
  va_start(values, format);
  const int length = vsnprintf(formatted, sizeof(formatted), format, values);
  va_end(values);
  if (length >= static_cast<int>(sizeof(formatted))) memcpy(formatted + sizeof(formatted) - 4, "...", 4);
  memcpy(text, formatted, strlen(formatted) + 1);
  return status;
}

ek_status succeed(ek_context* context) {
  (context ? context->error : t_error)[0] = '\0';
  return EK_STATUS_OK;
}

}  // namespace ek

const char* ek_last_error(void) { return ek::t_error; }

const char* ek_context_error(const ek_context* context) { return context ? context->error : ek::t_error; }
