// SPDX-License-Identifier: Apache-2.0
// Two ops that compute nothing, with rows for devices that need not be there. A test that includes this has them, and
// no others, in its registry. Row functions write down that they ran.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>

#include "dispatch/select.h"

namespace fake {

using ek::Device;
using ek::Kernel;
using ek::Launch;

struct ToyArgs {
  int64_t rows = 4;
  int64_t dim = 64;
  int32_t group = 0;
  int32_t layout = 0;
  bool centred = false;
  ek_dtype T = EK_DTYPE_F32;
};

struct LastRun {
  int count = 0;
  const char* row = "";
  void* workspace = nullptr;
  uint32_t* counters = nullptr;
  uint32_t flags = 0;
  ek_stream stream = nullptr;
};
inline LastRun g_last;
inline ek_status g_run_status = EK_STATUS_OK;  // what the next row returns

inline ek_status ran(const char* row, const Launch& launch) {
  if (g_run_status) return ek::fail(launch.context, g_run_status, "toy: the row failed");
  g_last = {g_last.count + 1, row, launch.workspace, launch.counters, launch.flags, launch.stream};
  return EK_STATUS_OK;
}

template <int kRow>
ek_status run(const ToyArgs&, const Launch& launch) {
  static const char* const names[] = {"toy_cuda_fast", "toy_cuda_loose", "toy_cuda",
                                      "toy_cpu_v4",    "toy_cpu_v2",     "other_cpu"};
  return ran(names[kRow], launch);
}

inline const char* need_dim_8(const ToyArgs& a, const Device&) { return a.dim % 8 ? "dim % 8 != 0" : nullptr; }
inline const char* need_few_rows(const ToyArgs& a, const Device&) { return a.rows > 1000 ? "rows > 1000" : nullptr; }
inline size_t workspace_4_rows(const ToyArgs& a, const Device&) { return static_cast<size_t>(4 * a.rows); }
inline size_t workspace_dim(const ToyArgs& a, const Device&) { return static_cast<size_t>(a.dim); }
inline size_t workspace_huge(const ToyArgs& a, const Device&) { return static_cast<size_t>(a.rows) << 20; }

inline const Kernel<ToyArgs> kToyCuda[] = {
    {"toy_cuda_fast", ek::sm(90), need_dim_8, run<0>, workspace_4_rows},
    {"toy_cuda_loose", ek::sm(80), need_few_rows, run<1>, nullptr, 0},
    {"toy_cuda", ek::sm(75), nullptr, run<2>, workspace_dim},
    {},
};
inline const Kernel<ToyArgs> kToyCpuV4[] = {
    {"toy_cpu_v4", ek::cpu(4), need_dim_8, run<3>, workspace_huge},
    {},
};
inline const Kernel<ToyArgs> kToyCpuV2[] = {
    {"toy_cpu_v2", ek::cpu(2), nullptr, run<4>, workspace_4_rows},
    {},
};
inline const Kernel<ToyArgs> kOtherCpu[] = {
    {"other_cpu", ek::cpu(2), need_few_rows, run<5>, nullptr, ek::kDeterministic},
    {},
};
inline const Kernel<ToyArgs>* const kToyTables[] = {kToyCuda, kToyCpuV4, kToyCpuV2, nullptr};
inline const Kernel<ToyArgs>* const kOtherTables[] = {kOtherCpu, nullptr};

inline const char* const kLayouts[] = {"halves", "interleaved", nullptr};
inline const ek::DimField kToyDims[] = {
    {"T", offsetof(ToyArgs, T), ek::FieldKind::kDtype},
    {"rows", offsetof(ToyArgs, rows), ek::FieldKind::kInt64, true},
    {"dim", offsetof(ToyArgs, dim)},
    {"group", offsetof(ToyArgs, group), ek::FieldKind::kInt32},
    {"layout", offsetof(ToyArgs, layout), ek::FieldKind::kInt32, false, kLayouts},
    {"centred", offsetof(ToyArgs, centred), ek::FieldKind::kBool},
};
inline const ek::OpTables<ToyArgs> kToy = {"toy", 0, kToyTables, kToyDims, 6};
inline const ek::OpTables<ToyArgs> kOther = {"other", 1, kOtherTables, kToyDims, 3};

template <const ek::OpTables<ToyArgs>& op>
ek_status explain(ek_context* context, const void* args, char* text, size_t bytes, size_t* needed) {
  return ek::explain(context, op, *static_cast<const ToyArgs*>(args), text, bytes, needed);
}

// A context whose device claims to be something else. Memory still comes from the CPU.
struct ContextDeleter {
  void operator()(ek_context* context) const { ek_context_destroy(context); }
};
using Context = std::unique_ptr<ek_context, ContextDeleter>;

inline Context make_context(int32_t type, int target) {
  ek_context* context = nullptr;
  if (ek_context_create({EK_DEVICE_CPU, 0}, &context)) {
    std::fprintf(stderr, "ek_context_create: %s\n", ek_last_error());
    std::exit(2);
  }
  context->device.id.type = type;
  context->device.target = target;
  snprintf(context->device.name, sizeof(context->device.name), "fake");
  return Context(context);
}
inline Context make_gpu(int target = 90) { return make_context(EK_DEVICE_CUDA, target); }
inline Context make_cpu(int level = 4) { return make_context(EK_DEVICE_CPU, level); }

}  // namespace fake

namespace ek {

const OpEntry kOps[] = {
    {"toy", [] { return row_count(fake::kToy); }, [](int i) { return row_info(fake::kToy, i); },
     fake::explain<fake::kToy>, fake::kToyDims, 6},
    {"other", [] { return row_count(fake::kOther); }, [](int i) { return row_info(fake::kOther, i); },
     fake::explain<fake::kOther>, fake::kToyDims, 3},
};
const int kOpCount = 2;

const BuiltinTable kBuiltinTables[] = {
    {"fake", "# built in\ntoy dim=4096 : toy_cuda_loose\n"},
    {nullptr, nullptr},
};

}  // namespace ek
