// SPDX-License-Identifier: Apache-2.0
// transpose_2d on the CPU: y[..., j, i] = x[..., i, j], in squares that fit the L1 cache.
#include "dispatch/ops_gen.h"
#include "ops/elementwise/transpose_cpu.h"

namespace ek::EK_CPU_NS {

static ek_status transpose_2d_cpu(const Transpose2dArgs& a, const Launch&) {
  return transpose_all(rows_of<2>(a.lead, {&a.x, &a.y}), a.m, a.n, a.x, a.x.stride[a.lead], a.y, a.y.stride[a.lead]);
}

const Kernel<Transpose2dArgs> kTranspose2dCpu[] = {
    {EK_CPU_ROW("transpose_2d_cpu"), kCpuTarget, nullptr, transpose_2d_cpu}, {}};

}  // namespace ek::EK_CPU_NS
