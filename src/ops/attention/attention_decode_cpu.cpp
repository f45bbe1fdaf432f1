// SPDX-License-Identifier: Apache-2.0
// attention_decode on the CPU: attention_cpu.cpp has the kernel, which works on all heads of a kv head at a time.
#include "ops/attention/attention_cpu.h"

namespace ek::EK_CPU_NS {

const Kernel<AttentionDecodeArgs> kAttentionDecodeCpu[] = {
    {EK_CPU_ROW("attention_decode_cpu"), kCpuTarget, nullptr, attention_row_cpu<AttentionDecodeArgs>},
    {},
};

}  // namespace ek::EK_CPU_NS
