// SPDX-License-Identifier: Apache-2.0
// The process around the library: forks and environment variables.
#pragma once

#include <cstdint>

namespace ek {

// Counts the forks between the process that loaded the library and this one. Things that do not survive a fork (CUDA,
// pool threads) remember the generation they were made in; comparing is one load, where getpid is a system call.
using Generation = uint32_t;
extern Generation g_generation;

// Starts counting. Called by whatever remembers a generation, before it does.
void watch_forks();

// All environment variables that the library reads, once, at first need.
struct Env {
  const char* kernel = nullptr;  // EINKORN_KERNEL: a row to force
  bool log_dispatch = false;     // EINKORN_LOG=dispatch
  int threads = 0;               // EINKORN_THREADS; 0: not set
  char error[160] = {};          // what is wrong with them, or "": refused when a context is created
};
const Env& env();

}  // namespace ek
