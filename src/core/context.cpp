// SPDX-License-Identifier: Apache-2.0
// Contexts: their making and end, stream, flags and workspace.
#include "core/context.h"

#include <algorithm>
#include <memory>
#include <new>

#include "dispatch/routing.h"

namespace ek {

namespace {

// Grown to at least this, so that small needs do not come back one by one.
constexpr size_t kLeastWorkspace = size_t{1} << 20;
constexpr size_t kWorkspaceAlignment = 256;

// Frees what the context owns. CUDA handles of a parent process are left alone: this process has no CUDA to free in.
void release(ek_context* c) {
  const Backend* backend = c->backend;
  const int id = c->device.id.id;
  if (backend && !(c->is_cuda && c->generation != g_generation)) {
    if (c->capturing) {
      void* graph = nullptr;
      if (backend->graph_end(c, id, c->stream, &graph) == EK_STATUS_OK) backend->graph_destroy(id, graph);
    }
    // The stream is not asked: its owner may have destroyed it before. Freeing device memory waits for all work there.
    if (c->order_event) backend->event_destroy(id, c->order_event);
    for (void* block : c->retired) backend->free(c, c->device.id, block);
    if (c->owned_workspace) backend->free(c, c->device.id, c->owned_workspace);
    if (c->counters) backend->free(c, c->device.id, c->counters);
  }
  delete c;
}

struct Release {
  void operator()(ek_context* c) const { release(c); }
};

ek_status create(ek_device device, ek_context** context_out) {
  const char* const who = "ek_context_create";
  if (env().error[0]) return fail(nullptr, EK_STATUS_INVALID_ARGUMENT, "%s: %s", who, env().error);
  if (device.type == EK_DEVICE_CUDA_HOST || device.type == EK_DEVICE_CUDA_MANAGED)
    return fail(nullptr, EK_STATUS_INVALID_ARGUMENT, "%s: device type is %d, expected %d (CPU) or %d (CUDA)", who,
                device.type, EK_DEVICE_CPU, EK_DEVICE_CUDA);
  const Backend* backend = nullptr;
  if (const ek_status status = check_device(nullptr, who, device, &backend)) return status;

  std::unique_ptr<ek_context, Release> c(new ek_context);
  watch_forks();
  c->generation = g_generation;
  c->is_cuda = device.type == EK_DEVICE_CUDA;
  if (const ek_status status = backend->describe(nullptr, device.id, &c->device)) return status;
  c->backend = backend;
  if (const ek_status status = backend->probe(nullptr, &c->device)) return status;
  if (c->is_cuda) {
    int count = 0;
    if (const ek_status status = backend->count(nullptr, &count)) return status;
    c->switch_device = count > 1;
    void* counters = nullptr;
    if (const ek_status status = backend->alloc_zeroed(nullptr, device, kCounterBytes, &counters)) return status;
    c->counters = static_cast<uint32_t*>(counters);
  }
  if (const ek_status status = init_routing(c.get(), who)) return status;
  *context_out = c.release();
  return EK_STATUS_OK;
}

// Orders `stream` after the context's old one, because both are to use the same workspace.
ek_status order_streams(ek_context* c, ek_stream stream, bool* ordered_out) {
  const Backend& b = *c->backend;
  const int id = c->device.id.id;
  bool old_captures = false, new_captures = false;
  if (const ek_status status = b.stream_capturing(c, id, c->stream, &old_captures)) return status;
  if (const ek_status status = b.stream_capturing(c, id, stream, &new_captures)) return status;
  // An event from outside of a capture can't enter it, nor leave it: order is then the capturing caller's affair.
  *ordered_out = !old_captures && !new_captures;
  if (!*ordered_out) return EK_STATUS_OK;
  if (!c->order_event)
    if (const ek_status status = b.event_create(c, id, false, &c->order_event)) return status;
  if (const ek_status status = b.event_record(c, id, c->order_event, c->stream)) return status;
  return b.event_wait(c, id, c->order_event, stream);
}

}  // namespace

ek_status check_process(ek_context* context, const char* who) {
  if (!context->is_cuda || context->generation == g_generation) return EK_STATUS_OK;
  return fail(context, EK_STATUS_CUDA, "%s: the context was created before a fork; CUDA does not survive one", who);
}

ek_status grow_workspace(ek_context* c, const char* who, size_t bytes) {
  if (bytes <= c->workspace_bytes) return EK_STATUS_OK;
  if (c->workspace_lent)
    return fail(c, EK_STATUS_WORKSPACE, "%s: needs %zu bytes of workspace, ek_context_set_workspace gave %zu", who,
                bytes, c->workspace_bytes);
  bool capturing = false;
  if (const ek_status status = c->backend->stream_capturing(c, c->device.id.id, c->stream, &capturing)) return status;
  if (capturing)
    return fail(c, EK_STATUS_WORKSPACE,
                "%s: needs %zu bytes of workspace, has %zu, and can't grow it while the stream is captured; call "
                "ek_context_reserve before the capture",
                who, bytes, c->workspace_bytes);
  try {
    c->retired.reserve(c->retired.size() + 1);
  } catch (const std::bad_alloc&) {
    return fail(c, EK_STATUS_OUT_OF_MEMORY, "%s: no memory", who);
  }
  // Doubling keeps the number of blocks, and what the retired ones hold, small. Where there is no room for that, what
  // is needed will do.
  void* data = nullptr;
  size_t size = std::max({bytes, c->owned_bytes <= SIZE_MAX / 2 ? 2 * c->owned_bytes : bytes, kLeastWorkspace});
  ek_status status = c->backend->alloc(c, c->device.id, size, &data);
  if (status == EK_STATUS_OUT_OF_MEMORY && size > bytes)
    status = c->backend->alloc(c, c->device.id, size = bytes, &data);
  if (status == EK_STATUS_OUT_OF_MEMORY)
    return fail(c, status, "%s: no memory for %zu bytes of workspace on %s:%d", who, bytes, c->backend->name,
                c->device.id.id);
  if (status) return status;
  if (c->owned_workspace) c->retired.push_back(c->owned_workspace);
  c->workspace = c->owned_workspace = data;
  c->workspace_bytes = c->owned_bytes = size;
  return EK_STATUS_OK;
}

}  // namespace ek

using ek::fail;
using ek::succeed;

ek_status ek_context_create(ek_device device, ek_context** context_out) {
  if (!context_out) return fail(nullptr, EK_STATUS_INVALID_ARGUMENT, "ek_context_create: context_out is NULL");
  try {
    if (const ek_status status = ek::create(device, context_out)) return status;
  } catch (const std::bad_alloc&) {
    return fail(nullptr, EK_STATUS_OUT_OF_MEMORY, "ek_context_create: no memory");
  }
  return succeed(nullptr);
}

void ek_context_destroy(ek_context* context) {
  if (context) ek::release(context);
}

ek_status ek_context_set_stream(ek_context* context, ek_stream stream) {
  if (!context) return fail(nullptr, EK_STATUS_INVALID_ARGUMENT, "ek_context_set_stream: context is NULL");
  if (stream == context->stream) return succeed(context);
  if (context->capturing)
    return fail(context, EK_STATUS_INVALID_ARGUMENT, "ek_context_set_stream: the context is capturing; end that first");
  bool ordered = true;
  if (context->workspace_used && context->is_cuda)
    if (const ek_status status = ek::order_streams(context, stream, &ordered)) return status;
  context->stream = stream;
  if (ordered) context->workspace_used = false;
  return succeed(context);
}

ek_status ek_context_set_flags(ek_context* context, uint32_t flags) {
  if (!context) return fail(nullptr, EK_STATUS_INVALID_ARGUMENT, "ek_context_set_flags: context is NULL");
  const uint32_t known = EK_FLAG_DETERMINISTIC | EK_FLAG_BATCH_INVARIANT | EK_FLAG_PDL | EK_FLAG_TF32;
  if (flags & ~known)
    return fail(context, EK_STATUS_INVALID_ARGUMENT, "ek_context_set_flags: flags has unknown bits 0x%x",
                flags & ~known);
  context->flags = flags;
  return succeed(context);
}

ek_status ek_context_set_workspace(ek_context* context, void* data, size_t bytes) {
  if (!context) return fail(nullptr, EK_STATUS_INVALID_ARGUMENT, "ek_context_set_workspace: context is NULL");
  if (!data && bytes)
    return fail(context, EK_STATUS_INVALID_ARGUMENT, "ek_context_set_workspace: data is NULL, bytes is %zu, expected 0",
                bytes);
  if (reinterpret_cast<uintptr_t>(data) % ek::kWorkspaceAlignment)
    return fail(context, EK_STATUS_INVALID_ARGUMENT, "ek_context_set_workspace: data is %p, expected a multiple of %zu",
                data, ek::kWorkspaceAlignment);
  context->workspace_lent = data != nullptr;
  context->workspace = data ? data : context->owned_workspace;
  context->workspace_bytes = data ? bytes : context->owned_bytes;
  return succeed(context);
}

ek_status ek_context_reserve(ek_context* context, size_t bytes) {
  if (!context) return fail(nullptr, EK_STATUS_INVALID_ARGUMENT, "ek_context_reserve: context is NULL");
  if (const ek_status status = ek::grow_workspace(context, "ek_context_reserve", bytes)) return status;
  return succeed(context);
}

ek_status ek_context_synchronize(ek_context* context) {
  if (!context) return fail(nullptr, EK_STATUS_INVALID_ARGUMENT, "ek_context_synchronize: context is NULL");
  if (context->capturing)
    return fail(context, EK_STATUS_INVALID_ARGUMENT,
                "ek_context_synchronize: the context is capturing: nothing runs yet");
  if (const ek_status status = context->backend->stream_synchronize(context, context->device.id.id, context->stream))
    return status;
  return succeed(context);
}
