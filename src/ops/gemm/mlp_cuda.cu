// SPDX-License-Identifier: Apache-2.0
// mlp on CUDA: two products, the first of which leaves h = act(x w1 + b1), or its gated form, in workspace.
// Each row has a list of kernels, best first; either half takes the first one that accepts it.
#include "ops/gemm/gemm_rows.h"

namespace ek {

namespace {

// The first kernel of a list that takes the call; where none does, `why` is the last one's reason.
template <const GemmKernel&... kKernels>
const GemmKernel* first_kernel(const GemmCall& call, const Device& device, const char** why) {
  const GemmKernel* taken = nullptr;
  const auto ask = [&](const GemmKernel& kernel) {
    *why = kernel.why_not(call, device);
    if (!*why) taken = &kernel;
    return taken != nullptr;
  };
  (void)(ask(kKernels) || ...);
  return taken;
}

size_t need(const GemmKernel* kernel, const GemmCall& call, const Device& device) {
  return kernel && kernel->workspace ? kernel->workspace(call, device) : 0;
}

// Where h begins and ends in workspace; kernels get what follows it.
size_t hidden_bytes(const MlpArgs& a) { return (mlp_hidden_bytes(a) + 255) / 256 * 256; }

template <const GemmKernel&... kKernels>
struct MlpRow {
  // Before there is workspace, a pointer with its alignment stands for h.
  static void* no_hidden() { return reinterpret_cast<void*>(uintptr_t{256}); }

  static const char* why_not(const MlpArgs& a, const Device& device) {
    const char* why = nullptr;
    if (first_kernel<kKernels...>(mlp_first_call(a, no_hidden()), device, &why))
      first_kernel<kKernels...>(mlp_second_call(a, no_hidden()), device, &why);
    return why;
  }

  static size_t workspace(const MlpArgs& a, const Device& device) {
    const char* why = nullptr;
    const GemmCall first = mlp_first_call(a, no_hidden()), second = mlp_second_call(a, no_hidden());
    const size_t one = need(first_kernel<kKernels...>(first, device, &why), first, device);
    const size_t two = need(first_kernel<kKernels...>(second, device, &why), second, device);
    return hidden_bytes(a) + (one > two ? one : two);
  }

  static ek_status run(const MlpArgs& a, const Launch& l) {
    const char* why = nullptr;
    const GemmCall calls[] = {mlp_first_call(a, l.workspace), mlp_second_call(a, l.workspace)};
    Launch part = l;
    part.workspace = static_cast<char*>(l.workspace) + hidden_bytes(a);
    for (const GemmCall& call : calls) {
      if (call.n == 0) continue;  // nothing between the layers
      const GemmKernel* kernel = first_kernel<kKernels...>(call, l.device, &why);
      if (const ek_status status = kernel->run(call, part)) return status;
    }
    return EK_STATUS_OK;
  }

  static Kernel<MlpArgs> named(const char* name, Target target) {
    return {name, target, why_not, run, workspace, (kKernels.promises & ...), (kKernels.needs | ...)};
  }
};

}  // namespace

const Kernel<MlpArgs> kMlpCuda[] = {
    MlpRow<kGemmSm90Narrow, kGemmSm90Swap, kGemmSm90Split, kGemmSm90>::named("mlp_sm90", sm(90)),
    MlpRow<kGemmSm80>::named("mlp_sm80", sm(80)),
    MlpRow<kGemmSm80Tf32>::named("mlp_sm80_tf32", sm(80)),
    MlpRow<kGemmSm75>::named("mlp_sm75", sm(75)),
    MlpRow<kGemmSimt>::named("mlp_cuda", sm(75)),
    {},
};

}  // namespace ek
