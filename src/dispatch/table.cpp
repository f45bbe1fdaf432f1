// SPDX-License-Identifier: Apache-2.0
// Reading routing tables. A line is `op field=range ... : row`; a range is v, v..w, v.. or ..w.
#include "dispatch/table.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "core/info.h"

namespace ek {

namespace {

using std::string_view;

constexpr string_view kBlanks = " \t\r";

// Takes the next word off the front of `rest`; empty at the end.
string_view next_word(string_view* rest) {
  const size_t begin = std::min(rest->find_first_not_of(kBlanks), rest->size());
  const size_t end = std::min(rest->find_first_of(kBlanks, begin), rest->size());
  const string_view word = rest->substr(begin, end - begin);
  rest->remove_prefix(end);
  return word;
}

// The number, dtype or enum value that a word stands for in a condition on this field.
bool parse_value(const DimField& field, string_view word, int64_t* value_out) {
  if (field.kind == FieldKind::kDtype) {
    const ek_dtype dtype = find_dtype(word.data(), word.size());
    *value_out = dtype;
    return dtype != 0;
  }
  if (field.values)
    for (int i = 0; field.values[i]; ++i)
      if (word == field.values[i]) {
        *value_out = i;
        return true;
      }
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), *value_out);
  return error == std::errc() && end == word.data() + word.size();
}

bool parse_range(const DimField& field, string_view word, Condition* condition) {
  const size_t dots = word.find("..");
  if (dots == string_view::npos) {
    if (!parse_value(field, word, &condition->low)) return false;
    condition->high = condition->low;
    return true;
  }
  // An order of dtypes or enum values would mean nothing.
  if (field.kind == FieldKind::kDtype || field.values) return false;
  const string_view low = word.substr(0, dots), high = word.substr(dots + 2);
  condition->low = std::numeric_limits<int64_t>::min();
  condition->high = std::numeric_limits<int64_t>::max();
  if (low.empty() && high.empty()) return false;
  if (!low.empty() && !parse_value(field, low, &condition->low)) return false;
  if (!high.empty() && !parse_value(field, high, &condition->high)) return false;
  return condition->low <= condition->high;
}

class Parser {
 public:
  Parser(ek_context* context, const char* caller) : context_(context), caller_(caller) {}

  ek_status parse(string_view text) {
    for (line_ = 1; !text.empty(); ++line_) {
      const size_t end = std::min(text.find('\n'), text.size());
      string_view line = text.substr(0, end);
      text.remove_prefix(std::min(end + 1, text.size()));
      line = line.substr(0, line.find('#'));
      if (line.find_first_not_of(kBlanks) == string_view::npos) continue;
      if (const ek_status status = parse_rule(line)) return status;
    }
    // By op; within one the order of the text is the order of preference.
    std::stable_sort(table.rules.begin(), table.rules.end(), [](const Rule& a, const Rule& b) { return a.op < b.op; });
    return EK_STATUS_OK;
  }

  RoutingTable table;

 private:
  ek_status parse_rule(string_view line) {
    const size_t colon = line.find(':');
    if (colon == string_view::npos) return error("no ':' between conditions and row", line);
    string_view left = line.substr(0, colon), right = line.substr(colon + 1);

    const std::string op_name(next_word(&left));
    Rule rule = {};
    rule.op = find_op(op_name.c_str());
    rule.line = line_;
    rule.first_condition = static_cast<uint32_t>(table.conditions.size());
    if (rule.op < 0) return error("no such op", op_name);
    const OpEntry& op = kOps[rule.op];

    for (string_view word = next_word(&left); !word.empty(); word = next_word(&left))
      if (const ek_status status = parse_condition(op, word, &rule)) return status;

    const std::string row_name(next_word(&right));
    if (row_name.empty()) return error("no row after ':'", line);
    rule.row = find_row(op, row_name.c_str());
    if (rule.row < 0) return error("the op has no such row", row_name);
    if (const string_view more = next_word(&right); !more.empty()) return error("one row ends a rule, found", more);
    table.rules.push_back(rule);
    return EK_STATUS_OK;
  }

  ek_status parse_condition(const OpEntry& op, string_view word, Rule* rule) {
    const size_t equals = word.find('=');
    if (equals == string_view::npos) return error("expected field=value", word);
    const string_view name = word.substr(0, equals);
    for (int i = 0; i < op.dim_count; ++i) {
      const DimField& field = op.dims[i];
      if (name != field.name) continue;
      Condition condition = {};
      condition.field = i;
      if (!parse_range(field, word.substr(equals + 1), &condition)) return error("not a value or range", word);
      table.conditions.push_back(condition);
      ++rule->condition_count;
      rule->batch |= field.batch;
      return EK_STATUS_OK;
    }
    return error("the op has no such field", name);
  }

  ek_status error(const char* what, string_view where) {
    return fail(context_, EK_STATUS_INVALID_ARGUMENT, "%s: routing table, line %d: %s: \"%.*s\"", caller_, line_, what,
                static_cast<int>(where.size()), where.data());
  }

  ek_context* context_;
  const char* caller_;
  int line_ = 0;
};

}  // namespace

const char* find_builtin_table(const char* device_name) {
  for (const BuiltinTable* table = kBuiltinTables; table->device_name; ++table)
    if (strcmp(table->device_name, device_name) == 0) return table->text;
  return nullptr;
}

RoutingTable::Span RoutingTable::of_op(int op) const {
  const auto before = [](const Rule& rule, int value) { return rule.op < value; };
  const Rule* const end = rules.data() + rules.size();
  return {std::lower_bound(rules.data(), end, op, before), std::lower_bound(rules.data(), end, op + 1, before)};
}

ek_status parse_table(ek_context* context, const char* caller, const char* text, RoutingTable* table_out) {
  Parser parser(context, caller);
  if (text)
    if (const ek_status status = parser.parse(text)) return status;
  *table_out = std::move(parser.table);
  return EK_STATUS_OK;
}

int64_t field_value(const DimField& field, const void* args) {
  const char* at = static_cast<const char*>(args) + field.offset;
  // memcpy: the type of what lies there is known to `kind` only.
  int64_t i64 = 0;
  int32_t i32 = 0;
  bool flag = false;
  ek_dtype dtype = 0;
  switch (field.kind) {
    case FieldKind::kInt64: memcpy(&i64, at, sizeof(i64)); return i64;
    case FieldKind::kInt32: memcpy(&i32, at, sizeof(i32)); return i32;
    case FieldKind::kBool: memcpy(&flag, at, sizeof(flag)); return flag;
    case FieldKind::kDtype: memcpy(&dtype, at, sizeof(dtype)); return dtype;
  }
  return 0;
}

bool rule_matches(const RoutingTable& table, const Rule& rule, const DimField* dims, const void* args) {
  for (uint32_t i = 0; i < rule.condition_count; ++i) {
    const Condition& c = table.conditions[rule.first_condition + i];
    const int64_t value = field_value(dims[c.field], args);
    if (value < c.low || value > c.high) return false;
  }
  return true;
}

}  // namespace ek
