// SPDX-License-Identifier: Apache-2.0
// CUDA as a device, through the runtime that is linked in. Nothing here runs before the first call that asks for CUDA.
#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstdio>
#include <mutex>

#include "core/backend.h"
#include "core/cuda_probe.h"
#include "core/process.h"

#ifndef EINKORN_CUDA_ARCHS
#error "EINKORN_CUDA_ARCHS must name what the kernels are compiled for, as in \"sm_80 sm_90a\""
#endif

namespace ek {

namespace {

// Both name the legacy default stream, which can't be captured.
bool is_legacy_stream(ek_stream stream) { return stream == nullptr || stream == cudaStreamLegacy; }

cudaStream_t cuda_stream(ek_stream stream) { return static_cast<cudaStream_t>(stream); }
cudaEvent_t cuda_event(void* event) { return static_cast<cudaEvent_t>(event); }

// ---- devices -------------------------------------------------------------------------------------------------------

struct Driver {
  int devices = 0;
  cudaError_t error = cudaSuccess;  // where devices is 0
  Generation generation = 0;
};

// Asked once: devices do not come and go within a process. Creates no CUDA context.
const Driver& driver() {
  static const Driver driver = [] {
    Driver d;
    watch_forks();
    d.generation = g_generation;
    d.error = cudaGetDeviceCount(&d.devices);
    if (d.error) {
      d.devices = 0;
      cudaGetLastError();
    }
    return d;
  }();
  return driver;
}

// A process that used CUDA leaves its forked children a driver that answers with nonsense; say so instead.
ek_status check_fork(ek_context* context) {
  if (driver().devices == 0 || driver().generation == g_generation) return EK_STATUS_OK;
  return fail(
      context, EK_STATUS_CUDA,
      "CUDA was in use when this process was forked and can't be used in it; fork before the first use of CUDA, "
      "or start a new program");
}

ek_status count(ek_context* context, int* count_out) {
  if (const ek_status status = check_fork(context)) return status;
  const Driver& d = driver();
  switch (d.error) {
    case cudaSuccess:
    case cudaErrorNoDevice:
    case cudaErrorInsufficientDriver:  // also where there is no driver at all
    case cudaErrorStubLibrary:         // the toolkit's stand-in for one
      *count_out = d.devices;
      return EK_STATUS_OK;
    default: return fail_cuda(context, d.error, "looking for CUDA devices");
  }
}

const char* why_none() {
  // The runtime's words for "no driver" are about its version.
  int version = 0;
  if (driver().error == cudaErrorInsufficientDriver && !cudaDriverGetVersion(&version) && version == 0)
    return "no NVIDIA driver was found";
  return cudaGetErrorString(driver().error);
}

// Makes a device current for the calls of one function. With one GPU there is nothing to change and nothing is asked.
class Current {
 public:
  Current(ek_context* context, int id) {
    status_ = check_fork(context);
    if (status_ || driver().devices == 1) return;
    int current = 0;
    cudaError_t error = cudaGetDevice(&current);
    if (!error && current == id) return;
    if (!error) error = cudaSetDevice(id);
    if (error)
      status_ = fail_cuda(context, error, "making the device current");
    else
      previous_ = current;
  }
  ~Current() {
    if (previous_ >= 0) cudaSetDevice(previous_);
  }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;
  ek_status status() const { return status_; }
  int take_previous() {
    const int previous = previous_;
    previous_ = -1;
    return previous;
  }

 private:
  ek_status status_ = EK_STATUS_OK;
  int previous_ = -1;  // -1: nothing to put back
};

// Runs `call`, which returns a cudaError_t, with device `id` current.
template <class F>
ek_status on_device(ek_context* context, int id, const char* what, const F& call) {
  Current current(context, id);
  if (current.status()) return current.status();
  const cudaError_t error = call();
  return error ? fail_cuda(context, error, what) : EK_STATUS_OK;
}

ek_status enter(ek_context* context, int id, int* previous_out) {
  Current current(context, id);
  *previous_out = current.take_previous();
  return current.status();
}

void leave(int previous) { cudaSetDevice(previous); }

cudaError_t read_device(int id, Device* d) {
  cudaDeviceProp p;
  if (const cudaError_t error = cudaGetDeviceProperties(&p, id)) return error;
  d->id = {EK_DEVICE_CUDA, id};
  d->target = 10 * p.major + p.minor;
  d->processors = p.multiProcessorCount;
  d->l2_bytes = p.l2CacheSize;
  d->memory_bytes = static_cast<int64_t>(p.totalGlobalMem);
  d->smem_per_block = static_cast<int>(p.sharedMemPerBlockOptin);
  d->threads_per_processor = p.maxThreadsPerMultiProcessor;
  snprintf(d->name, sizeof(d->name), "%.*s", static_cast<int>(sizeof(d->name) - 1), p.name);
  return cudaSuccess;
}

ek_status describe(ek_context* context, int id, Device* device_out) {
  if (const ek_status status = check_fork(context)) return status;
  // The runtime takes a millisecond to answer, so the answers are kept.
  constexpr int kKept = 64;
  static std::once_flag asked[kKept];
  static Device kept[kKept];
  static cudaError_t errors[kKept];
  cudaError_t error = cudaSuccess;
  if (id < kKept) {
    std::call_once(asked[id], [id] { errors[id] = read_device(id, &kept[id]); });
    error = errors[id];
    *device_out = kept[id];
  } else {
    error = read_device(id, device_out);
  }
  return error ? fail_cuda(context, error, "describing the device") : EK_STATUS_OK;
}

// Where the code is an older GPU's, translated by the driver, what needs a newer one was compiled empty: rows see the older.
ek_status probe(ek_context* context, Device* device) {
  Current current(context, device->id.id);
  if (current.status()) return current.status();
  int built_for = 0;
  const int error = probe_kernel_image(&built_for);
  if (error == cudaSuccess) {
    device->translated = built_for > 0 && built_for < device->target;
    if (device->translated) device->target = built_for;
    return EK_STATUS_OK;
  }
  if (error == cudaErrorNoKernelImageForDevice || error == cudaErrorInvalidDeviceFunction ||
      error == cudaErrorUnsupportedPtxVersion) {
    cudaGetLastError();
    return fail(context, EK_STATUS_UNSUPPORTED,
                "cuda:%d is a %s (sm_%d), for which this build of einkorn holds no code; it was built for %s",
                device->id.id, device->name, device->target, EINKORN_CUDA_ARCHS);
  }
  return fail_cuda(context, error, "looking for the library's kernels on the device");
}

// ---- memory --------------------------------------------------------------------------------------------------------

// Allocating is no part of any stream, so a capture elsewhere in this thread need not object to it.
class AllowDuringCapture {
 public:
  AllowDuringCapture() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  ~AllowDuringCapture() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  AllowDuringCapture(const AllowDuringCapture&) = delete;
  AllowDuringCapture& operator=(const AllowDuringCapture&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

ek_status alloc(ek_context* context, ek_device device, size_t bytes, void** data_out) {
  *data_out = nullptr;
  if (bytes == 0) return EK_STATUS_OK;
  char what[96];
  snprintf(what, sizeof(what), "allocating %zu bytes on cuda:%d", bytes, device.id);
  if (bytes > PTRDIFF_MAX) return fail(context, EK_STATUS_OUT_OF_MEMORY, "%s: no device has as much", what);
  return on_device(context, device.id, what, [&] {
    AllowDuringCapture allow;
    if (device.type == EK_DEVICE_CUDA_HOST) return cudaHostAlloc(data_out, bytes, cudaHostAllocPortable);
    if (device.type == EK_DEVICE_CUDA_MANAGED) return cudaMallocManaged(data_out, bytes, cudaMemAttachGlobal);
    return cudaMalloc(data_out, bytes);
  });
}

ek_status release(ek_context* context, ek_device device, void* data) {
  return on_device(context, device.id, "freeing memory", [&] {
    AllowDuringCapture allow;
    return device.type == EK_DEVICE_CUDA_HOST ? cudaFreeHost(data) : cudaFree(data);
  });
}

ek_status alloc_zeroed(ek_context* context, ek_device device, size_t bytes, void** data_out) {
  if (const ek_status status = alloc(context, device, bytes, data_out)) return status;
  const ek_status status = on_device(context, device.id, "zeroing memory", [&] {
    AllowDuringCapture allow;
    // The thread's own stream: the legacy one would wait for all others, and is forbidden while one is captured.
    const cudaError_t error = cudaMemsetAsync(*data_out, 0, bytes, cudaStreamPerThread);
    return error ? error : cudaStreamSynchronize(cudaStreamPerThread);
  });
  if (status) {
    release(context, device, *data_out);
    *data_out = nullptr;
  }
  return status;
}

ek_status copy(ek_context* context, int id, ek_stream stream, void* dst, const void* src, size_t bytes) {
  return on_device(context, id, "copying memory",
                   [&] { return cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, cuda_stream(stream)); });
}

ek_status fill(ek_context* context, int id, ek_stream stream, void* dst, uint8_t value, size_t bytes) {
  return on_device(context, id, "filling memory",
                   [&] { return cudaMemsetAsync(dst, value, bytes, cuda_stream(stream)); });
}

// ---- streams and events --------------------------------------------------------------------------------------------

ek_status stream_create(ek_context* context, int id, ek_stream* stream_out) {
  return on_device(context, id, "creating a stream", [&] {
    cudaStream_t stream = nullptr;
    const cudaError_t error = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    *stream_out = stream;
    return error;
  });
}

ek_status stream_destroy(ek_context* context, int id, ek_stream stream) {
  return on_device(context, id, "destroying a stream", [&] { return cudaStreamDestroy(cuda_stream(stream)); });
}

ek_status stream_synchronize(ek_context* context, int id, ek_stream stream) {
  return on_device(context, id, "waiting for a stream", [&] { return cudaStreamSynchronize(cuda_stream(stream)); });
}

ek_status stream_capturing(ek_context* context, int id, ek_stream stream, bool* capturing_out) {
  *capturing_out = false;
  if (is_legacy_stream(stream)) return EK_STATUS_OK;
  return on_device(context, id, "asking whether a stream is captured", [&] {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    const cudaError_t error = cudaStreamIsCapturing(cuda_stream(stream), &status);
    *capturing_out = status != cudaStreamCaptureStatusNone;
    return error;
  });
}

ek_status event_create(ek_context* context, int id, bool timed, void** event_out) {
  return on_device(context, id, "creating an event", [&] {
    cudaEvent_t event = nullptr;
    const cudaError_t error = cudaEventCreateWithFlags(&event, timed ? cudaEventDefault : cudaEventDisableTiming);
    *event_out = event;
    return error;
  });
}

// Where there is no one to tell an error to: after a fork there is nothing to destroy, at exit the driver has done it.
template <class F>
void destroy_on(int id, const F& call) {
  if (driver().generation != g_generation) return;
  Current current(nullptr, id);
  if (!current.status() && call()) cudaGetLastError();
}

void event_destroy(int id, void* event) {
  destroy_on(id, [&] { return cudaEventDestroy(cuda_event(event)); });
}

ek_status event_record(ek_context* context, int id, void* event, ek_stream stream) {
  return on_device(context, id, "recording an event",
                   [&] { return cudaEventRecord(cuda_event(event), cuda_stream(stream)); });
}

ek_status event_wait(ek_context* context, int id, void* event, ek_stream stream) {
  return on_device(context, id, "making a stream wait for an event",
                   [&] { return cudaStreamWaitEvent(cuda_stream(stream), cuda_event(event), 0); });
}

ek_status event_synchronize(ek_context* context, int id, void* event) {
  return on_device(context, id, "waiting for an event", [&] { return cudaEventSynchronize(cuda_event(event)); });
}

ek_status event_elapsed(ek_context* context, int id, void* start, void* stop, float* milliseconds_out) {
  return on_device(context, id, "reading the time between two events (wait for them first)",
                   [&] { return cudaEventElapsedTime(milliseconds_out, cuda_event(start), cuda_event(stop)); });
}

// ---- graphs --------------------------------------------------------------------------------------------------------

ek_status graph_begin(ek_context* context, int id, ek_stream stream) {
  if (is_legacy_stream(stream))
    return fail(context, EK_STATUS_INVALID_ARGUMENT,
                "ek_graph_begin: the default stream can't be captured; give the context another one");
  // Relaxed: begin and end may come from different threads (goroutines move), and other threads may allocate meanwhile.
  return on_device(context, id, "beginning a capture",
                   [&] { return cudaStreamBeginCapture(cuda_stream(stream), cudaStreamCaptureModeRelaxed); });
}

ek_status graph_end(ek_context* context, int id, ek_stream stream, void** graph_out) {
  return on_device(context, id, "ending a capture", [&] {
    cudaGraph_t graph = nullptr;
    cudaError_t error = cudaStreamEndCapture(cuda_stream(stream), &graph);
    if (error) return error;
    cudaGraphExec_t executable = nullptr;
    error = cudaGraphInstantiate(&executable, graph, 0);
    cudaGraphDestroy(graph);
    *graph_out = executable;
    return error;
  });
}

ek_status graph_launch(ek_context* context, int id, void* graph, ek_stream stream) {
  return on_device(context, id, "launching a graph",
                   [&] { return cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph), cuda_stream(stream)); });
}

void graph_destroy(int id, void* graph) {
  destroy_on(id, [&] { return cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph)); });
}

constexpr Backend kBackend = [] {
  Backend b = {};
  b.name = "cuda";
  b.count = count;
  b.why_none = why_none;
  b.describe = describe;
  b.probe = probe;
  b.enter = enter;
  b.leave = leave;
  b.alloc = alloc;
  b.alloc_zeroed = alloc_zeroed;
  b.free = release;
  b.copy = copy;
  b.fill = fill;
  b.stream_create = stream_create;
  b.stream_destroy = stream_destroy;
  b.stream_synchronize = stream_synchronize;
  b.stream_capturing = stream_capturing;
  b.event_create = event_create;
  b.event_destroy = event_destroy;
  b.event_record = event_record;
  b.event_wait = event_wait;
  b.event_synchronize = event_synchronize;
  b.event_elapsed = event_elapsed;
  b.graph_begin = graph_begin;
  b.graph_end = graph_end;
  b.graph_launch = graph_launch;
  b.graph_destroy = graph_destroy;
  return b;
}();

}  // namespace

ek_status fail_cuda(ek_context* context, int cuda_error, const char* what) {
  const cudaError_t error = static_cast<cudaError_t>(cuda_error);
  cudaGetLastError();
  return fail(context, error == cudaErrorMemoryAllocation ? EK_STATUS_OUT_OF_MEMORY : EK_STATUS_CUDA, "%s: %s (%s)",
              what, cudaGetErrorString(error), cudaGetErrorName(error));
}

const Backend& cuda_backend() { return kBackend; }

const char* cuda_build_info() {
  static char text[256];
  static const int length = snprintf(text, sizeof(text), "cuda %d.%d (%s)", CUDART_VERSION / 1000,
                                     CUDART_VERSION % 1000 / 10, EINKORN_CUDA_ARCHS);
  (void)length;
  return text;
}

}  // namespace ek
