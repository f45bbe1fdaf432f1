// SPDX-License-Identifier: Apache-2.0
// Plain products by cuBLASLt, where the process can load it: a second opinion for tests and benchmarks, and a fallback
// on GPUs that no kernel here was tuned for. The library is column-major and is asked for d^T = b^T a^T.
// Matrices and algorithm of a call are kept and found again by all that they depend on.
#include <dlfcn.h>

#include <atomic>
#include <cstring>
#include <map>
#include <mutex>

#include "core/process.h"
#include "cuda/launch.h"
#include "ops/gemm/cublaslt.h"
#include "ops/gemm/gemm_rows.h"

namespace ek {

namespace {

using namespace cublaslt;

// Loaded on first need and never unloaded. Api() where there is no library, or one without all functions.
Api load_api() {
  void* library = nullptr;
  for (const char* name : {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"})
    if (!library) library = dlopen(name, RTLD_LAZY | RTLD_LOCAL);
  if (!library) return {};
  Api api = {};
  bool whole = true;
  const auto find = [&](auto* function, const char* name) {
    *reinterpret_cast<void**>(function) = dlsym(library, name);
    whole = whole && *function;
  };
  find(&api.Create, "cublasLtCreate");
  find(&api.MatmulDescCreate, "cublasLtMatmulDescCreate");
  find(&api.MatmulDescDestroy, "cublasLtMatmulDescDestroy");
  find(&api.MatmulDescSetAttribute, "cublasLtMatmulDescSetAttribute");
  find(&api.MatrixLayoutCreate, "cublasLtMatrixLayoutCreate");
  find(&api.MatrixLayoutDestroy, "cublasLtMatrixLayoutDestroy");
  find(&api.MatrixLayoutSetAttribute, "cublasLtMatrixLayoutSetAttribute");
  find(&api.MatmulPreferenceCreate, "cublasLtMatmulPreferenceCreate");
  find(&api.MatmulPreferenceDestroy, "cublasLtMatmulPreferenceDestroy");
  find(&api.MatmulPreferenceSetAttribute, "cublasLtMatmulPreferenceSetAttribute");
  find(&api.MatmulAlgoGetHeuristic, "cublasLtMatmulAlgoGetHeuristic");
  find(&api.Matmul, "cublasLtMatmul");
  return whole ? api : Api{};
}

const Api& api() {
  static const Api loaded = load_api();
  return loaded;
}

// All that matrices and algorithm depend on. No padding: keys are compared as bytes.
struct Key {
  int64_t m, n, k, batch;
  int64_t a_pitch, b_pitch, c_pitch, d_pitch, a_batch, b_batch, c_batch, d_batch;
  int32_t in, out, compute, a_transposed, b_transposed, device;
  int32_t alignment[4];  // of a, b, c, d: a power of two up to 256
  bool operator<(const Key& other) const { return memcmp(this, &other, sizeof(Key)) < 0; }
};
static_assert(sizeof(Key) == 12 * 8 + 10 * 4, "");

struct Plan {
  MatmulDesc desc = nullptr;
  Layout a = nullptr, b = nullptr, c = nullptr, d = nullptr;
  Algorithm algorithm = {};
};

constexpr int kMaxDevices = 64;
constexpr size_t kMaxPlans = 4096;
struct State {
  const Generation generation = g_generation;
  std::mutex mutex;
  Handle handle[kMaxDevices] = {};
  std::map<Key, Plan> plans;
};

// A forked child starts with a state of its own: its parent's handles, and the lock that another thread may have held
// at that time, are left alone. Threads that come first together each make one, and one of them stays.
State& state() {
  static std::atomic<State*> current{nullptr};
  static const bool watching = (watch_forks(), true);
  (void)watching;
  State* now = current.load();
  if (now && now->generation == g_generation) return *now;
  State* made = new State;
  if (current.compare_exchange_strong(now, made)) return *made;
  delete made;
  return *now;
}

size_t workspace_of(const Device& device) { return device.target >= 90 ? size_t{32} << 20 : size_t{4} << 20; }

int32_t alignment_of(const void* p) {
  const uintptr_t lowest = reinterpret_cast<uintptr_t>(p) | 256;
  return static_cast<int32_t>(lowest & (~lowest + 1));
}

Key key_of(const GemmCall& c, const Launch& l) {
  const Matrix& source = c.c.data ? c.c : c.d;  // c is not read where beta is 0, but must look like a matrix
  Key key = {};
  key.m = c.m, key.n = c.n, key.k = c.k, key.batch = c.batch;
  key.a_transposed = !(c.a.col == 1 && c.a.row >= c.k), key.b_transposed = !(c.b.col == 1 && c.b.row >= c.n);
  key.a_pitch = key.a_transposed ? c.a.col : c.a.row;
  key.b_pitch = key.b_transposed ? c.b.col : c.b.row;
  key.c_pitch = source.row, key.d_pitch = c.d.row;
  key.a_batch = c.a.batch, key.b_batch = c.b.batch, key.c_batch = source.batch, key.d_batch = c.d.batch;
  key.in = c.in, key.out = c.out, key.device = l.device.id.id;
  key.compute = c.in == EK_DTYPE_F32 && (l.flags & EK_FLAG_TF32) ? kCompute32FFastTf32 : kCompute32F;
  const void* data[] = {c.a.data, c.b.data, source.data, c.d.data};
  for (int i = 0; i < 4; ++i) key.alignment[i] = alignment_of(data[i]);
  return key;
}

cudaDataType_t type_of(ek_dtype type) {
  return type == EK_DTYPE_F32 ? CUDA_R_32F : type == EK_DTYPE_F16 ? CUDA_R_16F : CUDA_R_16BF;
}

void destroy(const Plan& plan) {
  for (Layout layout : {plan.a, plan.b, plan.c, plan.d})
    if (layout) api().MatrixLayoutDestroy(layout);
  if (plan.desc) api().MatmulDescDestroy(plan.desc);
}

// Status of the first call that failed, or 0. The library's A is our b and its B our a.
Status make_plan(const Key& key, Handle handle, size_t workspace, Plan* plan) {
  const auto layout = [&](Layout* made, int32_t type, int64_t rows, int64_t columns, int64_t pitch, int64_t stride) {
    if (const Status s = api().MatrixLayoutCreate(made, type_of(type), rows, columns, pitch)) return s;
    const int32_t batch = static_cast<int32_t>(key.batch);
    if (const Status s = api().MatrixLayoutSetAttribute(*made, kBatchCount, &batch, sizeof(batch))) return s;
    return api().MatrixLayoutSetAttribute(*made, kBatchStride, &stride, sizeof(stride));
  };
  const Operation first = key.b_transposed ? kOpT : kOpN, second = key.a_transposed ? kOpT : kOpN;
  Preference preference = nullptr;
  HeuristicResult result = {};
  int found = 0;
  const uint64_t bytes = workspace;
  Status s = api().MatmulDescCreate(&plan->desc, key.compute, CUDA_R_32F);
  if (!s) s = api().MatmulDescSetAttribute(plan->desc, kTransA, &first, sizeof(first));
  if (!s) s = api().MatmulDescSetAttribute(plan->desc, kTransB, &second, sizeof(second));
  if (!s)
    s = key.b_transposed ? layout(&plan->b, key.in, key.k, key.n, key.b_pitch, key.b_batch)
                         : layout(&plan->b, key.in, key.n, key.k, key.b_pitch, key.b_batch);
  if (!s)
    s = key.a_transposed ? layout(&plan->a, key.in, key.m, key.k, key.a_pitch, key.a_batch)
                         : layout(&plan->a, key.in, key.k, key.m, key.a_pitch, key.a_batch);
  if (!s) s = layout(&plan->c, key.out, key.n, key.m, key.c_pitch, key.c_batch);
  if (!s) s = layout(&plan->d, key.out, key.n, key.m, key.d_pitch, key.d_batch);
  if (!s) s = api().MatmulPreferenceCreate(&preference);
  if (!s) s = api().MatmulPreferenceSetAttribute(preference, kMaxWorkspace, &bytes, sizeof(bytes));
  // Parts of k that are added in the output type would cost f16 and bf16 their f32 sums.
  const uint32_t schemes = kInComputeType;
  if (!s) s = api().MatmulPreferenceSetAttribute(preference, kReductionSchemes, &schemes, sizeof(schemes));
  const int32_t order[] = {key.alignment[1], key.alignment[0], key.alignment[2], key.alignment[3]};
  for (int i = 0; i < 4 && !s; ++i) {
    const uint32_t alignment = static_cast<uint32_t>(order[i]);
    s = api().MatmulPreferenceSetAttribute(preference, kMinAlignmentA + i, &alignment, sizeof(alignment));
  }
  if (!s)
    s = api().MatmulAlgoGetHeuristic(handle, plan->desc, plan->b, plan->a, plan->c, plan->d, preference, 1, &result,
                                     &found);
  if (preference) api().MatmulPreferenceDestroy(preference);
  if (!s && (!found || result.state)) s = result.state ? result.state : -1;
  plan->algorithm = result.algorithm;
  return s;
}

// Both strides of an operand that the library can take: one is 1, the other at least as long as what it steps over.
bool is_matrix(const Matrix& x, int64_t rows, int64_t columns) {
  return (x.col == 1 && x.row >= columns) || (x.row == 1 && x.col >= rows);
}

const char* why_not(const GemmCall& c, const Device& device) {
  if (!c.plain() || c.out_scale != 1.f) return "the library's epilogues are not used";
  if (c.k == 0) return "k is 0";
  if (c.in == EK_DTYPE_BF16 && device.target < 80) return "no bf16 before compute capability 8.0";
  // In place it rounds the product before it adds c (seen with 13.0), and with alpha 0 it does not always read c.
  if (c.alpha == 0.f) return "alpha is 0";
  if (c.c.data && c.c.data == c.d.data) return "d is c";
  if (!is_matrix(c.a, c.m, c.k) || !is_matrix(c.b, c.k, c.n)) return "a or b is neither row- nor column-major";
  if (c.d.col != 1 || c.d.row < c.n || (c.c.data && (c.c.col != 1 || c.c.row < c.n)))
    return "the rows of c or d are not contiguous, or overlap";
  const int64_t most = 0x7fffffff;
  if (c.m > most || c.n > most || c.k > most || c.batch > most) return "a dim is 2^31 or larger";
  if (device.id.id < 0 || device.id.id >= kMaxDevices) return "more than 64 devices";
  if (!api().Matmul) return "no cuBLASLt library is found";
  return nullptr;
}

size_t workspace(const GemmCall&, const Device& device) { return workspace_of(device); }

ek_status run(const GemmCall& c, const Launch& l) {
  const auto failed = [&](const char* what, Status s) {
    return fail(l.context, EK_STATUS_CUDA, "cuBLASLt: %s failed with status %d", what, s);
  };
  State& st = state();
  const Key key = key_of(c, l);
  // The lock is held through the launch: a full cache is emptied, and no plan may go while it is in use.
  std::lock_guard<std::mutex> lock(st.mutex);
  Handle& handle = st.handle[key.device];
  if (!handle)
    if (const Status s = api().Create(&handle)) return failed("cublasLtCreate", s);
  auto found = st.plans.find(key);
  if (found == st.plans.end()) {
    if (st.plans.size() >= kMaxPlans) {
      for (const auto& entry : st.plans) destroy(entry.second);
      st.plans.clear();
    }
    Plan plan;
    if (const Status s = make_plan(key, handle, workspace_of(l.device), &plan)) {
      destroy(plan);
      return failed("finding an algorithm", s);
    }
    found = st.plans.emplace(key, plan).first;
  }
  const Plan& plan = found->second;
  const Matrix& source = c.c.data ? c.c : c.d;
  const float beta = c.c.data ? c.beta : 0.f;
  if (const Status s = api().Matmul(handle, plan.desc, &c.alpha, c.b.data, plan.b, c.a.data, plan.a, &beta, source.data,
                                    plan.c, c.d.data, plan.d, &plan.algorithm, l.workspace, workspace_of(l.device),
                                    static_cast<cudaStream_t>(l.stream)))
    return failed("cublasLtMatmul", s);
  return EK_STATUS_OK;
}

}  // namespace

// One algorithm for one call, without sums by atomics, on a workspace of the context's own: NVIDIA promises the same bits
// for that on the same kind of GPU. The algorithm depends on m: not batch invariant.
const GemmKernel kGemmCublaslt = {sm(75), why_not, run, workspace, kDeterministic, 0};

}  // namespace ek
