// SPDX-License-Identifier: Apache-2.0
// How a call ends: the status it returns and the sentence that goes with it. Texts live in the context, because
// goroutines and thread pools move between threads; calls that have no context keep theirs per thread.
#pragma once

#include "einkorn/einkorn.h"

namespace ek {

// Formats the text, stores it (context NULL: for ek_last_error of this thread) and returns `status`.
__attribute__((format(printf, 3, 4))) ek_status fail(ek_context* context, ek_status status, const char* format, ...);

// `cuda_error` is a cudaError_t. Out of memory becomes EK_STATUS_OUT_OF_MEMORY, the rest EK_STATUS_CUDA; the runtime's
// own last error is cleared, so that the caller's next check does not find ours. In CUDA builds only.
ek_status fail_cuda(ek_context* context, int cuda_error, const char* what);

// Clears the text: "" after a success. Every public call ends in fail or succeed; dispatch() does it for ops.
ek_status succeed(ek_context* context);

}  // namespace ek
