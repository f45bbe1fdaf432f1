// SPDX-License-Identifier: Apache-2.0
// Routing tables: the format, its errors, and which calls a rule matches.
#include <string>

#include "check.h"
#include "fake_ops.h"

using ek::parse_table;
using ek::RoutingTable;
using fake::ToyArgs;

namespace {

// The error for a table of this text, "" if it is good.
std::string error_of(const char* text) {
  RoutingTable table;
  const ek_status status = parse_table(nullptr, "test", text, &table);
  CHECK(status == EK_STATUS_OK || status == EK_STATUS_INVALID_ARGUMENT);
  return status ? ek_last_error() : "";
}

// Does this one rule match the call?
bool matches(const char* conditions, const ToyArgs& args) {
  RoutingTable table;
  const std::string text = std::string("toy ") + conditions + " : toy_cuda";
  if (!CHECK_EQ(parse_table(nullptr, "test", text.c_str(), &table), EK_STATUS_OK)) return false;
  return ek::rule_matches(table, table.rules[0], fake::kToyDims, &args);
}

void test_good() {
  CHECK_TEXT(error_of(""), "");
  CHECK_TEXT(error_of(nullptr), "");
  CHECK_TEXT(error_of("# only a comment\n\n   \t\n#"), "");
  CHECK_TEXT(error_of("toy:toy_cuda"), "");
  CHECK_TEXT(error_of("  toy  T=bf16\trows=1..64  dim=4096.. :  toy_cuda  # because\r\n"), "");

  RoutingTable table;
  const char* text =
      "other rows=1 : other_cpu\n"
      "toy dim=64 : toy_cuda\n"
      "# between\n"
      "other : other_cpu\n"
      "toy T=f16 : toy_cuda_fast";
  CHECK_EQ(parse_table(nullptr, "test", text, &table), EK_STATUS_OK);
  CHECK_EQ(table.rules.size(), size_t{4});
  // Grouped by op, in their order within one.
  const auto toy = table.of_op(0), other = table.of_op(1), none = table.of_op(2);
  CHECK_EQ(toy.end - toy.begin, ptrdiff_t{2});
  CHECK_EQ(toy.begin[0].line, 2);
  CHECK_EQ(toy.begin[0].row, 2);
  CHECK_EQ(toy.begin[1].line, 5);
  CHECK_EQ(other.end - other.begin, ptrdiff_t{2});
  CHECK_EQ(other.begin[0].line, 1);
  CHECK(other.begin[0].batch && !other.begin[1].batch && !toy.begin[0].batch);
  CHECK(none.begin == none.end);
}

void test_errors() {
  CHECK_TEXT(error_of("toy dim=64 toy_cuda"),
             "test: routing table, line 1: no ':' between conditions and row: \"toy dim=64 toy_cuda\"");
  CHECK_TEXT(error_of("\n# x\nnothing : toy_cuda"), "test: routing table, line 3: no such op: \"nothing\"");
  CHECK_TEXT(error_of("toy : other_cpu"), "test: routing table, line 1: the op has no such row: \"other_cpu\"");
  CHECK_TEXT(error_of("toy batch=3 : toy_cuda"), "test: routing table, line 1: the op has no such field: \"batch\"");
  CHECK_CONTAINS(error_of("toy : "), "no row after ':'");
  CHECK_CONTAINS(error_of(" : toy_cuda"), "no such op");
  CHECK_CONTAINS(error_of("toy : toy_cuda toy_cuda_fast"), "found: \"toy_cuda_fast\"");
  CHECK_CONTAINS(error_of("toy dim : toy_cuda"), "expected field=value: \"dim\"");
  for (const char* bad : {"dim=", "dim=x", "dim=1x", "dim=..", "dim=4..3", "dim=1...2", "dim=1.5", "T=64",
                          "T=bf16..f32", "layout=packed", "layout=halves..", "dim=99999999999999999999"})
    CHECK_CONTAINS(error_of((std::string("toy ") + bad + " : toy_cuda").c_str()),
                   std::string("not a value or range: \"") + bad + "\"");

  // The table that was there stays.
  RoutingTable table;
  CHECK_EQ(parse_table(nullptr, "test", "toy : toy_cuda", &table), EK_STATUS_OK);
  CHECK_EQ(parse_table(nullptr, "test", "toy : toy_cuda\ntoy", &table), EK_STATUS_INVALID_ARGUMENT);
  CHECK_EQ(table.rules.size(), size_t{1});
}

void test_matching() {
  ToyArgs a;
  a.rows = 64;
  a.dim = int64_t{1} << 40;
  a.group = -1;
  a.layout = 1;
  a.centred = true;
  a.T = EK_DTYPE_E4M3;
  CHECK(matches("", a));
  CHECK(matches("rows=64", a) && !matches("rows=63", a) && !matches("rows=65", a));
  CHECK(matches("rows=64..64", a) && matches("rows=1..64", a) && matches("rows=64..99", a));
  CHECK(!matches("rows=65..", a) && !matches("rows=..63", a) && matches("rows=..64", a));
  CHECK(matches("dim=1099511627776", a) && !matches("dim=..1099511627775", a));
  CHECK(matches("group=-1", a) && matches("group=..0", a) && !matches("group=0", a));
  CHECK(matches("layout=interleaved", a) && matches("layout=1", a) && !matches("layout=halves", a));
  CHECK(matches("centred=1", a) && !matches("centred=0", a));
  CHECK(matches("T=e4m3", a) && !matches("T=e5m2", a));
  CHECK(matches("T=e4m3 rows=64 dim=8..", a) && !matches("T=e4m3 rows=64 dim=..8", a));
}

}  // namespace

int main() {
  test_good();
  test_errors();
  test_matching();
  return check::report("test_table");
}
