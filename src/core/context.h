// SPDX-License-Identifier: Apache-2.0
// The inside of an ek_context, for dispatch, the argument checks and the launchers. Plain members: a context belongs to
// one thread at a time, so nothing here is locked or atomic.
#pragma once

#include <vector>

#include "core/backend.h"
#include "core/error.h"
#include "core/process.h"
#include "dispatch/table.h"

namespace ek {

// What a context has set for one op. `special` is false for nearly every op of nearly every context, and then the
// rest is not read.
struct OpState {
  bool special = false;  // something below is set, or dispatch is logged
  int forced = -1;       // row, by ek_kernel_force
  int env_forced = -1;   // row, by EINKORN_KERNEL
  RoutingTable::Span rules = {nullptr, nullptr};
};

// Room for a refusal of every row of an op.
constexpr size_t kErrorBytes = 4096;

// Counter words that a CUDA context keeps zeroed for its kernels: 64 KiB.
constexpr size_t kCounterBytes = kCounters * sizeof(uint32_t);

}  // namespace ek

struct ek_context {
  // Read on every call.
  std::vector<ek::OpState> ops;  // one for each of kOps
  ek_stream stream = nullptr;
  uint32_t flags = 0;  // EK_FLAG_*
  ek::Generation generation = 0;
  bool is_cuda = false;
  bool switch_device = false;   // several GPUs: the caller's current device may be another one
  bool workspace_used = false;  // on `stream`, since the context came to it
  bool workspace_lent = false;  // `workspace` is the caller's memory
  bool capturing = false;       // between ek_graph_begin and ek_graph_end
  void* workspace = nullptr;    // in use: ours or the caller's
  size_t workspace_bytes = 0;
  uint32_t* counters = nullptr;  // CUDA: kCounters zeroed words
  const char* last_kernel = "";
  ek::Device device;

  // Read now and then.
  const ek::Backend* backend = nullptr;
  void* owned_workspace = nullptr;
  size_t owned_bytes = 0;
  // Blocks that the owned workspace outgrew. Captured graphs may still point into them, so they live on.
  std::vector<void*> retired;
  void* order_event = nullptr;  // orders a new stream after the old one; made at first need
  ek::RoutingTable table;
  std::vector<ek::Tensor> list_storage;  // lists of tensors of the call in progress: see dispatch/check.cpp
  char error[ek::kErrorBytes] = {};
};

namespace ek {

// Makes the workspace at least `bytes` large or says why it can't be: lent memory, or a capture in progress.
ek_status grow_workspace(ek_context* context, const char* who, size_t bytes);

// CUDA contexts do not survive a fork; a clean error instead of the runtime's confusion.
ek_status check_process(ek_context* context, const char* who);

}  // namespace ek
