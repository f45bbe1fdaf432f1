// SPDX-License-Identifier: Apache-2.0
// From a checked call to the kernel that runs it. The usual case, no force, no rule, no log, is the few inline lines of
// first_row and dispatch; everything else is in select.cpp, once for all ops.
#pragma once

#include "core/context.h"
#include "dispatch/kernel.h"
#include "dispatch/registry.h"

namespace ek {

// All rows of one op: its tables, best first, each ended by {}. Selection runs through them in order.
template <class Args>
struct OpTables {
  const char* op;
  int op_index;                       // in kOps
  const Kernel<Args>* const* tables;  // ended by nullptr
  const DimField* dims;               // what routing rules and logs can name
  int dim_count;
};

// ---- rows by number, the same in every list ------------------------------------------------------------------------

// Row `index` of all tables taken together, or nullptr past the end.
template <class Args>
const Kernel<Args>* row_at(const Kernel<Args>* const* tables, int index) {
  for (; *tables; ++tables)
    for (const Kernel<Args>* row = *tables; row->name; ++row)
      if (index-- == 0) return row;
  return nullptr;
}

template <class Args>
int row_count(const OpTables<Args>& op) {
  int count = 0;
  while (row_at(op.tables, count)) ++count;
  return count;
}

template <class Args>
RowInfo row_info(const OpTables<Args>& op, int index) {
  const Kernel<Args>* row = row_at(op.tables, index);
  return row ? RowInfo{row->name, row->target, row->promises, row->needs} : RowInfo{};
}

// ---- the general path: one call with the type of its Args forgotten ------------------------------------------------

struct OpCall {
  const char* op;
  int op_index;
  const DimField* dims;
  int dim_count;
  const void* tables;
  const void* args;
  RowInfo (*row)(const void* tables, int index);  // name is nullptr past the end
  const char* (*why_not)(const void* tables, int index, const void* args, const Device& device);
};

template <class Args>
OpCall op_call(const OpTables<Args>& op, const Args& args) {
  using Table = const Kernel<Args>* const;
  return {op.op,
          op.op_index,
          op.dims,
          op.dim_count,
          op.tables,
          &args,
          [](const void* tables, int index) {
            const Kernel<Args>* row = row_at(static_cast<Table*>(tables), index);
            return row ? RowInfo{row->name, row->target, row->promises, row->needs} : RowInfo{};
          },
          [](const void* tables, int index, const void* args, const Device& device) {
            const Kernel<Args>* row = row_at(static_cast<Table*>(tables), index);
            return row->why_not ? row->why_not(*static_cast<const Args*>(args), device) : nullptr;
          }};
}

// The whole of selection, with log and error text: the index of the row to run.
ek_status select_row(ek_context* context, const OpCall& call, int* index_out);
ek_status explain_call(ek_context* context, const OpCall& call, char* text, size_t bytes, size_t* needed);

// ---- the usual path ------------------------------------------------------------------------------------------------

inline bool target_fits(Target target, const Device& device) {
  return target.device_type == device.id.type && target.level <= device.target;
}

constexpr uint32_t kPromiseFlags = EK_FLAG_DETERMINISTIC | EK_FLAG_BATCH_INVARIANT;

template <class Args>
const Kernel<Args>* first_row(const OpTables<Args>& op, const Args& args, const Device& device, uint32_t flags) {
  for (const Kernel<Args>* const* table = op.tables; *table; ++table)
    for (const Kernel<Args>* row = *table; row->name; ++row)
      if (target_fits(row->target, device) && !(flags & kPromiseFlags & ~row->promises) && !(row->needs & ~flags) &&
          (!row->why_not || !row->why_not(args, device)))
        return row;
  return nullptr;
}

// The caller's current device is put back, whatever happens in between. Costs one test where there is one GPU.
class DeviceScope {
 public:
  explicit DeviceScope(ek_context* context) : context_(context) {
    if (context->switch_device) status_ = context->backend->enter(context, context->device.id.id, &previous_);
  }
  ~DeviceScope() {
    if (previous_ >= 0) context_->backend->leave(previous_);
  }
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;
  ek_status status() const { return status_; }

 private:
  ek_context* context_;
  int previous_ = -1;  // -1: nothing to put back
  ek_status status_ = EK_STATUS_OK;
};

// Select a row, get its workspace, run it. `args` are checked.
template <class Args>
ek_status dispatch(ek_context* context, const OpTables<Args>& op, const Args& args) {
  if (context->is_cuda && context->generation != g_generation) return check_process(context, op.op);

  const Kernel<Args>* row = nullptr;
  if (!context->ops[op.op_index].special) row = first_row(op, args, context->device, context->flags);
  if (!row) {
    int index = 0;
    if (const ek_status status = select_row(context, op_call(op, args), &index)) return status;
    row = row_at(op.tables, index);
  }

  const size_t bytes = row->workspace ? row->workspace(args, context->device) : 0;
  if (bytes > context->workspace_bytes)
    if (const ek_status status = grow_workspace(context, row->name, bytes)) return status;
  // Counters come with workspace only: a stream switch then knows from one flag whether there is anything to order.
  Launch launch = {context->device, context->stream, nullptr, nullptr, context->flags, context};
  if (bytes) {
    launch.workspace = context->workspace;
    launch.counters = context->counters;
    context->workspace_used = true;
  }

  DeviceScope scope(context);
  if (scope.status()) return scope.status();
  const ek_status status = row->run(args, launch);
  if (status == EK_STATUS_OK) {
    context->last_kernel = row->name;
    context->error[0] = '\0';
  }
  return status;
}

// What the most demanding usable row asks for. Flags, forces and rules are left out, so that none of them can later
// outgrow the answer.
template <class Args>
ek_status workspace_bytes(ek_context* context, const OpTables<Args>& op, const Args& args, size_t* bytes_out) {
  size_t most = 0;
  for (const Kernel<Args>* const* table = op.tables; *table; ++table)
    for (const Kernel<Args>* row = *table; row->name; ++row) {
      if (!row->workspace || !target_fits(row->target, context->device)) continue;
      if (row->why_not && row->why_not(args, context->device)) continue;
      const size_t bytes = row->workspace(args, context->device);
      if (bytes > most) most = bytes;
    }
  *bytes_out = most;
  return succeed(context);
}

// The text of ek_explain. *needed (may be NULL) gets the length with the NUL.
template <class Args>
ek_status explain(ek_context* context, const OpTables<Args>& op, const Args& args, char* text, size_t bytes,
                  size_t* needed) {
  return explain_call(context, op_call(op, args), text, bytes, needed);
}

}  // namespace ek
