// SPDX-License-Identifier: Apache-2.0
// The module einkorn._native: errors, and the calls of einkorn.h that are not ops, one function each. Everything here
// is private to the package; einkorn/_context.py and _memory.py make objects of it.
#include <cstdarg>
#include <cstdio>

#include "native.h"

namespace ekpy {

PyObject* g_error = nullptr;
PyObject* g_invalid_argument = nullptr;

PyObject* raise(ek_status status, const char* message) {
  PyObject* type = status == EK_STATUS_INVALID_ARGUMENT ? g_invalid_argument : g_error;
  PyObject* error = PyObject_CallFunction(type, "s", message && *message ? message : ek_status_name(status));
  PyObject* name = error ? PyUnicode_FromString(ek_status_name(status)) : nullptr;
  if (name && PyObject_SetAttrString(error, "status", name) == 0) PyErr_SetObject(type, error);
  Py_XDECREF(name);
  Py_XDECREF(error);
  return nullptr;
}

PyObject* raise_invalid(const char* format, ...) {
  char message[512];
  va_list list;
  va_start(list, format);
  std::vsnprintf(message, sizeof(message), format, list);
  va_end(list);
  return raise(EK_STATUS_INVALID_ARGUMENT, message);
}

namespace {

PyObject* none() { return Py_NewRef(Py_None); }
PyObject* done(ek_status status) { return status == EK_STATUS_OK ? none() : raise(status, ek_last_error()); }
PyObject* done(ek_status status, const Context* context) {
  return status == EK_STATUS_OK ? none() : raise(status, ek_context_error(context->handle));
}

// ---- argument converters for PyArg_ParseTuple ("O&") ----------------------------------------------------------------

int to_context(PyObject* object, void* out) { return (*static_cast<Context**>(out) = context_arg(object)) != nullptr; }
int to_pointer(PyObject* object, void* out) {
  void* value = object == Py_None ? nullptr : PyLong_AsVoidPtr(object);
  if (PyErr_Occurred()) return 0;
  *static_cast<void**>(out) = value;
  return 1;
}
int to_size(PyObject* object, void* out) {
  *static_cast<size_t*>(out) = PyLong_AsSize_t(object);
  return !PyErr_Occurred();
}

// ---- library, ops and kernels -----------------------------------------------------------------------------------------

PyObject* version(PyObject*, PyObject*) {
  const uint32_t v = ek_version();
  return PyUnicode_FromFormat("%u.%u.%u", v >> 16, v >> 8 & 0xff, v & 0xff);
}
PyObject* build_info(PyObject*, PyObject*) { return PyUnicode_FromString(ek_build_info()); }
PyObject* last_kernel(PyObject*, PyObject*) { return PyUnicode_FromString(thread_state().last_kernel); }

PyObject* ops(PyObject*, PyObject*) {
  const int32_t count = ek_op_count();
  PyObject* list = PyList_New(count);
  for (int32_t i = 0; list && i < count; ++i) {
    PyObject* name = PyUnicode_FromString(ek_op_name(i));
    if (!name || PyList_SetItem(list, i, name) != 0) Py_CLEAR(list);
  }
  return list;
}

// kernels(op) -> [(name, device_type, target, flags), ...] in table order
PyObject* kernels(PyObject*, PyObject* args) {
  const char* op;
  if (!PyArg_ParseTuple(args, "s", &op)) return nullptr;
  const int32_t count = ek_kernel_count(op);
  PyObject* list = PyList_New(count);
  for (int32_t i = 0; list && i < count; ++i) {
    ek_kernel_info info = {};
    info.struct_size = sizeof(info);
    const ek_status status = ek_kernel_query(op, i, &info);
    PyObject* row = status == EK_STATUS_OK
                        ? Py_BuildValue("(siiI)", info.name, info.device_type, info.target, info.flags)
                        : done(status);
    if (!row || PyList_SetItem(list, i, row) != 0) Py_CLEAR(list);
  }
  return list;
}

PyObject* kernel_force(PyObject*, PyObject* args) {
  Context* context;
  const char *op, *kernel;
  if (!PyArg_ParseTuple(args, "O&sz", to_context, &context, &op, &kernel)) return nullptr;
  return done(ek_kernel_force(context->handle, op, kernel), context);
}
PyObject* kernel_last(PyObject*, PyObject* capsule) {
  Context* context = context_arg(capsule);
  return context ? PyUnicode_FromString(ek_kernel_last(context->handle)) : nullptr;
}
PyObject* table_set(PyObject*, PyObject* args) {
  Context* context;
  const char* text;
  if (!PyArg_ParseTuple(args, "O&z", to_context, &context, &text)) return nullptr;
  return done(ek_table_set(context->handle, text), context);
}

// ---- devices and memory -------------------------------------------------------------------------------------------------

PyObject* device_count(PyObject*, PyObject* args) {
  int type, count = 0;
  if (!PyArg_ParseTuple(args, "i", &type)) return nullptr;
  const ek_status status = ek_device_count(type, &count);
  return status == EK_STATUS_OK ? PyLong_FromLong(count) : done(status);
}
// device_query(type, id) -> (name, target, processors, memory_bytes, l2_bytes)
PyObject* device_query(PyObject*, PyObject* args) {
  ek_device device;
  if (!PyArg_ParseTuple(args, "ii", &device.type, &device.id)) return nullptr;
  ek_device_info info = {};
  info.struct_size = sizeof(info);
  const ek_status status = ek_device_query(device, &info);
  if (status != EK_STATUS_OK) return done(status);
  return Py_BuildValue("(siiKK)", info.name, info.target, info.processors,
                       static_cast<unsigned long long>(info.memory_bytes),
                       static_cast<unsigned long long>(info.l2_bytes));
}
PyObject* memory_alloc(PyObject*, PyObject* args) {
  ek_device device;
  size_t bytes;
  if (!PyArg_ParseTuple(args, "iiO&", &device.type, &device.id, to_size, &bytes)) return nullptr;
  void* data = nullptr;
  const ek_status status = ek_memory_alloc(device, bytes, &data);
  return status == EK_STATUS_OK ? PyLong_FromVoidPtr(data) : done(status);
}
PyObject* memory_free(PyObject*, PyObject* args) {
  ek_device device;
  void* data;
  if (!PyArg_ParseTuple(args, "iiO&", &device.type, &device.id, to_pointer, &data)) return nullptr;
  return done(ek_memory_free(device, data));
}
PyObject* memory_copy(PyObject*, PyObject* args) {
  Context* context;
  void *dst, *src;
  size_t bytes;
  if (!PyArg_ParseTuple(args, "O&O&O&O&", to_context, &context, to_pointer, &dst, to_pointer, &src, to_size, &bytes))
    return nullptr;
  ek_status status;
  Py_BEGIN_ALLOW_THREADS;
  status = ek_memory_copy(context->handle, dst, src, bytes);
  Py_END_ALLOW_THREADS;
  return done(status, context);
}
PyObject* memory_fill(PyObject*, PyObject* args) {
  Context* context;
  void* dst;
  unsigned char value;
  size_t bytes;
  if (!PyArg_ParseTuple(args, "O&O&bO&", to_context, &context, to_pointer, &dst, &value, to_size, &bytes))
    return nullptr;
  return done(ek_memory_fill(context->handle, dst, value, bytes), context);
}

// ---- contexts -----------------------------------------------------------------------------------------------------------

PyObject* context_set_flags(PyObject*, PyObject* args) {
  Context* context;
  unsigned flags;
  if (!PyArg_ParseTuple(args, "O&I", to_context, &context, &flags)) return nullptr;
  return done(ek_context_set_flags(context->handle, flags), context);
}
PyObject* context_set_workspace(PyObject*, PyObject* args) {
  Context* context;
  void* data;
  size_t bytes;
  if (!PyArg_ParseTuple(args, "O&O&O&", to_context, &context, to_pointer, &data, to_size, &bytes)) return nullptr;
  return done(ek_context_set_workspace(context->handle, data, bytes), context);
}
PyObject* context_reserve(PyObject*, PyObject* args) {
  Context* context;
  size_t bytes;
  if (!PyArg_ParseTuple(args, "O&O&", to_context, &context, to_size, &bytes)) return nullptr;
  return done(ek_context_reserve(context->handle, bytes), context);
}
PyObject* context_synchronize(PyObject*, PyObject* capsule) {
  Context* context = context_arg(capsule);
  if (!context) return nullptr;
  ek_status status;
  Py_BEGIN_ALLOW_THREADS;
  status = ek_context_synchronize(context->handle);
  Py_END_ALLOW_THREADS;
  return done(status, context);
}

// ---- streams, events, graphs ----------------------------------------------------------------------------------------------

PyObject* stream_create(PyObject*, PyObject* args) {
  ek_device device;
  if (!PyArg_ParseTuple(args, "ii", &device.type, &device.id)) return nullptr;
  ek_stream stream = nullptr;
  const ek_status status = ek_stream_create(device, &stream);
  return status == EK_STATUS_OK ? PyLong_FromVoidPtr(stream) : done(status);
}
PyObject* stream_destroy(PyObject*, PyObject* args) {
  ek_device device;
  void* stream;
  if (!PyArg_ParseTuple(args, "iiO&", &device.type, &device.id, to_pointer, &stream)) return nullptr;
  return done(ek_stream_destroy(device, stream));
}
PyObject* stream_synchronize(PyObject*, PyObject* args) {
  ek_device device;
  void* stream;
  if (!PyArg_ParseTuple(args, "iiO&", &device.type, &device.id, to_pointer, &stream)) return nullptr;
  ek_status status;
  Py_BEGIN_ALLOW_THREADS;
  status = ek_stream_synchronize(device, stream);
  Py_END_ALLOW_THREADS;
  return done(status);
}

constexpr const char* kEvent = "einkorn.event";
constexpr const char* kGraph = "einkorn.graph";
void destroy_event(PyObject* c) { ek_event_destroy(static_cast<ek_event*>(PyCapsule_GetPointer(c, kEvent))); }
void destroy_graph(PyObject* c) { ek_graph_destroy(static_cast<ek_graph*>(PyCapsule_GetPointer(c, kGraph))); }
int to_event(PyObject* object, void* out) {
  return (*static_cast<void**>(out) = PyCapsule_GetPointer(object, kEvent)) != nullptr;
}
int to_graph(PyObject* object, void* out) {
  return (*static_cast<void**>(out) = PyCapsule_GetPointer(object, kGraph)) != nullptr;
}

PyObject* event_create(PyObject*, PyObject* args) {
  ek_device device;
  if (!PyArg_ParseTuple(args, "ii", &device.type, &device.id)) return nullptr;
  ek_event* event = nullptr;
  const ek_status status = ek_event_create(device, &event);
  return status == EK_STATUS_OK ? PyCapsule_New(event, kEvent, destroy_event) : done(status);
}
PyObject* event_record(PyObject*, PyObject* args) {
  ek_event* event;
  Context* context;
  if (!PyArg_ParseTuple(args, "O&O&", to_event, &event, to_context, &context)) return nullptr;
  return done(ek_event_record(event, context->handle), context);
}
PyObject* event_wait(PyObject*, PyObject* args) {
  ek_event* event;
  Context* context;
  if (!PyArg_ParseTuple(args, "O&O&", to_event, &event, to_context, &context)) return nullptr;
  return done(ek_event_wait(event, context->handle), context);
}
PyObject* event_synchronize(PyObject*, PyObject* args) {
  ek_event* event;
  if (!PyArg_ParseTuple(args, "O&", to_event, &event)) return nullptr;
  ek_status status;
  Py_BEGIN_ALLOW_THREADS;
  status = ek_event_synchronize(event);
  Py_END_ALLOW_THREADS;
  return done(status);
}
PyObject* event_elapsed(PyObject*, PyObject* args) {
  ek_event *start, *stop;
  if (!PyArg_ParseTuple(args, "O&O&", to_event, &start, to_event, &stop)) return nullptr;
  float milliseconds = 0;
  const ek_status status = ek_event_elapsed(start, stop, &milliseconds);
  return status == EK_STATUS_OK ? PyFloat_FromDouble(milliseconds) : done(status);
}

PyObject* graph_begin(PyObject*, PyObject* capsule) {
  Context* context = context_arg(capsule);
  return context ? done(ek_graph_begin(context->handle), context) : nullptr;
}
PyObject* graph_end(PyObject*, PyObject* capsule) {
  Context* context = context_arg(capsule);
  if (!context) return nullptr;
  ek_graph* graph = nullptr;
  const ek_status status = ek_graph_end(context->handle, &graph);
  return status == EK_STATUS_OK ? PyCapsule_New(graph, kGraph, destroy_graph) : done(status, context);
}
PyObject* graph_launch(PyObject*, PyObject* args) {
  ek_graph* graph;
  Context* context;
  if (!PyArg_ParseTuple(args, "O&O&", to_graph, &graph, to_context, &context)) return nullptr;
  return done(ek_graph_launch(graph, context->handle), context);
}

PyCFunction fast(PyObject* (*function)(PyObject*, PyObject* const*, Py_ssize_t)) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

PyMethodDef g_methods[] = {
    {"call", fast(op_call), METH_FASTCALL, nullptr},
    {"explain", fast(op_explain), METH_FASTCALL, nullptr},
    {"workspace", fast(op_workspace), METH_FASTCALL, nullptr},
    {"version", version, METH_NOARGS, nullptr},
    {"build_info", build_info, METH_NOARGS, nullptr},
    {"last_kernel", last_kernel, METH_NOARGS, nullptr},
    {"ops", ops, METH_NOARGS, nullptr},
    {"kernels", kernels, METH_VARARGS, nullptr},
    {"kernel_force", kernel_force, METH_VARARGS, nullptr},
    {"kernel_last", kernel_last, METH_O, nullptr},
    {"table_set", table_set, METH_VARARGS, nullptr},
    {"device_count", device_count, METH_VARARGS, nullptr},
    {"device_query", device_query, METH_VARARGS, nullptr},
    {"memory_alloc", memory_alloc, METH_VARARGS, nullptr},
    {"memory_free", memory_free, METH_VARARGS, nullptr},
    {"memory_copy", memory_copy, METH_VARARGS, nullptr},
    {"memory_fill", memory_fill, METH_VARARGS, nullptr},
    {"dlpack", make_dlpack, METH_VARARGS, nullptr},
    {"context_create", context_create, METH_VARARGS, nullptr},
    {"context_default", context_default, METH_VARARGS, nullptr},
    {"context_use", context_use, METH_O, nullptr},
    {"context_set_stream", context_set_stream, METH_VARARGS, nullptr},
    {"context_stream", context_stream, METH_O, nullptr},
    {"context_set_flags", context_set_flags, METH_VARARGS, nullptr},
    {"context_set_workspace", context_set_workspace, METH_VARARGS, nullptr},
    {"context_reserve", context_reserve, METH_VARARGS, nullptr},
    {"context_synchronize", context_synchronize, METH_O, nullptr},
    {"stream_create", stream_create, METH_VARARGS, nullptr},
    {"stream_destroy", stream_destroy, METH_VARARGS, nullptr},
    {"stream_synchronize", stream_synchronize, METH_VARARGS, nullptr},
    {"event_create", event_create, METH_VARARGS, nullptr},
    {"event_record", event_record, METH_VARARGS, nullptr},
    {"event_wait", event_wait, METH_VARARGS, nullptr},
    {"event_synchronize", event_synchronize, METH_VARARGS, nullptr},
    {"event_elapsed", event_elapsed, METH_VARARGS, nullptr},
    {"graph_begin", graph_begin, METH_O, nullptr},
    {"graph_end", graph_end, METH_O, nullptr},
    {"graph_launch", graph_launch, METH_VARARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef g_module = {
    PyModuleDef_HEAD_INIT, "einkorn._native", nullptr, -1, g_methods, nullptr, nullptr, nullptr, nullptr,
};

bool add_errors(PyObject* module) {
  g_error = PyErr_NewExceptionWithDoc("einkorn.Error",
                                      "A call of the library failed; `status` is the name of its status code.",
                                      PyExc_RuntimeError, nullptr);
  PyObject* bases = g_error ? PyTuple_Pack(2, g_error, PyExc_ValueError) : nullptr;
  g_invalid_argument = bases ? PyErr_NewExceptionWithDoc("einkorn.InvalidArgument",
                                                         "The message names the argument, what it is and what was "
                                                         "expected.",
                                                         bases, nullptr)
                             : nullptr;
  Py_XDECREF(bases);
  return g_invalid_argument && PyModule_AddObjectRef(module, "Error", g_error) == 0 &&
         PyModule_AddObjectRef(module, "InvalidArgument", g_invalid_argument) == 0;
}

}  // namespace
}  // namespace ekpy

PyMODINIT_FUNC PyInit__native(void) {
  PyObject* module = PyModule_Create(&ekpy::g_module);
  if (module && !ekpy::add_errors(module)) Py_CLEAR(module);
  return module;
}
