// SPDX-License-Identifier: Apache-2.0
// einkorn._native: the part of the Python package that is C++. Tensors of any framework become ek_tensor views
// (tensor.cpp), a call fills the op's args struct from a generated description (call.cpp), contexts live per thread
// (context.cpp), the rest of the ABI is wrapped one to one (module.cpp). Limited API: one build for Python 3.11 to 3.14.
#pragma once

#ifndef Py_LIMITED_API
#define Py_LIMITED_API 0x030B0000
#endif
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <einkorn/einkorn.h>

#include <cstddef>
#include <cstdint>
#include <memory>

namespace ekpy {

// ---- errors (module.cpp) ----------------------------------------------------------------------------------------

extern PyObject* g_error;             // einkorn.Error(RuntimeError)
extern PyObject* g_invalid_argument;  // einkorn.InvalidArgument(Error, ValueError)

// Sets einkorn.Error or InvalidArgument with .status; always returns nullptr.
PyObject* raise(ek_status status, const char* message);
// The same with a message of its own, for what the binding finds before the library is called.
PyObject* raise_invalid(const char* format, ...);

// ---- contexts (context.cpp) ---------------------------------------------------------------------------------------

struct Context {
  ek_context* handle = nullptr;
  ek_device device = {EK_DEVICE_CPU, 0};
  ek_stream stream = nullptr;
  bool follow = true;  // takes the framework's current stream at each call; false: the stream was given and stays
  ~Context() { ek_context_destroy(handle); }
};
using ContextPtr = std::shared_ptr<Context>;

// What an op call of this thread runs on when no ctx= is given.
struct ThreadState {
  ContextPtr used;          // einkorn.use(ctx)
  ContextPtr defaults[17];  // [0] the CPU, [1 + i] CUDA device i
  const char* last_kernel = "";
};
ThreadState& thread_state();

// The thread's own context of a device, made at its first use; nullptr with a Python error set.
Context* default_context(ek_device device);
// From a Context object (its `_native` capsule), or None: what the thread uses, which may be nullptr. Borrowed.
bool context_from(PyObject* object, Context** context_out);
bool set_stream(Context* context, ek_stream stream);

PyObject* context_create(PyObject*, PyObject* args);
PyObject* context_default(PyObject*, PyObject* args);
PyObject* context_use(PyObject*, PyObject* context);
PyObject* context_set_stream(PyObject*, PyObject* args);
PyObject* context_stream(PyObject*, PyObject* context);

// A context given as an argument of a wrapped ABI call: a capsule, never None.
Context* context_arg(PyObject* capsule);

// ---- tensors (tensor.cpp) -----------------------------------------------------------------------------------------

struct ExchangeTable;  // DLPack's C exchange table

struct ImportedTensor {
  ek_tensor tensor;
  int64_t shape[EK_MAX_DIMS];
  int64_t strides[EK_MAX_DIMS];
  const ExchangeTable* table;  // the framework can say its current stream: through this one,
  PyObject* stream_of;         // or by this function, which outlives us; both null: it can't
  PyObject* keep;              // must outlive the call: a DLPack capsule or an integer view
  Py_buffer buffer;
  bool has_buffer;
};

// Fills `out`, to be given back with release_tensor. False with a Python error set. `op` and `name` are for messages.
bool import_tensor(PyObject* object, bool writable, Context* context, const char* op, const char* name,
                   ImportedTensor* out);
void release_tensor(ImportedTensor* tensor);
// The framework's current stream on the tensor's device.
bool current_stream(const ImportedTensor& tensor, ek_stream* stream_out);

// dlpack(owner, data, device_type, device_id, dtype, shape, strides) -> capsule that keeps `owner` alive.
PyObject* make_dlpack(PyObject*, PyObject* args);

// ---- ops (call.cpp) -----------------------------------------------------------------------------------------------

// All three take (op index, ctx or None, fields in the order of the args struct ...).
PyObject* op_call(PyObject*, PyObject* const* args, Py_ssize_t count);
PyObject* op_explain(PyObject*, PyObject* const* args, Py_ssize_t count);
PyObject* op_workspace(PyObject*, PyObject* const* args, Py_ssize_t count);

}  // namespace ekpy
