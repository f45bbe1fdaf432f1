// SPDX-License-Identifier: Apache-2.0
// The list of all ops: what ek_op_count, ek_kernel_query, ek_kernel_force, ek_explain and the routing table look names
// up in. Generated code defines kOps; tests define their own.
#pragma once

#include "dispatch/kernel.h"

namespace ek {

struct RowInfo {
  const char* name;
  Target target;
  uint32_t promises;
  uint32_t needs;
};

// A value of an op's Args that routing rules and logs can name.
enum class FieldKind : uint8_t {
  kInt64,  // a dim, or `rows`
  kInt32,  // an integer attr, or an enum (then with value names)
  kBool,   // a bool attr: 0 or 1 in a rule
  kDtype,  // a dtype variable
};
struct DimField {
  const char* name;
  uint32_t offset;  // offsetof(Args, name)
  FieldKind kind = FieldKind::kInt64;
  // Named under `batch` in the schema (`rows` for "..."), or derived from such a dim: hidden from batch-invariant selection.
  bool batch = false;
  const char* const* values = nullptr;  // enum: names of the values 0, 1, ..., ended by nullptr
};

// One op. `rows` run through its tables in their order, so row i here is row i of the OpTables.
struct OpEntry {
  const char* name;
  int (*row_count)();
  RowInfo (*row)(int index);
  // Checks the public args struct as the op's own entry point does, then calls ek::explain of select.h.
  ek_status (*explain)(ek_context* context, const void* public_args, char* text, size_t bytes, size_t* needed);
  const DimField* dims;
  int dim_count;
};

// kOps[i] is the op whose OpTables::op_index is i.
extern const OpEntry kOps[];
extern const int kOpCount;

// Index in kOps, or -1.
int find_op(const char* name);
// Index of the row in its op, or -1.
int find_row(const OpEntry& op, const char* name);

}  // namespace ek
