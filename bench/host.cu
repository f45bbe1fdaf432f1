// SPDX-License-Identifier: Apache-2.0
// What a call costs on the host: ek_rms_norm of 1 x 64, checks and dispatch and launch, beside the bare launch of an
// empty kernel. Also the read speed of the memory, a ceiling that PyTorch has no plain call for. Prints JSON.
#include <cuda_runtime.h>
#include <einkorn/einkorn.h>
#include <einkorn/ops.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

namespace {

// The driver queues about 1024 launches before it makes the caller wait; each batch ends far below that.
constexpr int kBatch = 256;
constexpr int kBatches = 400;

void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}

// The message is that of the context, or without one the thread's.
void check(ek_status status, const char* what, const ek_context* context = nullptr) {
  if (status == EK_STATUS_OK) return;
  std::fprintf(stderr, "%s: %s: %s\n", what, ek_status_name(status),
               context ? ek_context_error(context) : ek_last_error());
  std::exit(1);
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

// Host nanoseconds of one call of each kind. Batches take turns, because the clock of the core moves by more than what is to be
// measured, and the fastest tenth counts: what else runs on the machine only adds.
template <class F, class G>
std::pair<double, double> nanoseconds(cudaStream_t stream, F&& first, G&& second) {
  using clock = std::chrono::steady_clock;
  const auto batch = [&](auto&& call) {
    const auto start = clock::now();
    for (int i = 0; i < kBatch; ++i) call();
    const std::chrono::duration<double, std::nano> taken = clock::now() - start;
    check(cudaStreamSynchronize(stream), "synchronize");
    return taken.count() / kBatch;
  };
  std::vector<double> one, two;
  for (int b = 0; b < kBatches; ++b) {
    const double x = batch(first), y = batch(second);
    if (b >= kBatches / 10) one.push_back(x), two.push_back(y);
  }
  return {quantile(one, 0.1), quantile(two, 0.1)};
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

}  // namespace

int main() {
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

  cudaLaunchConfig_t config = {};
  config.gridDim = 1;
  config.blockDim = 32;
  config.stream = stream;
  const auto bare = [&] { check(cudaLaunchKernelEx(&config, empty_kernel, static_cast<const void*>(data)), "launch"); };
  const auto call = [&] { check(ek_rms_norm(context, &args), "ek_rms_norm", context); };

  const auto [bare_ns, call_ns] = nanoseconds(stream, bare, call);
  std::printf("{\"bare_launch_ns\": %.0f, \"rms_norm_ns\": %.0f, \"read_tb_s\": %.3f}\n", bare_ns, call_ns,
              read_tb_s(stream));
  ek_context_destroy(context);
  return 0;
}
