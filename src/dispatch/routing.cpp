// SPDX-License-Identifier: Apache-2.0
// The public questions about ops and kernels, and what a context may set about them.
#include "dispatch/routing.h"

#include <cstring>
#include <new>
#include <utility>

#include "core/sized.h"

namespace ek {

int find_op(const char* name) {
  for (int i = 0; i < kOpCount; ++i)
    if (strcmp(kOps[i].name, name) == 0) return i;
  return -1;
}

int find_row(const OpEntry& op, const char* name) {
  const int count = op.row_count();
  for (int i = 0; i < count; ++i)
    if (strcmp(op.row(i).name, name) == 0) return i;
  return -1;
}

namespace {

// After any change: what each op has to look at.
void refresh(ek_context* context) {
  for (int i = 0; i < kOpCount; ++i) {
    OpState& op = context->ops[i];
    op.rules = context->table.of_op(i);
    op.special = env().log_dispatch || op.forced >= 0 || op.env_forced >= 0 || op.rules.begin != op.rules.end;
  }
}

ek_status set_env_kernel(ek_context* context, const char* who) {
  const char* kernel = env().kernel;
  if (!kernel) return EK_STATUS_OK;
  for (int i = 0; i < kOpCount; ++i) {
    context->ops[i].env_forced = find_row(kOps[i], kernel);
    if (context->ops[i].env_forced >= 0) return EK_STATUS_OK;  // row names are unique
  }
  return fail(nullptr, EK_STATUS_NOT_FOUND, "%s: EINKORN_KERNEL is \"%s\": no op has such a row", who, kernel);
}

}  // namespace

ek_status init_routing(ek_context* context, const char* who) {
  context->ops.resize(static_cast<size_t>(kOpCount));
  if (const ek_status status = set_env_kernel(context, who)) return status;
  const char* text = find_builtin_table(context->device.name);
  if (const ek_status status = parse_table(nullptr, who, text, &context->table)) return status;
  refresh(context);
  return EK_STATUS_OK;
}

}  // namespace ek

using ek::fail;
using ek::kOpCount;
using ek::kOps;
using ek::succeed;

int32_t ek_op_count(void) { return kOpCount; }

const char* ek_op_name(int32_t index) { return index >= 0 && index < kOpCount ? kOps[index].name : nullptr; }

int32_t ek_kernel_count(const char* op) {
  const int i = op ? ek::find_op(op) : -1;
  return i >= 0 ? kOps[i].row_count() : 0;
}

ek_status ek_kernel_query(const char* op, int32_t index, ek_kernel_info* info_out) {
  if (!op) return fail(nullptr, EK_STATUS_INVALID_ARGUMENT, "ek_kernel_query: op is NULL");
  if (const ek_status status = ek::check_sized(nullptr, "ek_kernel_query", "info_out", info_out)) return status;
  const int i = ek::find_op(op);
  if (i < 0) return fail(nullptr, EK_STATUS_NOT_FOUND, "ek_kernel_query: no op \"%s\"", op);
  const int count = kOps[i].row_count();
  if (index < 0 || index >= count)
    return fail(nullptr, EK_STATUS_NOT_FOUND, "ek_kernel_query: %s has no row %d, it has %d", op, index, count);
  const ek::RowInfo row = kOps[i].row(index);
  ek_kernel_info info = {};
  info.device_type = row.target.device_type;
  info.target = row.target.level;
  info.flags = row.promises | row.needs;
  info.name = row.name;
  ek::fill_sized(info_out, info);
  return succeed(nullptr);
}

ek_status ek_kernel_force(ek_context* context, const char* op, const char* kernel) {
  if (!context) return fail(nullptr, EK_STATUS_INVALID_ARGUMENT, "ek_kernel_force: context is NULL");
  if (!op) return fail(context, EK_STATUS_INVALID_ARGUMENT, "ek_kernel_force: op is NULL");
  const int i = ek::find_op(op);
  if (i < 0) return fail(context, EK_STATUS_NOT_FOUND, "ek_kernel_force: no op \"%s\"", op);
  const int row = kernel ? ek::find_row(kOps[i], kernel) : -1;
  if (kernel && row < 0) return fail(context, EK_STATUS_NOT_FOUND, "ek_kernel_force: %s has no row \"%s\"", op, kernel);
  context->ops[i].forced = row;
  ek::refresh(context);
  return succeed(context);
}

const char* ek_kernel_last(const ek_context* context) { return context ? context->last_kernel : ""; }

ek_status ek_table_set(ek_context* context, const char* text) {
  if (!context) return fail(nullptr, EK_STATUS_INVALID_ARGUMENT, "ek_table_set: context is NULL");
  if (!text) text = ek::find_builtin_table(context->device.name);
  try {
    ek::RoutingTable table;
    if (const ek_status status = ek::parse_table(context, "ek_table_set", text, &table)) return status;
    context->table = std::move(table);
  } catch (const std::bad_alloc&) {
    return fail(context, EK_STATUS_OUT_OF_MEMORY, "ek_table_set: no memory");
  }
  ek::refresh(context);
  return succeed(context);
}

ek_status ek_explain(ek_context* context, const char* op, const void* args, char* text_out, size_t text_bytes,
                     size_t* needed_out) {
  if (!context) return fail(nullptr, EK_STATUS_INVALID_ARGUMENT, "ek_explain: context is NULL");
  const char* missing = !op ? "op" : !args ? "args" : text_bytes && !text_out ? "text_out" : nullptr;
  if (missing) return fail(context, EK_STATUS_INVALID_ARGUMENT, "ek_explain: %s is NULL", missing);
  const int i = ek::find_op(op);
  if (i < 0) return fail(context, EK_STATUS_NOT_FOUND, "ek_explain: no op \"%s\"", op);
  return kOps[i].explain(context, args, text_out, text_bytes, needed_out);
}
