// SPDX-License-Identifier: Apache-2.0
// The one call behind every op: fields from Python into the op's args struct, the context of their device, the C entry
// point. No allocation and no Python object on the way for NumPy and torch, so that a call stays near a microsecond.
#include <cstring>
#include <memory>
#include <vector>

#include "native.h"
#include "ops_gen.h"

namespace ekpy {
namespace {

// Below this much data the work is shorter than handing the interpreter lock over and back.
constexpr int64_t kReleaseLockElements = 32768;

class Call {
 public:
  ~Call() {
    for (int i = 0; i < tensor_count_; ++i) release_tensor(&tensors_[i]);
    for (auto& t : list_tensors_) release_tensor(t.get());
    for (PyObject* item : list_items_) Py_DECREF(item);
  }

  // args: op index, ctx, fields. False with a Python error set.
  bool prepare(PyObject* const* args, Py_ssize_t count);

  const OpInfo* op = nullptr;
  Context* context = nullptr;
  bool release_lock = false;
  const void* args() const { return args_; }
  PyObject* fail(ek_status status) const { return raise(status, ek_context_error(context->handle)); }

 private:
  bool fill(const Field& field, PyObject* value);
  bool fill_list(const Field& field, PyObject* value);
  bool fill_enum(const Field& field, PyObject* value);
  bool choose_context();
  bool import(PyObject* value, const Field& field, ImportedTensor* out) {
    if (!import_tensor(value, field.writable, context, op->name, field.name, out)) return false;
    if (!first_ && !field.host) first_ = out;
    if ((out->table || out->stream_of) && !framework_) framework_ = out;
    return true;
  }
  template <class T>
  void store(const Field& field, T value) {
    std::memcpy(args_ + field.offset, &value, sizeof(value));
  }

  alignas(16) unsigned char args_[kMaxArgsBytes];
  ImportedTensor tensors_[kMaxTensors];
  int tensor_count_ = 0;
  ImportedTensor* first_ = nullptr;      // its device is where the op runs
  ImportedTensor* framework_ = nullptr;  // the first whose framework has a current stream
  std::vector<std::unique_ptr<ImportedTensor>> list_tensors_;
  std::vector<PyObject*> list_items_;  // held: a sequence may make its items on demand, or change during the call
  std::vector<std::vector<const ek_tensor*>> lists_;
};

bool Call::prepare(PyObject* const* args, Py_ssize_t count) {
  const size_t index = count >= 2 ? PyLong_AsSize_t(args[0]) : kOpCount;
  if (index >= kOpCount || count != 2 + kOps[index].field_count) {
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "expected an op index, ctx and every field of the op");
    return false;
  }
  op = &kOps[index];
  if (!context_from(args[1], &context)) return false;
  std::memcpy(args_, op->defaults, op->bytes);
  for (int i = 0; i < op->field_count; ++i)
    if (!fill(op->fields[i], args[2 + i])) return false;
  return choose_context();
}

bool Call::fill(const Field& field, PyObject* value) {
  switch (field.kind) {
    case Kind::kTensor: {
      if (value == Py_None) return true;  // stays NULL; the library says so where it is not optional
      ImportedTensor* tensor = &tensors_[tensor_count_];
      if (!import(value, field, tensor)) return false;
      ++tensor_count_;
      store<const ek_tensor*>(field, &tensor->tensor);
      return true;
    }
    case Kind::kTensorList: return value == Py_None || fill_list(field, value);
    case Kind::kEnum: return fill_enum(field, value);
    case Kind::kF32:
    case Kind::kF64: {
      const double number = PyFloat_AsDouble(value);
      if (number == -1.0 && PyErr_Occurred()) break;
      if (field.kind == Kind::kF32)
        store(field, static_cast<float>(number));
      else
        store(field, number);
      return true;
    }
    case Kind::kI32:
    case Kind::kI64: {
      const long long number = PyLong_AsLongLong(value);
      if (number == -1 && PyErr_Occurred()) break;
      if (field.kind == Kind::kI64) {
        store(field, static_cast<int64_t>(number));
        return true;
      }
      if (number != static_cast<int32_t>(number)) {
        raise_invalid("%s: %s is %lld, which does not fit 32 bits", op->name, field.name, number);
        return false;
      }
      store(field, static_cast<int32_t>(number));
      return true;
    }
    case Kind::kBool: {
      const int truth = PyObject_IsTrue(value);
      if (truth < 0) break;
      store(field, static_cast<int32_t>(truth));
      return true;
    }
  }
  // A number that is none: say which argument before Python's own words are lost.
  if (PyErr_ExceptionMatches(PyExc_TypeError) || PyErr_ExceptionMatches(PyExc_OverflowError)) {
    PyErr_Clear();
    PyErr_Format(PyExc_TypeError, "%s: %s must be a number, not %R", op->name, field.name, value);
  }
  return false;
}

bool Call::fill_enum(const Field& field, PyObject* value) {
  for (int i = 0; PyUnicode_Check(value) && field.values[i]; ++i) {
    if (PyUnicode_CompareWithASCIIString(value, field.values[i]) == 0) {
      store(field, static_cast<int32_t>(i));
      return true;
    }
  }
  char expected[256] = "";
  for (int i = 0; field.values[i]; ++i) {
    if (i) std::strncat(expected, ", ", sizeof(expected) - std::strlen(expected) - 1);
    std::strncat(expected, field.values[i], sizeof(expected) - std::strlen(expected) - 1);
  }
  PyObject* repr = PyObject_Repr(value);
  const char* text = repr ? PyUnicode_AsUTF8AndSize(repr, nullptr) : nullptr;
  if (text) raise_invalid("%s: %s is %s, expected one of %s", op->name, field.name, text, expected);
  Py_XDECREF(repr);
  return false;
}

bool Call::fill_list(const Field& field, PyObject* value) {
  const Py_ssize_t count = PySequence_Size(value);
  if (count < 0) return false;
  std::vector<const ek_tensor*> pointers;
  pointers.reserve(1);  // an empty list is not NULL, which would be none at all
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* item = PySequence_GetItem(value, i);
    if (!item) return false;
    list_items_.push_back(item);
    auto tensor = std::make_unique<ImportedTensor>();
    if (!import(item, field, tensor.get())) return false;
    pointers.push_back(&tensor->tensor);
    list_tensors_.push_back(std::move(tensor));
  }
  lists_.push_back(std::move(pointers));  // moving keeps the array where it is
  store<const ek_tensor* const*>(field, lists_.back().data());
  const int64_t stored = count;
  std::memcpy(args_ + field.count_offset, &stored, sizeof(stored));
  return true;
}

// The given context, or this thread's own for the device of the first tensor, on the framework's current stream.
bool Call::choose_context() {
  if (!context) {
    ek_device device = {EK_DEVICE_CPU, 0};
    if (first_) device = first_->tensor.device;
    if (device.type == EK_DEVICE_CUDA_HOST) device = {EK_DEVICE_CPU, 0};
    if (device.type == EK_DEVICE_CUDA_MANAGED) device.type = EK_DEVICE_CUDA;
    context = default_context(device);
    if (!context) return false;
  }
  if (context->device.type == EK_DEVICE_CPU) {
    int64_t elements = 0;
    for (int i = 0; i < tensor_count_; ++i) {
      int64_t n = 1;
      for (int d = 0; d < tensors_[i].tensor.ndim; ++d) n *= tensors_[i].tensor.shape[d];
      elements += n;
    }
    release_lock = elements >= kReleaseLockElements || !list_tensors_.empty();
    return true;
  }
  if (!context->follow || !framework_) return true;
  ek_stream stream = nullptr;
  return current_stream(*framework_, &stream) && set_stream(context, stream);
}

}  // namespace

PyObject* op_call(PyObject*, PyObject* const* args, Py_ssize_t count) {
  Call call;
  if (!call.prepare(args, count)) return nullptr;
  ek_status status;
  if (call.release_lock) {
    Py_BEGIN_ALLOW_THREADS;
    status = call.op->call(call.context->handle, call.args());
    Py_END_ALLOW_THREADS;
  } else {
    status = call.op->call(call.context->handle, call.args());
  }
  if (status != EK_STATUS_OK) return call.fail(status);
  thread_state().last_kernel = ek_kernel_last(call.context->handle);
  return Py_NewRef(Py_None);
}

PyObject* op_workspace(PyObject*, PyObject* const* args, Py_ssize_t count) {
  Call call;
  if (!call.prepare(args, count)) return nullptr;
  size_t bytes = 0;
  const ek_status status = call.op->workspace(call.context->handle, call.args(), &bytes);
  return status == EK_STATUS_OK ? PyLong_FromSize_t(bytes) : call.fail(status);
}

PyObject* op_explain(PyObject*, PyObject* const* args, Py_ssize_t count) {
  Call call;
  if (!call.prepare(args, count)) return nullptr;
  std::vector<char> text(4096);
  size_t needed = 0;
  ek_status status = ek_explain(call.context->handle, call.op->name, call.args(), text.data(), text.size(), &needed);
  if (status == EK_STATUS_OK && needed > text.size()) {
    text.resize(needed);
    status = ek_explain(call.context->handle, call.op->name, call.args(), text.data(), text.size(), &needed);
  }
  return status == EK_STATUS_OK ? PyUnicode_FromString(text.data()) : call.fail(status);
}

}  // namespace ekpy
