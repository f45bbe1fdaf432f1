// SPDX-License-Identifier: Apache-2.0
// Streams and events.
#include <new>

#include "core/context.h"

using ek::fail;
using ek::succeed;

struct ek_event {
  const ek::Backend* backend;
  ek_device device;
  void* handle;
  bool recorded;
};

ek_status ek_stream_create(ek_device device, ek_stream* stream_out) {
  const ek::Backend* backend = nullptr;
  if (!stream_out) return fail(nullptr, EK_STATUS_INVALID_ARGUMENT, "ek_stream_create: stream_out is NULL");
  if (const ek_status status = ek::check_device(nullptr, "ek_stream_create", device, &backend)) return status;
  ek_stream stream = nullptr;
  if (const ek_status status = backend->stream_create(nullptr, device.id, &stream)) return status;
  *stream_out = stream;
  return succeed(nullptr);
}

ek_status ek_stream_destroy(ek_device device, ek_stream stream) {
  const ek::Backend* backend = nullptr;
  if (const ek_status status = ek::check_device(nullptr, "ek_stream_destroy", device, &backend)) return status;
  if (!stream)
    return fail(nullptr, EK_STATUS_INVALID_ARGUMENT, "ek_stream_destroy: stream is NULL: the default stream stays");
  if (const ek_status status = backend->stream_destroy(nullptr, device.id, stream)) return status;
  return succeed(nullptr);
}

ek_status ek_stream_synchronize(ek_device device, ek_stream stream) {
  const ek::Backend* backend = nullptr;
  if (const ek_status status = ek::check_device(nullptr, "ek_stream_synchronize", device, &backend)) return status;
  if (const ek_status status = backend->stream_synchronize(nullptr, device.id, stream)) return status;
  return succeed(nullptr);
}

ek_status ek_event_create(ek_device device, ek_event** event_out) {
  const ek::Backend* backend = nullptr;
  if (!event_out) return fail(nullptr, EK_STATUS_INVALID_ARGUMENT, "ek_event_create: event_out is NULL");
  if (const ek_status status = ek::check_device(nullptr, "ek_event_create", device, &backend)) return status;
  void* handle = nullptr;
  if (const ek_status status = backend->event_create(nullptr, device.id, true, &handle)) return status;
  ek_event* event = new (std::nothrow) ek_event{backend, device, handle, false};
  if (!event) {
    backend->event_destroy(device.id, handle);
    return fail(nullptr, EK_STATUS_OUT_OF_MEMORY, "ek_event_create: no memory");
  }
  *event_out = event;
  return succeed(nullptr);
}

void ek_event_destroy(ek_event* event) {
  if (!event) return;
  event->backend->event_destroy(event->device.id, event->handle);
  delete event;
}

ek_status ek_event_record(ek_event* event, ek_context* context) {
  if (!context) return fail(nullptr, EK_STATUS_INVALID_ARGUMENT, "ek_event_record: context is NULL");
  if (!event) return fail(context, EK_STATUS_INVALID_ARGUMENT, "ek_event_record: event is NULL");
  const ek_device device = context->device.id;
  if (event->backend != context->backend || event->device.id != device.id)
    return fail(context, EK_STATUS_INVALID_ARGUMENT, "ek_event_record: event is of %s:%d, the context of %s:%d",
                event->backend->name, event->device.id, context->backend->name, device.id);
  if (const ek_status status = event->backend->event_record(context, device.id, event->handle, context->stream))
    return status;
  event->recorded = true;
  return succeed(context);
}

ek_status ek_event_wait(ek_event* event, ek_context* context) {
  if (!context) return fail(nullptr, EK_STATUS_INVALID_ARGUMENT, "ek_event_wait: context is NULL");
  if (!event) return fail(context, EK_STATUS_INVALID_ARGUMENT, "ek_event_wait: event is NULL");
  if (event->recorded) {
    // Between kinds of devices: what a CPU event stands for is done already, and CPU work can only wait by waiting.
    ek_status status = EK_STATUS_OK;
    if (event->backend == context->backend)
      status = context->backend->event_wait(context, context->device.id.id, event->handle, context->stream);
    else
      status = event->backend->event_synchronize(context, event->device.id, event->handle);
    if (status) return status;
  }
  return succeed(context);
}

ek_status ek_event_synchronize(ek_event* event) {
  if (!event) return fail(nullptr, EK_STATUS_INVALID_ARGUMENT, "ek_event_synchronize: event is NULL");
  if (event->recorded)
    if (const ek_status status = event->backend->event_synchronize(nullptr, event->device.id, event->handle))
      return status;
  return succeed(nullptr);
}

ek_status ek_event_elapsed(const ek_event* start, const ek_event* stop, float* milliseconds_out) {
  const char* what = !start              ? "start is NULL"
                     : !stop             ? "stop is NULL"
                     : !milliseconds_out ? "milliseconds_out is NULL"
                                         : nullptr;
  if (what) return fail(nullptr, EK_STATUS_INVALID_ARGUMENT, "ek_event_elapsed: %s", what);
  if (!start->recorded || !stop->recorded)
    return fail(nullptr, EK_STATUS_INVALID_ARGUMENT, "ek_event_elapsed: %s was never recorded",
                start->recorded ? "stop" : "start");
  if (start->backend != stop->backend || start->device.id != stop->device.id)
    return fail(nullptr, EK_STATUS_INVALID_ARGUMENT, "ek_event_elapsed: start is of %s:%d, stop of %s:%d",
                start->backend->name, start->device.id, stop->backend->name, stop->device.id);
  float milliseconds = 0;
  if (const ek_status status =
          start->backend->event_elapsed(nullptr, start->device.id, start->handle, stop->handle, &milliseconds))
    return status;
  *milliseconds_out = milliseconds;
  return succeed(nullptr);
}
