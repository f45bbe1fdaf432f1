// SPDX-License-Identifier: Apache-2.0
// What a generated entry point consists of: check the arguments, select a row, run it.
#pragma once

#include "dispatch/check.h"
#include "dispatch/select.h"

// The tables of one op, best first. Three CPU builds on x86-64, one elsewhere; no CUDA rows in a CPU-only library.
#if defined(__x86_64__)
#define EK_CPU_ROWS(Op) cpu_v4::k##Op##Cpu, cpu_v3::k##Op##Cpu, cpu_v2::k##Op##Cpu,
#else
#define EK_CPU_ROWS(Op) cpu_base::k##Op##Cpu,
#endif
#ifdef EINKORN_CUDA
#define EK_ROWS(Op) k##Op##Cuda, EK_CPU_ROWS(Op) nullptr
#else
#define EK_ROWS(Op) EK_CPU_ROWS(Op) nullptr
#endif

namespace ek {

template <class Args>
ek_status call(ek_context* context, const OpSpec& spec, const OpTables<Args>& tables, const void* public_args) {
  Args args;
  bool empty = false;
  if (const ek_status status = check(context, spec, public_args, &args, &empty)) return status;
  return empty ? succeed(context) : dispatch(context, tables, args);
}

template <class Args>
ek_status call_workspace(ek_context* context, const OpSpec& spec, const OpTables<Args>& tables, const void* public_args,
                         size_t* bytes_out) {
  Args args;
  bool empty = false;
  if (!bytes_out) return fail(context, EK_STATUS_INVALID_ARGUMENT, "%s_workspace: bytes_out is NULL", spec.name);
  if (const ek_status status = check(context, spec, public_args, &args, &empty)) return status;
  if (!empty) return workspace_bytes(context, tables, args, bytes_out);
  *bytes_out = 0;
  return succeed(context);
}

// ---- the op as the registry knows it -----------------------------------------------------------------------------------

template <class Args, const OpTables<Args>& kTables>
int count_rows() {
  return row_count(kTables);
}

template <class Args, const OpTables<Args>& kTables>
RowInfo row_of(int index) {
  return row_info(kTables, index);
}

template <class Args, const OpTables<Args>& kTables, const OpSpec& kSpec>
ek_status explain_public(ek_context* context, const void* public_args, char* text, size_t bytes, size_t* needed) {
  Args args;
  bool empty = false;
  if (const ek_status status = check(context, kSpec, public_args, &args, &empty)) return status;
  return explain(context, kTables, args, text, bytes, needed);
}

}  // namespace ek
