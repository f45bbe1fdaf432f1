// SPDX-License-Identifier: Apache-2.0
// The row type: what a kernel file puts into the table at its end. docs/dispatch.md says how one row is chosen.
#pragma once

#include "core/tensor.h"
#include "einkorn/einkorn.h"

namespace ek {

// What selection and launchers may know about a device. Filled once per device; a test can make one up.
struct Device {
  ek_device id = {EK_DEVICE_CPU, 0};
  int target = 0;           // CUDA: 90 for compute capability 9.0. CPU: x86-64 level
  bool translated = false;  // by the driver, from the code of an older GPU: target is that one's
  int processors = 1;       // CUDA: SMs. CPU: threads
  int64_t l2_bytes = 0;
  int64_t memory_bytes = 0;
  int smem_per_block = 0;  // CUDA: opt-in limit
  int threads_per_processor = 0;
  char name[128] = {};
};
constexpr int kMaxCluster = 8;  // CUDA: blocks of the largest cluster that every GPU with clusters has

// Everything a launcher needs beside its arguments.
struct Launch {
  const Device& device;
  ek_stream stream;
  void* workspace;      // at least what the row's workspace() asked for, 256-byte aligned; nullptr if it asked for none
  uint32_t* counters;   // CUDA, with workspace only: kCounters zeroed words; every kernel leaves them zeroed
  uint32_t flags;       // EK_FLAG_*
  ek_context* context;  // for error texts: see fail_cuda in core/error.h
};
constexpr int kCounters = 16384;

struct Target {
  int32_t device_type;
  int32_t level;  // least Device::target
};
constexpr Target sm(int level) { return {EK_DEVICE_CUDA, level}; }
constexpr Target cpu(int level) { return {EK_DEVICE_CPU, level}; }

// Promises of a row, checked bit for bit by the tests.
constexpr uint32_t kDeterministic = EK_FLAG_DETERMINISTIC;
constexpr uint32_t kBatchInvariant = EK_FLAG_BATCH_INVARIANT;

template <class Args>
struct Kernel {
  const char* name;  // <op>_<target>[_<variant>]
  Target target;
  const char* (*why_not)(const Args&,
                         const Device&);  // a static sentence, or null: takes the call. No function: always
  ek_status (*run)(const Args&, const Launch&);
  size_t (*workspace)(const Args&, const Device&) = nullptr;
  uint32_t promises = kDeterministic | kBatchInvariant;
  uint32_t needs = 0;  // EK_FLAG_* without which the row is out: EK_FLAG_TF32 allows what the caller may not want
};
// A table is an array of rows, best first, ended by {}. Its last row takes every legal call.

}  // namespace ek
