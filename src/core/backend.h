// SPDX-License-Identifier: Apache-2.0
// What a kind of device can do, as a table of functions: one for the CPU, one for CUDA where it is built in. The public
// calls check their arguments and land here. `context` is for error texts only and may be NULL.
#pragma once

#include "core/error.h"
#include "dispatch/kernel.h"

namespace ek {

struct Backend {
  const char* name;  // "cpu", "cuda"

  // Devices. `count` answers 0 where there is no driver; `why_none` says why in words.
  ek_status (*count)(ek_context* context, int* count_out);
  const char* (*why_none)();
  ek_status (*describe)(ek_context* context, int id, Device* device_out);
  // Can this device run the library's kernels? Asked once per context.
  ek_status (*probe)(ek_context* context, Device* device);
  // Make the device current for a launch and put the old one back. NULL where that means nothing.
  ek_status (*enter)(ek_context* context, int id, int* previous_out);
  void (*leave)(int previous);

  // Memory. `alloc_zeroed` is done when it returns, on no stream of the caller's.
  ek_status (*alloc)(ek_context* context, ek_device device, size_t bytes, void** data_out);
  ek_status (*alloc_zeroed)(ek_context* context, ek_device device, size_t bytes, void** data_out);
  ek_status (*free)(ek_context* context, ek_device device, void* data);
  ek_status (*copy)(ek_context* context, int id, ek_stream stream, void* dst, const void* src, size_t bytes);
  ek_status (*fill)(ek_context* context, int id, ek_stream stream, void* dst, uint8_t value, size_t bytes);

  // Streams.
  ek_status (*stream_create)(ek_context* context, int id, ek_stream* stream_out);
  ek_status (*stream_destroy)(ek_context* context, int id, ek_stream stream);
  ek_status (*stream_synchronize)(ek_context* context, int id, ek_stream stream);
  ek_status (*stream_capturing)(ek_context* context, int id, ek_stream stream, bool* capturing_out);

  // Events. `timed` false: for ordering only, cheaper.
  ek_status (*event_create)(ek_context* context, int id, bool timed, void** event_out);
  void (*event_destroy)(int id, void* event);
  ek_status (*event_record)(ek_context* context, int id, void* event, ek_stream stream);
  ek_status (*event_wait)(ek_context* context, int id, void* event, ek_stream stream);
  ek_status (*event_synchronize)(ek_context* context, int id, void* event);
  ek_status (*event_elapsed)(ek_context* context, int id, void* start, void* stop, float* milliseconds_out);

  // Graphs. NULL where there are none.
  ek_status (*graph_begin)(ek_context* context, int id, ek_stream stream);
  ek_status (*graph_end)(ek_context* context, int id, ek_stream stream, void** graph_out);
  ek_status (*graph_launch)(ek_context* context, int id, void* graph, ek_stream stream);
  void (*graph_destroy)(int id, void* graph);
};

const Backend& cpu_backend();
#ifdef EINKORN_CUDA
const Backend& cuda_backend();
// "cuda 13.0 (sm_90a)"
const char* cuda_build_info();
#endif

// The backend that owns memory of this device type (pinned and managed memory are CUDA's), or NULL: no such type, or a
// build without it.
const Backend* find_backend(int32_t device_type);

// Checks type and id; on success *backend_out can serve the device. `caller` begins the error text.
ek_status check_device(ek_context* context, const char* caller, ek_device device, const Backend** backend_out);

}  // namespace ek
