// SPDX-License-Identifier: Apache-2.0
#include "core/context.h"

using ek::fail;
using ek::succeed;

ek_status ek_memory_alloc(ek_device device, size_t bytes, void** data_out) {
  const ek::Backend* backend = nullptr;
  if (!data_out) return fail(nullptr, EK_STATUS_INVALID_ARGUMENT, "ek_memory_alloc: data_out is NULL");
  if (const ek_status status = ek::check_device(nullptr, "ek_memory_alloc", device, &backend)) return status;
  void* data = nullptr;
  if (const ek_status status = backend->alloc(nullptr, device, bytes, &data)) return status;
  *data_out = data;
  return succeed(nullptr);
}

ek_status ek_memory_free(ek_device device, void* data) {
  const ek::Backend* backend = nullptr;
  if (const ek_status status = ek::check_device(nullptr, "ek_memory_free", device, &backend)) return status;
  if (data)
    if (const ek_status status = backend->free(nullptr, device, data)) return status;
  return succeed(nullptr);
}

ek_status ek_memory_copy(ek_context* context, void* dst, const void* src, size_t bytes) {
  if (!context) return fail(nullptr, EK_STATUS_INVALID_ARGUMENT, "ek_memory_copy: context is NULL");
  if (bytes && !(dst && src))
    return fail(context, EK_STATUS_INVALID_ARGUMENT, "ek_memory_copy: %s is NULL", dst ? "src" : "dst");
  if (bytes)
    if (const ek_status status =
            context->backend->copy(context, context->device.id.id, context->stream, dst, src, bytes))
      return status;
  return succeed(context);
}

ek_status ek_memory_fill(ek_context* context, void* dst, uint8_t value, size_t bytes) {
  if (!context) return fail(nullptr, EK_STATUS_INVALID_ARGUMENT, "ek_memory_fill: context is NULL");
  if (bytes && !dst) return fail(context, EK_STATUS_INVALID_ARGUMENT, "ek_memory_fill: dst is NULL");
  if (bytes)
    if (const ek_status status =
            context->backend->fill(context, context->device.id.id, context->stream, dst, value, bytes))
      return status;
  return succeed(context);
}
