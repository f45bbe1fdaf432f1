// SPDX-License-Identifier: Apache-2.0
// parallel_for: the thread pool for kernels. Work is cut where the data says, never by the number of threads, so that
// results do not depend on it.
#pragma once

#include "core/thread_pool.h"
#include "cpu/isa.h"

namespace ek::EK_CPU_NS {

// Elements that are worth waking a thread for: some 10 us of work.
constexpr int64_t kGrainElements = 16384;

// The grain for items of so many elements each.
EK_INLINE int64_t grain_of(int64_t elements) {
  return max_of<int64_t>(1, kGrainElements / max_of<int64_t>(1, elements));
}

// body(begin, end) over pieces of [0, n).
template <class Body>
void parallel_for(int64_t n, int64_t grain, const Body& body) {
  const auto call = [](void* state, int64_t begin, int64_t end) { (*static_cast<const Body*>(state))(begin, end); };
  parallel_run(n, grain, call, const_cast<Body*>(&body));
}

}  // namespace ek::EK_CPU_NS
