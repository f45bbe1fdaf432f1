// SPDX-License-Identifier: Apache-2.0
// Capture and replay of a context's calls.
#include <new>

#include "core/context.h"

using ek::fail;
using ek::succeed;

struct ek_graph {
  const ek::Backend* backend;
  ek_device device;
  void* handle;
};

ek_status ek_graph_begin(ek_context* context) {
  if (!context) return fail(nullptr, EK_STATUS_INVALID_ARGUMENT, "ek_graph_begin: context is NULL");
  if (!context->backend->graph_begin)
    return fail(context, EK_STATUS_UNSUPPORTED, "ek_graph_begin: there are no graphs on %s", context->backend->name);
  if (context->capturing)
    return fail(context, EK_STATUS_INVALID_ARGUMENT, "ek_graph_begin: the context is capturing already");
  if (const ek_status status = context->backend->graph_begin(context, context->device.id.id, context->stream))
    return status;
  context->capturing = true;
  return succeed(context);
}

ek_status ek_graph_end(ek_context* context, ek_graph** graph_out) {
  if (!context) return fail(nullptr, EK_STATUS_INVALID_ARGUMENT, "ek_graph_end: context is NULL");
  if (!graph_out) return fail(context, EK_STATUS_INVALID_ARGUMENT, "ek_graph_end: graph_out is NULL");
  if (!context->backend->graph_end)
    return fail(context, EK_STATUS_UNSUPPORTED, "ek_graph_end: there are no graphs on %s", context->backend->name);
  if (!context->capturing)
    return fail(context, EK_STATUS_INVALID_ARGUMENT, "ek_graph_end: no capture was begun on this context");
  context->capturing = false;  // also after an error: the runtime ends a broken capture
  const int id = context->device.id.id;
  void* handle = nullptr;
  if (const ek_status status = context->backend->graph_end(context, id, context->stream, &handle)) return status;
  ek_graph* graph = new (std::nothrow) ek_graph{context->backend, context->device.id, handle};
  if (!graph) {
    context->backend->graph_destroy(id, handle);
    return fail(context, EK_STATUS_OUT_OF_MEMORY, "ek_graph_end: no memory");
  }
  *graph_out = graph;
  return succeed(context);
}

ek_status ek_graph_launch(ek_graph* graph, ek_context* context) {
  if (!context) return fail(nullptr, EK_STATUS_INVALID_ARGUMENT, "ek_graph_launch: context is NULL");
  if (!graph) return fail(context, EK_STATUS_INVALID_ARGUMENT, "ek_graph_launch: graph is NULL");
  const int id = context->device.id.id;
  if (graph->backend != context->backend || graph->device.id != id)
    return fail(context, EK_STATUS_INVALID_ARGUMENT, "ek_graph_launch: graph is of %s:%d, the context of %s:%d",
                graph->backend->name, graph->device.id, context->backend->name, id);
  if (const ek_status status = context->backend->graph_launch(context, id, graph->handle, context->stream))
    return status;
  context->workspace_used = true;  // the recorded calls may use it
  return succeed(context);
}

void ek_graph_destroy(ek_graph* graph) {
  if (!graph) return;
  graph->backend->graph_destroy(graph->device.id, graph->handle);
  delete graph;
}
