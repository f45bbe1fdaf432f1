// SPDX-License-Identifier: Apache-2.0
// Argument checks. The schema of an op becomes an OpSpec (generated); one function reads a public args struct by it,
// refuses what does not fit with a sentence, and fills in the op's Args. So all ops fail in the same words.
#pragma once

#include "core/tensor.h"

namespace ek {

enum : uint8_t { kIn, kInout, kOut };
enum : uint8_t { kOptional = 1, kStrided = 2, kHost = 4, kList = 8 };
enum : uint8_t { kAttrF32, kAttrI32, kAttrF64, kAttrI64, kAttrBool, kAttrEnum };  // the last two: a checked int32_t

struct TensorSpec {
  const char* name;
  uint16_t from;  // offset in the public struct: const ek_tensor*, or for a list const ek_tensor* const* and a count
  uint16_t to;    // offset in the Args: Tensor or TensorList
  uint8_t role;
  uint8_t flags;
  int8_t dtype_var;  // index of the dtype variable, or -1: `dtype`
  ek_dtype dtype;
  int8_t ndim;             // named or literal dims
  int8_t lead;             // how many of them stand before "...", or -1: there is no "..."
  int16_t dims[kMaxDims];  // >= 0: index of a DimSpec; < 0: the literal -1 - dims[i]
};

struct DimSpec {
  const char* name;
  uint16_t to;
  bool derived;  // computed by OpSpec::derive, then compared
};

struct DtypeSpec {
  const char* name;
  uint16_t to;
  uint8_t count;
  ek_dtype allowed[8];
};

struct AttrSpec {
  const char* name;
  uint16_t from, to;
  uint8_t kind;
  const char* const* values;  // of an enum
  int value_count;
};

// Output and input (indices of tensors) that may be the same memory, element for element.
struct AliasSpec {
  int8_t out, in;
};

struct Requirement {
  const char* sentence;
  const char* names;  // the dims and attributes that it is about, with a space around each
};

struct OpSpec {
  const char* name;
  const void* defaults;       // a public struct as its initialiser makes it
  uint32_t size, first_size;  // of the public struct: now, and in its first version
  const TensorSpec* tensors;
  int tensor_count;
  const DimSpec* dims;
  int dim_count;
  const DtypeSpec* dtypes;
  int dtype_count;
  const ek_dtype* combos;  // [combo_count, dtype_count]; none: every combination
  int combo_count;
  const AttrSpec* attrs;
  int attr_count;
  const AliasSpec* alias;
  int alias_count;
  int lead_to, rows_to;  // offsets in the Args, or -1
  void (*derive)(void* args);
  const Requirement* (*require)(const void* args);  // the one that does not hold, or null
};

// Reads `public_args` (a struct that starts with struct_size) into `args`. *empty: there is nothing to write.
ek_status check(ek_context* context, const OpSpec& spec, const void* public_args, void* args, bool* empty);

// ---- what expressions of the schema become ---------------------------------------------------------------------------

inline bool present(const Tensor& t) { return t.data != nullptr; }
inline bool present(const TensorList& t) { return t.items != nullptr; }
constexpr int64_t floor_div(int64_t a, int64_t b) { return b == 0 ? 0 : a / b; }
constexpr int64_t ceil_div(int64_t a, int64_t b) { return b == 0 ? 0 : (a + b - 1) / b; }
constexpr int64_t remainder(int64_t a, int64_t b) { return b == 0 ? 0 : a % b; }
constexpr int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
constexpr int64_t most(int64_t a, int64_t b) { return a < b ? b : a; }

}  // namespace ek
