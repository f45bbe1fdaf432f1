// SPDX-License-Identifier: Apache-2.0
// The one reader of public args structs. On the way of every call, so: no allocation (but for lists), no strings unless
// something is wrong. Order: struct size, attributes, each tensor by itself, dims across tensors, requirements, overlap.
#include "dispatch/check.h"

#include <cstdio>
#include <cstring>
#include <new>

#include "core/context.h"
#include "dispatch/overlap.h"

#define EK_CHECKED(call)                        \
  do {                                          \
    if (const ek_status s_ = (call)) return s_; \
  } while (0)

namespace ek {
namespace {

// An empty tensor may come without memory; a pointer that is not null keeps "absent" and "empty" apart.
alignas(256) char g_empty[256];

// "[4096, 8]" into a caller's buffer, for messages.
struct ShapeText {
  char text[256];
  ShapeText(const int64_t* shape, int ndim) {
    size_t at = static_cast<size_t>(std::snprintf(text, sizeof text, "["));
    for (int i = 0; i < ndim && at < sizeof text; ++i)
      at += static_cast<size_t>(
          std::snprintf(text + at, sizeof text - at, i ? ", %lld" : "%lld", static_cast<long long>(shape[i])));
    if (at < sizeof text) std::snprintf(text + at, sizeof text - at, "]");
  }
};

// "bf16", or what an unknown dtype consists of.
struct DtypeText {
  char text[64];
  explicit DtypeText(ek_dtype t) {
    const char* name = ek_dtype_name(t);
    if (std::strcmp(name, "unknown") != 0)
      std::snprintf(text, sizeof text, "%s", name);
    else
      std::snprintf(text, sizeof text, "of an unknown dtype (code %u, %d bits, %u lanes)", t & 0xff, dtype_bits(t),
                    t >> 16);
  }
};

template <class T>
T& field(void* base, size_t offset) {
  return *reinterpret_cast<T*>(static_cast<char*>(base) + offset);
}
template <class T>
const T& field(const void* base, size_t offset) {
  return *reinterpret_cast<const T*>(static_cast<const char*>(base) + offset);
}

class Checker {
 public:
  Checker(ek_context* context, const OpSpec& spec, const void* public_args, void* args)
      : context_(context), spec_(spec), public_(public_args), args_(args) {}

  ek_status run(bool* empty) {
    EK_CHECKED(read_struct());
    EK_CHECKED(read_attrs());
    for (int i = 0; i < spec_.dtype_count; ++i) field<ek_dtype>(args_, spec_.dtypes[i].to) = 0;
    EK_CHECKED(read_tensors());
    EK_CHECKED(check_combos());
    if (spec_.lead_to >= 0) write_lead();
    if (spec_.derive) spec_.derive(args_);
    if (spec_.require)
      if (const Requirement* broken = spec_.require(args_)) return refuse_requirement(*broken);
    if (spec_.derive) EK_CHECKED(check_derived());
    EK_CHECKED(check_overlap());
    *empty = outputs_empty();
    return EK_STATUS_OK;
  }

 private:
  template <class... A>
  ek_status refuse(const char* format, A... a) {
    return fail(context_, EK_STATUS_INVALID_ARGUMENT, format, a...);
  }

  // A shorter struct is an older caller's: what it lacks keeps its default.
  ek_status read_struct() {
    if (!context_) return refuse("%s: context is NULL", spec_.name);
    if (!public_) return refuse("%s: args is NULL", spec_.name);
    const uint32_t size = field<uint32_t>(public_, 0);
    if (size == spec_.size) return EK_STATUS_OK;
    if (size < spec_.first_size || size > spec_.size)
      return refuse("%s: struct_size is %u, expected %u to %u (start from EK_..._ARGS)", spec_.name, size,
                    spec_.first_size, spec_.size);
    std::memcpy(copy_, spec_.defaults, spec_.size);
    std::memcpy(copy_, public_, size);
    public_ = copy_;
    return EK_STATUS_OK;
  }

  ek_status read_attrs() {
    for (int i = 0; i < spec_.attr_count; ++i) {
      const AttrSpec& a = spec_.attrs[i];
      if (a.kind == kAttrF64 || a.kind == kAttrI64) {
        field<int64_t>(args_, a.to) = field<int64_t>(public_, a.from);
        continue;
      }
      const int32_t value = field<int32_t>(public_, a.from);
      if (a.kind == kAttrBool) {
        if (value != 0 && value != 1) return refuse("%s: %s is %d, expected 0 or 1", spec_.name, a.name, value);
        field<bool>(args_, a.to) = value != 0;
        continue;
      }
      if (a.kind == kAttrEnum && (value < 0 || value >= a.value_count)) {
        char names[256] = "";
        for (int v = 0; v < a.value_count; ++v) {
          const size_t used = std::strlen(names);
          std::snprintf(names + used, sizeof names - used, "%s%d (%s)", v ? ", " : "", v, a.values[v]);
        }
        return refuse("%s: %s is %d, expected %s", spec_.name, a.name, value, names);
      }
      field<int32_t>(args_, a.to) = value;
    }
    return EK_STATUS_OK;
  }

  ek_status read_tensors() {
    for (int d = 0; d < spec_.dim_count; ++d) {
      from_[d] = -1;
      field<int64_t>(args_, spec_.dims[d].to) = 0;  // stays 0 where only absent optionals have this dim
    }
    for (int i = 0; i < spec_.tensor_count; ++i) {
      const TensorSpec& t = spec_.tensors[i];
      if (t.flags & kList) {
        EK_CHECKED(read_list(i));
        continue;
      }
      const ek_tensor* source = field<const ek_tensor*>(public_, t.from);
      Tensor& tensor = field<Tensor>(args_, t.to);
      if (!source) {
        if (!(t.flags & kOptional)) return refuse("%s: %s is NULL, expected a tensor", spec_.name, t.name);
        tensor = Tensor();
        continue;
      }
      EK_CHECKED(read_tensor(i, t.name, *source, &tensor, true));
    }
    return EK_STATUS_OK;
  }

  // Items of a list have leading dims of their own; the same item of every list must agree in them.
  ek_status read_list(int i) {
    const TensorSpec& t = spec_.tensors[i];
    const ek_tensor* const* sources = field<const ek_tensor* const*>(public_, t.from);
    const int64_t count = field<int64_t>(public_, t.from + sizeof(void*));
    TensorList& list = field<TensorList>(args_, t.to);
    list = TensorList();
    if (!sources) {
      if (t.flags & kOptional) return EK_STATUS_OK;
      return refuse("%s: %s is NULL, expected a list of tensors", spec_.name, t.name);
    }
    if (count < 0)
      return refuse("%s: %s_count is %lld, expected 0 or more", spec_.name, t.name, static_cast<long long>(count));
    if (list_count_ < 0) {
      list_count_ = count;
      list_from_ = t.name;
      // All lists of a call in one block, so that it never moves while it is filled.
      context_->list_storage.clear();
      size_t lists = 0;
      for (int k = 0; k < spec_.tensor_count; ++k) lists += (spec_.tensors[k].flags & kList) != 0;
      const size_t most = context_->list_storage.max_size() / lists;
      bool room = static_cast<uint64_t>(count) <= most;
      try {
        if (room) context_->list_storage.reserve(static_cast<size_t>(count) * lists);
      } catch (const std::bad_alloc&) {
        room = false;
      }
      if (!room)
        return refuse("%s: %s_count is %lld, expected no more than there is memory for", spec_.name, t.name,
                      static_cast<long long>(count));
    } else if (count != list_count_) {
      return refuse("%s: %s has %lld tensors, expected %lld (as many as %s)", spec_.name, t.name,
                    static_cast<long long>(count), static_cast<long long>(list_count_), list_from_);
    }
    const size_t first = context_->list_storage.size();
    for (int64_t k = 0; k < count; ++k) {
      char name[96];
      std::snprintf(name, sizeof name, "%s[%lld]", t.name, static_cast<long long>(k));
      if (!sources[k]) return refuse("%s: %s is NULL, expected a tensor", spec_.name, name);
      Tensor tensor;
      EK_CHECKED(read_tensor(i, name, *sources[k], &tensor, false));
      if (first > 0) {
        const Tensor& other = context_->list_storage[static_cast<size_t>(k)];
        const bool same = other.ndim == tensor.ndim && !std::memcmp(other.shape, tensor.shape, sizeof tensor.shape);
        if (t.lead >= 0 && !same)
          return refuse("%s: %s has shape %s, expected %s (as %s[%lld])", spec_.name, name,
                        ShapeText(tensor.shape, tensor.ndim).text, ShapeText(other.shape, other.ndim).text, list_from_,
                        static_cast<long long>(k));
      }
      context_->list_storage.push_back(tensor);
    }
    list.items = count ? context_->list_storage.data() + first : reinterpret_cast<const Tensor*>(g_empty);
    list.count = count;
    return EK_STATUS_OK;
  }

  ek_status read_tensor(int index, const char* name, const ek_tensor& source, Tensor* tensor, bool unify_lead) {
    const TensorSpec& t = spec_.tensors[index];
    EK_CHECKED(check_device(t, name, source));
    EK_CHECKED(check_dtype(t, name, source.dtype));

    const int fewest = t.ndim, ndim = source.ndim;
    if (ndim < fewest || (t.lead < 0 && ndim != fewest) || ndim > kMaxDims)
      return refuse("%s: %s has %d dimensions, expected %s%d%s", spec_.name, name, ndim, t.lead < 0 ? "" : "at least ",
                    fewest, ndim > kMaxDims ? " and at most 8" : "");
    if (ndim > 0 && !source.shape)
      return refuse("%s: %s has no shape (NULL), expected %d dimensions", spec_.name, name, ndim);

    tensor->dtype = source.dtype;
    tensor->ndim = ndim;
    // All of it: of a size that the compiler knows, this is a few vector stores; of another one, a slow string instruction.
    std::memset(tensor->shape, 0, sizeof tensor->shape);
    std::memset(tensor->stride, 0, sizeof tensor->stride);
    int64_t dense = 1;
    bool is_empty = false;
    for (int d = ndim - 1; d >= 0; --d) {
      const int64_t size = source.shape[d];
      if (size < 0)
        return refuse("%s: %s has shape %s, expected no dimension below 0", spec_.name, name,
                      ShapeText(source.shape, ndim).text);
      tensor->shape[d] = size;
      tensor->stride[d] = source.strides ? source.strides[d] : dense;
      if (__builtin_mul_overflow(dense, size ? size : 1, &dense) || dense > INT64_MAX / 16)
        return refuse("%s: %s has shape %s, expected fewer than 2^59 elements", spec_.name, name,
                      ShapeText(source.shape, ndim).text);
      is_empty |= size == 0;
    }
    if (source.strides && !is_empty) EK_CHECKED(check_strides(t, name, *tensor));

    tensor->data = static_cast<char*>(source.data) + source.byte_offset;
    if (is_empty) {
      if (!source.data) tensor->data = g_empty;
    } else {
      if (!source.data)
        return refuse("%s: %s has no data (NULL), expected memory for shape %s", spec_.name, name,
                      ShapeText(source.shape, ndim).text);
      const int bytes = dtype_bytes(source.dtype);
      if (reinterpret_cast<uintptr_t>(tensor->data) & static_cast<unsigned>(bytes - 1))
        return refuse("%s: %s starts at %p, expected a multiple of %d bytes (its element)", spec_.name, name,
                      tensor->data, bytes);
    }
    return unify_dims(index, name, *tensor, unify_lead);
  }

  ek_status check_device(const TensorSpec& t, const char* name, const ek_tensor& source) {
    const ek_device want = context_->device.id;
    const ek_device have = source.device;
    const bool host = have.type == EK_DEVICE_CPU || have.type == EK_DEVICE_CUDA_HOST;
    if (have.type == EK_DEVICE_CUDA_MANAGED) return EK_STATUS_OK;
    if ((t.flags & kHost) || want.type == EK_DEVICE_CPU) {
      if (!host)
        return refuse("%s: %s is on device type %d, expected host memory%s", spec_.name, name, have.type,
                      t.flags & kHost ? "" : " (the context is on the CPU)");
    } else if (have.type != want.type || have.id != want.id) {
      return refuse("%s: %s is on %s %d, expected cuda %d (the context's device)", spec_.name, name,
                    have.type == EK_DEVICE_CUDA ? "cuda"
                    : host                      ? "cpu"
                                                : "device type",
                    host || have.type == EK_DEVICE_CUDA ? have.id : have.type, want.id);
    }
    return EK_STATUS_OK;
  }

  ek_status check_dtype(const TensorSpec& t, const char* name, ek_dtype have) {
    if (t.dtype_var < 0) {
      if (have == t.dtype) return EK_STATUS_OK;
      return refuse("%s: %s is %s, expected %s", spec_.name, name, DtypeText(have).text, ek_dtype_name(t.dtype));
    }
    const DtypeSpec& var = spec_.dtypes[t.dtype_var];
    ek_dtype& bound = field<ek_dtype>(args_, var.to);
    if (bound && bound == have) return EK_STATUS_OK;
    if (bound)
      return refuse("%s: %s is %s, expected %s (as %s)", spec_.name, name, DtypeText(have).text, ek_dtype_name(bound),
                    dtype_from_[t.dtype_var]);
    for (int i = 0; i < var.count; ++i)
      if (var.allowed[i] == have) {
        bound = have;
        dtype_from_[t.dtype_var] = t.name;
        return EK_STATUS_OK;
      }
    char names[128] = "";
    for (int i = 0; i < var.count; ++i) {
      const size_t used = std::strlen(names);
      std::snprintf(names + used, sizeof names - used, "%s%s", i ? ", " : "", ek_dtype_name(var.allowed[i]));
    }
    return refuse("%s: %s is %s, expected one of %s", spec_.name, name, DtypeText(have).text, names);
  }

  ek_status check_strides(const TensorSpec& t, const char* name, const Tensor& tensor) {
    for (int d = 0; d < tensor.ndim; ++d) {
      if (tensor.stride[d] < 0)
        return refuse("%s: %s has strides %s, expected none below 0", spec_.name, name,
                      ShapeText(tensor.stride, tensor.ndim).text);
      int64_t reach;
      if (__builtin_mul_overflow(tensor.stride[d], tensor.shape[d], &reach) || reach > INT64_MAX / 16)
        return refuse("%s: %s has strides %s, expected less than 2^59 elements from first to last", spec_.name, name,
                      ShapeText(tensor.stride, tensor.ndim).text);
    }
    const int last = tensor.ndim - 1;
    const bool row = t.ndim > 0 && t.lead != t.ndim;  // the last dim is one of the schema's own, not a leading one
    if (row && !(t.flags & kStrided) && tensor.shape[last] > 1 && tensor.stride[last] != 1)
      return refuse("%s: %s has stride %lld in its last dimension, expected 1 (contiguous)", spec_.name, name,
                    static_cast<long long>(tensor.stride[last]));
    if (t.role != kIn && overlaps_itself(tensor))
      return refuse("%s: %s has shape %s and strides %s, expected no two elements in one place", spec_.name, name,
                    ShapeText(tensor.shape, tensor.ndim).text, ShapeText(tensor.stride, tensor.ndim).text);
    return EK_STATUS_OK;
  }

  // Bind or compare every dim of the tensor; derived ones wait for check_derived.
  ek_status unify_dims(int index, const char* name, const Tensor& tensor, bool unify_lead) {
    const TensorSpec& t = spec_.tensors[index];
    const int lead = t.lead < 0 ? 0 : tensor.ndim - t.ndim;
    if (t.lead >= 0 && unify_lead) {
      if (lead_tensor_ < 0) {
        lead_tensor_ = index;
        lead_ = lead;
        for (int d = 0; d < lead; ++d) lead_shape_[d] = tensor.shape[t.lead + d];
      } else if (lead != lead_ ||
                 std::memcmp(&tensor.shape[t.lead], lead_shape_, sizeof(int64_t) * static_cast<size_t>(lead))) {
        return refuse("%s: %s has shape %s, expected leading dimensions %s (from %s)", spec_.name, name,
                      ShapeText(tensor.shape, tensor.ndim).text, ShapeText(lead_shape_, lead_).text,
                      spec_.tensors[lead_tensor_].name);
      }
    }
    for (int k = 0; k < t.ndim; ++k) {
      const int64_t have = tensor.shape[position(t, k, lead)];
      if (t.dims[k] < 0) {
        const int64_t want = -1 - t.dims[k];
        if (have != want)
          return refuse("%s: %s has shape %s, expected %lld in dimension %d", spec_.name, name,
                        ShapeText(tensor.shape, tensor.ndim).text, static_cast<long long>(want), position(t, k, lead));
        continue;
      }
      const DimSpec& dim = spec_.dims[t.dims[k]];
      if (dim.derived) continue;
      int64_t& bound = field<int64_t>(args_, dim.to);
      int& from = from_[t.dims[k]];
      if (from < 0) {
        bound = have;
        from = index;
      } else if (bound != have) {
        return refuse_dim(t, name, tensor, k, bound, spec_.tensors[from].name);
      }
    }
    return EK_STATUS_OK;
  }

  static int position(const TensorSpec& t, int k, int lead) { return t.lead >= 0 && k >= t.lead ? k + lead : k; }

  // "weight has shape [4096], expected [dim = 5120] (dim from x)"
  ek_status refuse_dim(const TensorSpec& t, const char* name, const Tensor& tensor, int k, int64_t want,
                       const char* from) {
    const char* dim = spec_.dims[t.dims[k]].name;
    const char* before = t.ndim > 1 || t.lead >= 0 ? "..., " : "";
    const bool last = k == t.ndim - 1;
    return refuse("%s: %s has shape %s, expected [%s%s = %lld%s] (%s from %s)", spec_.name, name,
                  ShapeText(tensor.shape, tensor.ndim).text, k || t.lead == 0 ? before : "", dim,
                  static_cast<long long>(want), last ? "" : ", ...", dim, from);
  }

  void write_lead() {
    int64_t rows = 1;
    for (int d = 0; d < lead_; ++d) rows *= lead_shape_[d];
    field<int32_t>(args_, static_cast<size_t>(spec_.lead_to)) = lead_;
    field<int64_t>(args_, static_cast<size_t>(spec_.rows_to)) = rows;
  }

  ek_status check_combos() {
    if (!spec_.combo_count) return EK_STATUS_OK;
    for (int c = 0; c < spec_.combo_count; ++c) {
      bool match = true;
      for (int v = 0; v < spec_.dtype_count; ++v)
        match &= field<ek_dtype>(args_, spec_.dtypes[v].to) == spec_.combos[c * spec_.dtype_count + v];
      if (match) return EK_STATUS_OK;
    }
    // "T = bf16, K = f32, expected (f16, f16), (bf16, bf16) or ..."
    char have[128] = "", allowed[512] = "";
    for (int v = 0; v < spec_.dtype_count; ++v) {
      const size_t used = std::strlen(have);
      std::snprintf(have + used, sizeof have - used, "%s%s = %s", v ? ", " : "", spec_.dtypes[v].name,
                    ek_dtype_name(field<ek_dtype>(args_, spec_.dtypes[v].to)));
    }
    for (int i = 0; i < spec_.combo_count * spec_.dtype_count; ++i) {
      const size_t used = std::strlen(allowed);
      const int v = i % spec_.dtype_count;
      std::snprintf(allowed + used, sizeof allowed - used, "%s%s%s",
                    v   ? ", "
                    : i ? ", ("
                        : "(",
                    ek_dtype_name(spec_.combos[i]), v == spec_.dtype_count - 1 ? ")" : "");
    }
    return refuse("%s: %s, expected one of %s", spec_.name, have, allowed);
  }

  // "x must be a multiple of y (x = 30, y = 4)"
  ek_status refuse_requirement(const Requirement& broken) {
    char values[512] = "";
    const auto add = [&](const char* name, const char* format, auto value) {
      char word[96];
      std::snprintf(word, sizeof word, " %s ", name);
      if (!std::strstr(broken.names, word)) return;
      size_t used = std::strlen(values);
      std::snprintf(values + used, sizeof values - used, "%s%s = ", used ? ", " : "", name);
      used = std::strlen(values);
      std::snprintf(values + used, sizeof values - used, format, value);
    };
    if (spec_.rows_to >= 0)
      add("rows", "%lld", static_cast<long long>(field<int64_t>(args_, static_cast<size_t>(spec_.rows_to))));
    for (int i = 0; i < spec_.dim_count; ++i)
      add(spec_.dims[i].name, "%lld", static_cast<long long>(field<int64_t>(args_, spec_.dims[i].to)));
    for (int i = 0; i < spec_.attr_count; ++i) {
      const AttrSpec& a = spec_.attrs[i];
      if (a.kind == kAttrF32) add(a.name, "%g", static_cast<double>(field<float>(args_, a.to)));
      if (a.kind == kAttrF64) add(a.name, "%g", field<double>(args_, a.to));
      if (a.kind == kAttrI32) add(a.name, "%d", field<int32_t>(args_, a.to));
      if (a.kind == kAttrI64) add(a.name, "%lld", static_cast<long long>(field<int64_t>(args_, a.to)));
      if (a.kind == kAttrBool) add(a.name, "%d", field<bool>(args_, a.to) ? 1 : 0);
      if (a.kind == kAttrEnum) add(a.name, "%s", a.values[field<int32_t>(args_, a.to)]);
    }
    return refuse(*values ? "%s: %s (%s)" : "%s: %s", spec_.name, broken.sentence, values);
  }

  ek_status check_derived() {
    for (int i = 0; i < spec_.tensor_count; ++i) {
      const TensorSpec& t = spec_.tensors[i];
      if (t.flags & kList) continue;
      const Tensor& tensor = field<Tensor>(args_, t.to);
      if (!tensor) continue;
      const int lead = t.lead < 0 ? 0 : tensor.ndim - t.ndim;
      for (int k = 0; k < t.ndim; ++k) {
        if (t.dims[k] < 0 || !spec_.dims[t.dims[k]].derived) continue;
        const int64_t want = field<int64_t>(args_, spec_.dims[t.dims[k]].to);
        if (tensor.shape[position(t, k, lead)] != want)
          return refuse_dim(t, t.name, tensor, k, want, "the other arguments");
      }
    }
    return EK_STATUS_OK;
  }

  // An output must share no memory with anything, but for the pairs that the schema lets be one and the same.
  ek_status check_overlap() {
    for (int o = 0; o < spec_.tensor_count; ++o) {
      const TensorSpec& out = spec_.tensors[o];
      if (out.role == kIn || (out.flags & kList)) continue;
      const Tensor& a = field<Tensor>(args_, out.to);
      if (!a) continue;
      for (int i = 0; i < spec_.tensor_count; ++i) {
        const TensorSpec& other = spec_.tensors[i];
        if (i == o || (other.flags & kList) || (other.role != kIn && i < o)) continue;
        const Tensor& b = field<Tensor>(args_, other.to);
        if (!b || !ranges_touch(a, b)) continue;
        bool allowed = false;
        for (int k = 0; k < spec_.alias_count; ++k)
          allowed |= spec_.alias[k].out == o && spec_.alias[k].in == i && same_elements(a, b);
        if (!allowed && may_overlap(a, b))
          return refuse("%s: %s overlaps %s, expected memory of its own%s", spec_.name, out.name, other.name,
                        alias_text(o, i) ? ", or the same data, shape and strides" : "");
      }
    }
    return EK_STATUS_OK;
  }

  bool alias_text(int o, int i) const {
    for (int k = 0; k < spec_.alias_count; ++k)
      if (spec_.alias[k].out == o && spec_.alias[k].in == i) return true;
    return false;
  }

  bool outputs_empty() const {
    for (int i = 0; i < spec_.tensor_count; ++i) {
      const TensorSpec& t = spec_.tensors[i];
      if (t.role == kIn) continue;
      if (t.flags & kList) {
        const TensorList& list = field<TensorList>(args_, t.to);
        for (int64_t k = 0; k < list.count; ++k)
          if (list.items[k].numel()) return false;
        continue;
      }
      const Tensor& tensor = field<Tensor>(args_, t.to);
      if (tensor && tensor.numel()) return false;
    }
    return true;
  }

  static constexpr int kMostDims = 32, kMostDtypes = 8;
  static constexpr size_t kMostBytes = 1024;  // of a public struct

  ek_context* context_;
  const OpSpec& spec_;
  const void* public_;
  void* args_;
  int from_[kMostDims];  // tensor that bound a dim, or -1
  const char* dtype_from_[kMostDtypes];
  int lead_tensor_ = -1;  // tensor that bound "...", or -1
  int lead_ = 0;
  int64_t lead_shape_[kMaxDims];
  int64_t list_count_ = -1;
  const char* list_from_ = "";
  alignas(8) char copy_[kMostBytes];  // an older caller's struct with the defaults of what it lacks
};

}  // namespace

ek_status check(ek_context* context, const OpSpec& spec, const void* public_args, void* args, bool* empty) {
  return Checker(context, spec, public_args, args).run(empty);
}

}  // namespace ek
