// SPDX-License-Identifier: Apache-2.0
// The CUDA kernels that attention_cuda.cu makes rows of, each in files of its own.
#pragma once

#include "dispatch/kernel.h"
#include "ops/attention/attention_call.h"

namespace ek {

// attention_sm90.cu: TMA + wgmma. Its counters come with a workspace.
const char* attention_sm90_why_not(const AttentionCall& c, const Device& device);
ek_status attention_sm90(const AttentionCall& c, const Launch& l);

}  // namespace ek
