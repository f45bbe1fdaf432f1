// SPDX-License-Identifier: Apache-2.0
// What a call costs on the host: ek_rms_norm of 1 x 64, checks and dispatch and launch, beside the bare launch of an
// empty kernel. Also the read speed of the memory, a ceiling that PyTorch has no plain call for. A library, so that Python's calls are
// timed beside the same launches: between processes they differ by more than a call.
#include <cuda_runtime.h>
#include <einkorn/einkorn.h>
#include <einkorn/ops.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace {

// The driver queues about 1024 launches before it makes the caller wait; each batch ends far below that.
constexpr int kBatch = 256;
constexpr int kBatches = 400;

void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(error));
}

// The message is that of the context, or without one the thread's.
void check(ek_status status, const char* what, const ek_context* context = nullptr) {
  if (status == EK_STATUS_OK) return;
  throw std::runtime_error(std::string(what) + ": " + ek_status_name(status) + ": " +
                           (context ? ek_context_error(context) : ek_last_error()));
}

// The value below which this part of them lies.
double quantile(std::vector<double>& values, double part) {
  const auto at = values.begin() + static_cast<size_t>(values.size() * part);
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

__global__ void empty_kernel(const void*) {}

__global__ void read_kernel(const int4* data, size_t count, int* out) {
  int sum = 0;
  const size_t stride = size_t(gridDim.x) * blockDim.x;
  // Four independent 16-byte loads a thread keep enough bytes in flight.
  for (size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += 4 * stride) {
    int4 v[4] = {};
#pragma unroll
    for (int k = 0; k < 4; ++k)
      if (i + k * stride < count) v[k] = __ldcs(data + i + k * stride);
#pragma unroll
    for (int k = 0; k < 4; ++k) sum += v[k].x ^ v[k].y ^ v[k].z ^ v[k].w;
  }
  if (sum == 0x12345678) *out = sum;  // never, but the compiler can't know
}

// Host nanoseconds of one call in a batch of them.
template <class F>
double batch_ns(cudaStream_t stream, F&& call) {
  using clock = std::chrono::steady_clock;
  const auto start = clock::now();
  for (int i = 0; i < kBatch; ++i) call();
  const std::chrono::duration<double, std::nano> taken = clock::now() - start;
  check(cudaStreamSynchronize(stream), "synchronize");
  return taken.count() / kBatch;
}

double bare_batch_ns(cudaStream_t stream) {
  cudaLaunchConfig_t config = {};
  config.gridDim = 1;
  config.blockDim = 32;
  config.stream = stream;
  const void* none = nullptr;
  return batch_ns(stream, [&] { check(cudaLaunchKernelEx(&config, empty_kernel, none), "launch"); });
}

// Of a bare launch and of a call. Batches take turns, because the clock of the core moves by more than what is to be
// measured, and the fastest tenth counts: what else runs on the machine only adds.
template <class F>
std::pair<double, double> nanoseconds(cudaStream_t stream, F&& call) {
  std::vector<double> bare, calls;
  for (int b = 0; b < kBatches; ++b) {
    const double x = bare_batch_ns(stream), y = batch_ns(stream, call);
    if (b >= kBatches / 10) bare.push_back(x), calls.push_back(y);
  }
  return {quantile(bare, 0.1), quantile(calls, 0.1)};
}

double read_tb_s(cudaStream_t stream) {
  const size_t bytes = size_t(2) << 30;
  void* data = nullptr;
  int* out = nullptr;
  check(cudaMalloc(&data, bytes), "cudaMalloc");
  check(cudaMalloc(&out, sizeof(int)), "cudaMalloc");
  check(cudaMemsetAsync(data, 0x5a, bytes, stream), "cudaMemset");
  cudaEvent_t start, stop;
  check(cudaEventCreate(&start), "event");
  check(cudaEventCreate(&stop), "event");
  std::vector<double> samples;
  for (int i = 0; i < 12; ++i) {
    check(cudaEventRecord(start, stream), "record");
    read_kernel<<<132 * 16, 512, 0, stream>>>(static_cast<const int4*>(data), bytes / sizeof(int4), out);
    check(cudaEventRecord(stop, stream), "record");
    check(cudaStreamSynchronize(stream), "read_kernel");
    float ms = 0;
    check(cudaEventElapsedTime(&ms, start, stop), "elapsed");
    if (i >= 2) samples.push_back(bytes / (ms * 1e9));
  }
  cudaFree(data);
  cudaFree(out);
  return quantile(samples, 0.5);
}

void measure(double* bare_ns, double* call_ns, double* tb_s) {
  cudaStream_t stream;
  check(cudaStreamCreate(&stream), "stream");

  const ek_device device = {EK_DEVICE_CUDA, 0};
  ek_context* context = nullptr;
  check(ek_context_create(device, &context), "ek_context_create");
  check(ek_context_set_stream(context, stream), "ek_context_set_stream", context);
  void* data = nullptr;
  check(cudaMalloc(&data, 4096), "cudaMalloc");
  check(cudaMemset(data, 0, 4096), "cudaMemset");
  const int64_t shape[2] = {1, 64};
  char* bytes = static_cast<char*>(data);
  const ek_tensor x = {bytes, device, 2, EK_DTYPE_BF16, shape, nullptr, 0};
  const ek_tensor weight = {bytes + 1024, device, 1, EK_DTYPE_BF16, shape + 1, nullptr, 0};
  const ek_tensor y = {bytes + 2048, device, 2, EK_DTYPE_BF16, shape, nullptr, 0};
  ek_rms_norm_args args = EK_RMS_NORM_ARGS;
  args.x = &x;
  args.weight = &weight;
  args.y = &y;

  const auto call = [&] { check(ek_rms_norm(context, &args), "ek_rms_norm", context); };
  const std::pair<double, double> ns = nanoseconds(stream, call);
  *bare_ns = ns.first, *call_ns = ns.second;
  *tb_s = read_tb_s(stream);
  ek_context_destroy(context);
  cudaFree(data);
  cudaStreamDestroy(stream);
}

// 0, or 1 after a message.
template <class F>
int guarded(F&& f) {
  try {
    f();
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "bench/host: %s\n", e.what());
    return 1;
  }
}

}  // namespace

#define BENCH_API extern "C" __attribute__((visibility("default")))

BENCH_API int bench_host(double* bare_ns, double* call_ns, double* read_tb_s) {
  return guarded([&] { measure(bare_ns, call_ns, read_tb_s); });
}

// Of one batch, on the default stream of this library's runtime.
BENCH_API int bench_bare_batch(double* ns) {
  return guarded([&] { *ns = bare_batch_ns(nullptr); });
}
