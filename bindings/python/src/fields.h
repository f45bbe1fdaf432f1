// SPDX-License-Identifier: Apache-2.0
// How ops_gen.h describes an op to the generic call: its args struct field by field.
#pragma once

#include <einkorn/einkorn.h>

#include <cstddef>
#include <cstdint>

namespace ekpy {

enum class Kind : uint8_t { kTensor, kTensorList, kF32, kF64, kI32, kI64, kBool, kEnum };

struct Field {
  const char* name;
  Kind kind;
  bool writable;              // a tensor that the op writes
  bool host;                  // a tensor in host memory wherever the op runs
  uint16_t offset;            // in the args struct
  uint16_t count_offset;      // of a list's length
  const char* const* values;  // of an enum, ended by nullptr
};

struct OpInfo {
  const char* name;
  const Field* fields;
  int field_count;
  const void* defaults;  // the args struct as its initialiser makes it
  size_t bytes;          // of that struct
  ek_status (*call)(ek_context*, const void* args);
  ek_status (*workspace)(ek_context*, const void* args, size_t* bytes_out);
};

// The typed entry points behind one untyped signature.
template <class Args, ek_status (*F)(ek_context*, const Args*)>
ek_status call_op(ek_context* context, const void* args) {
  return F(context, static_cast<const Args*>(args));
}
template <class Args, ek_status (*F)(ek_context*, const Args*, size_t*)>
ek_status workspace_op(ek_context* context, const void* args, size_t* bytes_out) {
  return F(context, static_cast<const Args*>(args), bytes_out);
}

}  // namespace ekpy
