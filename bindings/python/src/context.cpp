// SPDX-License-Identifier: Apache-2.0
// Contexts as Python sees them: capsules around a shared Context, and one default context per thread and device, made at
// its first use and destroyed when the thread ends.
#include <new>

#include "native.h"

namespace ekpy {
namespace {

constexpr const char* kCapsule = "einkorn.context";

void destroy_capsule(PyObject* capsule) { delete static_cast<ContextPtr*>(PyCapsule_GetPointer(capsule, kCapsule)); }

PyObject* make_capsule(const ContextPtr& context) {
  auto* held = new (std::nothrow) ContextPtr(context);
  if (!held) return PyErr_NoMemory();
  PyObject* capsule = PyCapsule_New(held, kCapsule, destroy_capsule);
  if (!capsule) delete held;
  return capsule;
}

ContextPtr* unwrap(PyObject* capsule) { return static_cast<ContextPtr*>(PyCapsule_GetPointer(capsule, kCapsule)); }

ContextPtr create(ek_device device) {
  ContextPtr context = std::make_shared<Context>();
  context->device = device;
  const ek_status status = ek_context_create(device, &context->handle);
  if (status != EK_STATUS_OK) {
    raise(status, ek_last_error());
    return nullptr;
  }
  return context;
}

}  // namespace

ThreadState& thread_state() {
  thread_local ThreadState state;
  return state;
}

Context* default_context(ek_device device) {
  constexpr int kSlots = static_cast<int>(sizeof(ThreadState::defaults) / sizeof(ContextPtr));
  const int slot = device.type == EK_DEVICE_CPU ? 0 : 1 + device.id;
  if (slot < 0 || slot >= kSlots) {
    raise_invalid("device id %d: at most %d CUDA devices have a default context, create one with einkorn.Context",
                  static_cast<int>(device.id), kSlots - 1);
    return nullptr;
  }
  ContextPtr& context = thread_state().defaults[slot];
  if (!context) context = create(device);
  return context.get();
}

bool context_from(PyObject* object, Context** context_out) {
  *context_out = nullptr;
  if (object == Py_None) {
    *context_out = thread_state().used.get();
    return true;
  }
  static PyObject* const name = PyUnicode_InternFromString("_native");
  PyObject* capsule = PyObject_GetAttr(object, name);
  if (!capsule || !PyCapsule_CheckExact(capsule)) {
    Py_XDECREF(capsule);
    PyErr_Clear();
    PyErr_SetString(PyExc_TypeError, "ctx must be an einkorn.Context or None");
    return false;
  }
  // The Context object, which the caller holds, keeps the capsule alive.
  *context_out = context_arg(capsule);
  Py_DECREF(capsule);
  return *context_out != nullptr;
}

bool set_stream(Context* context, ek_stream stream) {
  if (context->stream == stream) return true;
  const ek_status status = ek_context_set_stream(context->handle, stream);
  if (status != EK_STATUS_OK) {
    raise(status, ek_context_error(context->handle));
    return false;
  }
  context->stream = stream;
  return true;
}

Context* context_arg(PyObject* capsule) {
  ContextPtr* held = unwrap(capsule);
  return held ? held->get() : nullptr;
}

// context_create(device_type, device_id) -> capsule
PyObject* context_create(PyObject*, PyObject* args) {
  int type, id;
  if (!PyArg_ParseTuple(args, "ii", &type, &id)) return nullptr;
  const ContextPtr context = create({type, id});
  return context ? make_capsule(context) : nullptr;
}

// context_default(device_type, device_id) -> capsule of this thread's context
PyObject* context_default(PyObject*, PyObject* args) {
  int type, id;
  if (!PyArg_ParseTuple(args, "ii", &type, &id)) return nullptr;
  if (!default_context({type, id})) return nullptr;
  return make_capsule(thread_state().defaults[type == EK_DEVICE_CPU ? 0 : 1 + id]);
}

// context_use(capsule or None) -> what was used before
PyObject* context_use(PyObject*, PyObject* capsule) {
  ContextPtr next;
  if (capsule != Py_None) {
    ContextPtr* held = unwrap(capsule);
    if (!held) return nullptr;
    next = *held;
  }
  ContextPtr& used = thread_state().used;
  PyObject* previous = used ? make_capsule(used) : Py_NewRef(Py_None);
  if (previous) used = next;
  return previous;
}

// context_set_stream(capsule, stream or None): None follows the framework's stream again
PyObject* context_set_stream(PyObject*, PyObject* args) {
  PyObject *capsule, *stream;
  if (!PyArg_ParseTuple(args, "OO", &capsule, &stream)) return nullptr;
  Context* context = context_arg(capsule);
  if (!context) return nullptr;
  ek_stream value = nullptr;
  if (stream != Py_None) {
    value = PyLong_AsVoidPtr(stream);
    if (PyErr_Occurred()) return nullptr;
  }
  if (!set_stream(context, value)) return nullptr;
  context->follow = stream == Py_None;
  return Py_NewRef(Py_None);
}

PyObject* context_stream(PyObject*, PyObject* capsule) {
  Context* context = context_arg(capsule);
  return context ? PyLong_FromVoidPtr(context->stream) : nullptr;
}

}  // namespace ekpy
