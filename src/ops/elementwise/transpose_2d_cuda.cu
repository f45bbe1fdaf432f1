// SPDX-License-Identifier: Apache-2.0
// y[..., j, i] = x[..., i, j].
// _vec: 16-byte accesses on both sides. _strip: rows of y that are dense, but no multiple of 16 bytes. The other row takes
// any alignment, with vectors on the side that allows them.
#include "dispatch/ops_gen.h"
#include "ops/elementwise/strip.cuh"

namespace ek {
namespace {

Transpose problem(const Transpose2dArgs& a) {
  return {a.x.data, a.y.data, a.m, a.n, a.x.stride[a.lead], a.y.stride[a.lead], make_rows<2>(a.lead, {&a.x, &a.y})};
}

const char* why_not_vec(const Transpose2dArgs& a, const Device&) {
  return transpose_why_not_vec(problem(a), dtype_bytes(a.T));
}

ek_status transpose_2d_cuda_vec(const Transpose2dArgs& a, const Launch& l) {
  return transpose_cuda_vec(l, problem(a), dtype_bytes(a.T));
}

const char* why_not_strip(const Transpose2dArgs& a, const Device& device) {
  return strip_why_not(problem(a), dtype_bytes(a.T), device);
}

ek_status transpose_2d_cuda_strip(const Transpose2dArgs& a, const Launch& l) {
  return strip_cuda(l, problem(a), dtype_bytes(a.T));
}

ek_status transpose_2d_cuda(const Transpose2dArgs& a, const Launch& l) {
  return transpose_cuda(l, problem(a), dtype_bytes(a.T));
}

}  // namespace

const Kernel<Transpose2dArgs> kTranspose2dCuda[] = {
    {"transpose_2d_cuda_vec", sm(75), why_not_vec, transpose_2d_cuda_vec},
    {"transpose_2d_cuda_strip", sm(75), why_not_strip, transpose_2d_cuda_strip},
    {"transpose_2d_cuda", sm(75), nullptr, transpose_2d_cuda},
    {},
};

}  // namespace ek
