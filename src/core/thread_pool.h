// SPDX-License-Identifier: Apache-2.0
// The library's own threads. Kernels use parallel_for of cpu/parallel.h.
#pragma once

#include <cstdint>

namespace ek {

// Calls body(state, begin, end) for the chunks [0, grain), [grain, 2 grain), ... of [0, n) and returns when all are done.
// Where chunks begin and end depends on n and grain alone, so results can't depend on the number of threads. Any thread
// may call, also from inside a body (that inner loop then runs on the calling thread). The body must not throw.
void parallel_run(int64_t n, int64_t grain, void (*body)(void* state, int64_t begin, int64_t end), void* state);

// Threads that share a parallel_run, the caller among them: EINKORN_THREADS, else the CPUs this process may use. Starts
// none.
int thread_count();

}  // namespace ek
