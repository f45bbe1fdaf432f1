// SPDX-License-Identifier: Apache-2.0
// Python objects as ek_tensor views, without a copy. Three ways in, found once per type and remembered:
//   buffer    NumPy and whatever else has the buffer protocol; bf16 and fp8 arrays (ml_dtypes) through an integer view
//   exchange  DLPack's C exchange table (torch >= 2.10): no Python object is made, and it knows the current stream
//   dlpack    any other object with __dlpack__
#include <cstdio>
#include <cstring>
#include <new>

#include "native.h"

namespace ekpy {

// DLPack's structures, as far as they are read here. The layout is DLPack's ABI, version 1.
struct DlpackVersion {
  uint32_t major, minor;
};
struct ManagedTensor {  // capsule "dltensor"
  ek_tensor tensor;
  void* manager;
  void (*deleter)(ManagedTensor*);
};
struct ManagedTensorVersioned {  // capsule "dltensor_versioned"
  DlpackVersion version;
  void* manager;
  void (*deleter)(ManagedTensorVersioned*);
  uint64_t flags;  // bit 0: read-only
  ek_tensor tensor;
};
struct ExchangeHeader {
  DlpackVersion version;
  const ExchangeHeader* previous;
};
struct ExchangeTable {
  ExchangeHeader header;
  void* allocate;
  void* managed_from_object;
  void* managed_to_object;
  int (*tensor_from_object)(void* object, ek_tensor* out);
  int (*current_stream)(int32_t device_type, int32_t device_id, void** stream_out);
};

namespace {

constexpr uint32_t kReadOnly = 1;

enum class Way { kBuffer, kExchange, kDlpack };

struct KnownType {
  PyTypeObject* type;  // a strong reference: the address can't come to mean another type
  Way way;
  const ExchangeTable* table;
  PyObject* stream_of;  // kDlpack: as in ImportedTensor
};
// Few types meet a program's ops, so a short scan beats a hash. Past the end types are looked up at each call.
constexpr int kMaxKnown = 32;
KnownType g_known[kMaxKnown];
int g_known_count = 0;

// NumPy dtypes that have no buffer: the dtype object, what it is, and the integer to view it as.
struct ViewedDtype {
  PyObject* dtype;
  ek_dtype ek;
  const char* view;
};
ViewedDtype g_viewed[8];
int g_viewed_count = 0;

const ExchangeTable* find_exchange(PyTypeObject* type) {
  PyObject* capsule = PyObject_GetAttrString(reinterpret_cast<PyObject*>(type), "__dlpack_c_exchange_api__");
  if (!capsule) {
    PyErr_Clear();
    return nullptr;
  }
  const ExchangeHeader* header = nullptr;
  if (PyCapsule_IsValid(capsule, "dlpack_exchange_api"))
    header = static_cast<const ExchangeHeader*>(PyCapsule_GetPointer(capsule, "dlpack_exchange_api"));
  Py_DECREF(capsule);  // the table itself lives as long as the process
  while (header && header->version.major > 1) header = header->previous;
  if (!header || header->version.major != 1) return nullptr;
  const auto* table = reinterpret_cast<const ExchangeTable*>(header);
  return table->tensor_from_object && table->current_stream ? table : nullptr;
}

// torch before 2.10 has no table, but a function of a device's number that its own compiler takes the current stream from.
// Found once, and kept; null where torch is not loaded, or is built without CUDA.
PyObject* find_stream_of(PyObject* object) {
  static PyObject* tensor = nullptr;
  static PyObject* stream_of = nullptr;
  if (!stream_of) {
    PyObject* torch = PyDict_GetItemString(PyImport_GetModuleDict(), "torch");
    PyObject* native = torch ? PyObject_GetAttrString(torch, "_C") : nullptr;
    tensor = native ? PyObject_GetAttrString(torch, "Tensor") : nullptr;
    stream_of = tensor ? PyObject_GetAttrString(native, "_cuda_getCurrentRawStream") : nullptr;
    Py_XDECREF(native);
    PyErr_Clear();
    if (!stream_of) Py_CLEAR(tensor);
  }
  return stream_of && PyObject_IsInstance(object, tensor) == 1 ? stream_of : nullptr;
}

bool find_way(PyObject* object, const char* op, const char* name, KnownType* out) {
  PyTypeObject* type = Py_TYPE(object);
  for (int i = 0; i < g_known_count; ++i) {
    if (g_known[i].type == type) {
      *out = g_known[i];
      return true;
    }
  }
  KnownType found = {type, Way::kBuffer, nullptr, nullptr};
  if (!PyObject_CheckBuffer(object)) {
    found.table = find_exchange(type);
    found.way = found.table ? Way::kExchange : Way::kDlpack;
    if (!found.table && !PyObject_HasAttrString(object, "__dlpack__")) {
      PyObject* repr = PyObject_Repr(reinterpret_cast<PyObject*>(type));
      const char* text = repr ? PyUnicode_AsUTF8AndSize(repr, nullptr) : nullptr;
      PyErr_Format(PyExc_TypeError, "%s: %s must be a NumPy array, a torch tensor or have __dlpack__, not %s", op, name,
                   text ? text : "this");
      Py_XDECREF(repr);
      return false;
    }
    if (!found.table) found.stream_of = find_stream_of(object);
  }
  if (g_known_count < kMaxKnown) {
    Py_INCREF(reinterpret_cast<PyObject*>(type));
    g_known[g_known_count++] = found;
  }
  *out = found;
  return true;
}

// ---- buffers --------------------------------------------------------------------------------------------------------

ek_dtype dtype_from_format(const char* format, Py_ssize_t itemsize) {
  if (!format) format = "B";
  if (*format == '@' || *format == '=' || *format == '<' || *format == '|') ++format;
  if (!*format || format[1]) return 0;
  const ek_dtype bits = static_cast<ek_dtype>(itemsize * 8);
  if (std::strchr("bhilqn", *format)) return EK_DTYPE(0, bits);
  if (std::strchr("BHILQN", *format)) return EK_DTYPE(1, bits);
  if (std::strchr("efd", *format)) return EK_DTYPE(2, bits);
  return *format == '?' ? EK_DTYPE_BOOL : 0;
}

// Remembers a dtype that NumPy would not export. False: not one we know.
bool learn_viewed(PyObject* dtype) {
  static const struct {
    const char* name;
    ek_dtype ek;
    const char* view;
  } kNames[] = {{"bfloat16", EK_DTYPE_BF16, "u2"},
                {"float8_e4m3fn", EK_DTYPE_E4M3, "u1"},
                {"float8_e5m2", EK_DTYPE_E5M2, "u1"},
                {"float8_e8m0fnu", EK_DTYPE_E8M0, "u1"}};
  PyObject* name = PyObject_GetAttrString(dtype, "name");
  if (!name) PyErr_Clear();
  for (const auto& known : kNames) {
    if (!name || PyUnicode_CompareWithASCIIString(name, known.name) != 0) continue;
    Py_DECREF(name);
    if (g_viewed_count == static_cast<int>(sizeof(g_viewed) / sizeof(g_viewed[0]))) return false;
    g_viewed[g_viewed_count++] = {Py_NewRef(dtype), known.ek, known.view};
    return true;
  }
  Py_XDECREF(name);
  return false;
}

const ViewedDtype* find_viewed(PyObject* array) {
  static PyObject* const name = PyUnicode_InternFromString("dtype");
  PyObject* dtype = PyObject_GetAttr(array, name);
  if (!dtype) {
    PyErr_Clear();
    return nullptr;
  }
  const ViewedDtype* found = nullptr;
  for (int i = 0; i < g_viewed_count && !found; ++i)
    if (g_viewed[i].dtype == dtype) found = &g_viewed[i];
  Py_DECREF(dtype);
  return found;
}

// NumPy refuses to export bf16 and fp8 arrays: the same bytes as integers pass. False: not such an array.
bool view_as_integers(PyObject* array, ImportedTensor* out, ek_dtype* dtype_out) {
  const ViewedDtype* viewed = find_viewed(array);
  if (!viewed) {
    PyObject* dtype = PyObject_GetAttrString(array, "dtype");
    const bool learned = dtype && learn_viewed(dtype);
    Py_XDECREF(dtype);
    if (!learned) {
      PyErr_Clear();
      return false;
    }
    viewed = &g_viewed[g_viewed_count - 1];
  }
  *dtype_out = viewed->ek;
  out->keep = PyObject_CallMethod(array, "view", "s", viewed->view);
  return out->keep != nullptr;
}

bool import_buffer(PyObject* object, bool writable, const char* op, const char* name, ImportedTensor* out) {
  ek_dtype dtype = 0;
  PyObject* source = object;
  constexpr int kFlags = PyBUF_STRIDES | PyBUF_FORMAT;
  if (g_viewed_count && find_viewed(object)) {
    if (!view_as_integers(object, out, &dtype)) return false;
    source = out->keep;
  }
  if (PyObject_GetBuffer(source, &out->buffer, kFlags) != 0) {
    PyErr_Clear();
    if (source != object || !view_as_integers(object, out, &dtype) ||
        PyObject_GetBuffer(out->keep, &out->buffer, kFlags) != 0) {
      PyErr_Clear();
      raise_invalid("%s: %s has a dtype that einkorn does not have", op, name);
      return false;
    }
  }
  out->has_buffer = true;
  const Py_buffer& buffer = out->buffer;
  if (!dtype) dtype = dtype_from_format(buffer.format, buffer.itemsize);
  if (!dtype) {
    raise_invalid("%s: %s has dtype '%s', which einkorn does not have", op, name, buffer.format);
    return false;
  }
  if (writable && buffer.readonly) {
    raise_invalid("%s: %s is read-only", op, name);
    return false;
  }
  if (buffer.ndim > EK_MAX_DIMS) {
    raise_invalid("%s: %s has %d dimensions, at most %d are allowed", op, name, buffer.ndim, EK_MAX_DIMS);
    return false;
  }
  for (int i = 0; i < buffer.ndim; ++i) {
    out->shape[i] = buffer.shape[i];
    if (buffer.strides[i] % buffer.itemsize) {
      raise_invalid("%s: %s has a stride of %zd bytes, which is no multiple of its %zd-byte elements", op, name,
                    buffer.strides[i], buffer.itemsize);
      return false;
    }
    out->strides[i] = buffer.strides[i] / buffer.itemsize;
  }
  out->tensor = {buffer.buf, {EK_DEVICE_CPU, 0}, buffer.ndim, dtype, out->shape, out->strides, 0};
  return true;
}

// ---- __dlpack__ -------------------------------------------------------------------------------------------------------

bool is_cuda(int32_t type) { return type == EK_DEVICE_CUDA || type == EK_DEVICE_CUDA_MANAGED; }

// The stream the producer must make its data ready on: the one the op will run on. None on the CPU, -1 where that is the
// producer's own.
PyObject* consumer_stream(PyObject* object, bool knows_stream, Context* context) {
  PyObject* pair = PyObject_CallMethod(object, "__dlpack_device__", nullptr);
  if (!pair) return nullptr;
  PyObject* fast = PySequence_Tuple(pair);
  Py_DECREF(pair);
  if (!fast) return nullptr;
  int type = 0, id = 0;
  const bool parsed = PyArg_ParseTuple(fast, "ii", &type, &id);
  Py_DECREF(fast);
  if (!parsed) return nullptr;
  if (!is_cuda(type)) return Py_NewRef(Py_None);
  if (!context) context = default_context({EK_DEVICE_CUDA, id});
  if (!context) return nullptr;
  if (knows_stream && context->follow) return PyLong_FromLong(-1);
  return context->stream ? PyLong_FromVoidPtr(context->stream) : PyLong_FromLong(1);  // 1: the default stream
}

PyObject* call_dlpack(PyObject* object, PyObject* stream) {
  PyObject* method = PyObject_GetAttrString(object, "__dlpack__");
  PyObject* none = PyTuple_New(0);
  PyObject* options = Py_BuildValue("{s:O,s:(ii)}", "stream", stream, "max_version", 1, 1);
  PyObject* capsule = method && none && options ? PyObject_Call(method, none, options) : nullptr;
  if (!capsule && options && PyErr_ExceptionMatches(PyExc_TypeError)) {
    // A producer of before DLPack 1.0 does not know max_version.
    PyErr_Clear();
    if (PyDict_DelItemString(options, "max_version") == 0) capsule = PyObject_Call(method, none, options);
  }
  Py_XDECREF(method);
  Py_XDECREF(none);
  Py_XDECREF(options);
  return capsule;
}

bool import_dlpack(PyObject* object, bool writable, Context* context, const char* op, const char* name,
                   ImportedTensor* out) {
  PyObject* stream = consumer_stream(object, out->stream_of, context);
  if (!stream) return false;
  // The capsule is not renamed: we only borrow, and its own destructor gives the tensor back after the call.
  out->keep = call_dlpack(object, stream);
  Py_DECREF(stream);
  if (!out->keep) return false;
  if (PyCapsule_IsValid(out->keep, "dltensor_versioned")) {
    auto* managed = static_cast<ManagedTensorVersioned*>(PyCapsule_GetPointer(out->keep, "dltensor_versioned"));
    if (managed->version.major != 1) {
      raise_invalid("%s: %s speaks DLPack %u, expected 1", op, name, managed->version.major);
      return false;
    }
    if (writable && managed->flags & kReadOnly) {
      raise_invalid("%s: %s is read-only", op, name);
      return false;
    }
    out->tensor = managed->tensor;
    return true;
  }
  auto* managed = static_cast<ManagedTensor*>(PyCapsule_GetPointer(out->keep, "dltensor"));
  if (!managed) return false;
  out->tensor = managed->tensor;
  return true;
}

}  // namespace

bool import_tensor(PyObject* object, bool writable, Context* context, const char* op, const char* name,
                   ImportedTensor* out) {
  out->keep = nullptr;
  out->table = nullptr;
  out->stream_of = nullptr;
  out->has_buffer = false;
  KnownType way;
  if (!find_way(object, op, name, &way)) return false;
  bool ok = false;
  switch (way.way) {
    case Way::kExchange:
      out->table = way.table;
      ok = way.table->tensor_from_object(object, &out->tensor) == 0;
      break;
    case Way::kBuffer: ok = import_buffer(object, writable, op, name, out); break;
    case Way::kDlpack:
      out->stream_of = way.stream_of;
      ok = import_dlpack(object, writable, context, op, name, out);
      break;
  }
  if (!ok) release_tensor(out);
  return ok;
}

void release_tensor(ImportedTensor* tensor) {
  if (tensor->has_buffer) PyBuffer_Release(&tensor->buffer);
  tensor->has_buffer = false;
  Py_CLEAR(tensor->keep);
}

bool current_stream(const ImportedTensor& tensor, ek_stream* stream_out) {
  const ek_device device = tensor.tensor.device;
  if (tensor.table) return tensor.table->current_stream(device.type, device.id, stream_out) == 0;
  PyObject* stream = PyObject_CallFunction(tensor.stream_of, "i", device.id);
  if (!stream) return false;
  *stream_out = PyLong_AsVoidPtr(stream);
  Py_DECREF(stream);
  return !PyErr_Occurred();
}

// ---- our own memory as DLPack ---------------------------------------------------------------------------------------

namespace {

struct Export {
  ManagedTensorVersioned versioned;
  ManagedTensor legacy;
  PyObject* owner;
  int64_t shape[EK_MAX_DIMS], strides[EK_MAX_DIMS];
};

void free_export(Export* e) {
  // A consumer may let go on any thread, with or without the interpreter lock.
  const PyGILState_STATE state = PyGILState_Ensure();
  Py_DECREF(e->owner);
  PyGILState_Release(state);
  delete e;
}

// A consumer that took the tensor has renamed the capsule and will call the deleter itself.
void destroy_versioned(PyObject* capsule) {
  if (!PyCapsule_IsValid(capsule, "dltensor_versioned")) return;
  auto* managed = static_cast<ManagedTensorVersioned*>(PyCapsule_GetPointer(capsule, "dltensor_versioned"));
  managed->deleter(managed);
}
void destroy_legacy(PyObject* capsule) {
  if (!PyCapsule_IsValid(capsule, "dltensor")) return;
  auto* managed = static_cast<ManagedTensor*>(PyCapsule_GetPointer(capsule, "dltensor"));
  managed->deleter(managed);
}

bool read_dims(PyObject* tuple, int ndim, int64_t* out) {
  for (int i = 0; i < ndim; ++i) {
    PyObject* item = PyTuple_GetItem(tuple, i);
    if (!item) return false;
    out[i] = PyLong_AsLongLong(item);
    if (out[i] == -1 && PyErr_Occurred()) return false;
  }
  return true;
}

}  // namespace

PyObject* make_dlpack(PyObject*, PyObject* args) {
  PyObject *owner, *data, *shape, *strides;
  int type, id, versioned;
  unsigned dtype;
  if (!PyArg_ParseTuple(args, "OOiiIO!O!p", &owner, &data, &type, &id, &dtype, &PyTuple_Type, &shape, &PyTuple_Type,
                        &strides, &versioned))
    return nullptr;
  const Py_ssize_t ndim = PyTuple_Size(shape);
  if (ndim > EK_MAX_DIMS || PyTuple_Size(strides) != ndim) {
    PyErr_SetString(PyExc_ValueError, "shape and strides must have the same length, at most 8");
    return nullptr;
  }
  void* pointer = PyLong_AsVoidPtr(data);
  if (PyErr_Occurred()) return nullptr;
  auto* e = new (std::nothrow) Export();
  if (!e) return PyErr_NoMemory();
  if (!read_dims(shape, static_cast<int>(ndim), e->shape) || !read_dims(strides, static_cast<int>(ndim), e->strides)) {
    delete e;
    return nullptr;
  }
  e->owner = Py_NewRef(owner);
  const ek_tensor tensor = {pointer, {type, id}, static_cast<int32_t>(ndim), dtype, e->shape, e->strides, 0};
  e->versioned = {
      {1, 1}, e, [](ManagedTensorVersioned* m) { free_export(static_cast<Export*>(m->manager)); }, 0, tensor};
  e->legacy = {tensor, e, [](ManagedTensor* m) { free_export(static_cast<Export*>(m->manager)); }};
  PyObject* capsule = versioned ? PyCapsule_New(&e->versioned, "dltensor_versioned", destroy_versioned)
                                : PyCapsule_New(&e->legacy, "dltensor", destroy_legacy);
  if (!capsule) free_export(e);
  return capsule;
}

}  // namespace ekpy
