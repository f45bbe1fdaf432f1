// SPDX-License-Identifier: Apache-2.0
// attention and attention_decode on the CPU: attention_cpu.cpp has the kernel. Compiled once for each x86-64 level.
#pragma once

#include "cpu/isa.h"
#include "ops/attention/attention_call.h"

namespace ek::EK_CPU_NS {

// Of the same bits for any number of threads, and for a query whatever other queries and sequences there are.
ek_status attention_run_cpu(const AttentionCall& call);

// NOTE: flatten puts attention_call.h's functions in line: a copy of them compiled for one level must not become the one
// that every CPU runs.
template <class Args>
__attribute__((flatten)) ek_status attention_row_cpu(const Args& a, const Launch&) {
  return attention_run_cpu(attention_call(a));
}

}  // namespace ek::EK_CPU_NS
