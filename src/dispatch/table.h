// SPDX-License-Identifier: Apache-2.0
// Measured routing: text rules that put a row before the table's own order for some shapes. docs/dispatch.md has the
// format:   rms_norm T=bf16 rows=1..64 dim=4096.. : rms_norm_cuda_vec
#pragma once

#include <vector>

#include "dispatch/registry.h"

namespace ek {

// Tables of src/dispatch/tables/<gpu name with _ for blanks>.table, compiled in by generated code (tables_gen.cpp).
// Ended by {nullptr, nullptr}.
struct BuiltinTable {
  const char* device_name;  // Device::name, as in "NVIDIA H200"
  const char* text;
};
extern const BuiltinTable kBuiltinTables[];

// The text for a device of this name, or nullptr.
const char* find_builtin_table(const char* device_name);

// low <= value of dims[field] <= high
struct Condition {
  int32_t field;
  int64_t low;
  int64_t high;
};

struct Rule {
  int32_t op;
  int32_t row;   // index in the op's rows
  int32_t line;  // of the text, for explanations
  bool batch;    // some condition looks at a batch dim
  uint32_t first_condition;
  uint32_t condition_count;
};

struct RoutingTable {
  std::vector<Rule> rules;  // grouped by op, in the order of the text within one
  std::vector<Condition> conditions;

  struct Span {
    const Rule* begin;
    const Rule* end;
  };
  Span of_op(int op) const;
};

// Reads `text` into `table_out`, which is untouched on an error; the error names the line. NULL text: no rules.
ek_status parse_table(ek_context* context, const char* caller, const char* text, RoutingTable* table_out);

// The value of one field of an Args struct as an integer (a dtype: its code).
int64_t field_value(const DimField& field, const void* args);

bool rule_matches(const RoutingTable& table, const Rule& rule, const DimField* dims, const void* args);

}  // namespace ek
