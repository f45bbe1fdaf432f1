// SPDX-License-Identifier: Apache-2.0
// The CPU as a device. Work is done when a call returns, so streams are names, waiting is nothing, and an event is the
// time at which it was recorded.
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

#include "core/backend.h"
#include "core/thread_pool.h"

namespace ek {

namespace {

// The x86-64 level that both the CPU and the system allow: __builtin_cpu_supports asks XGETBV too, so an AVX-512 that
// the system does not save on a task switch counts as absent. 1 is below all we have code for; 0 is no x86.
int cpu_level() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool v2 =
      __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("popcnt") && __builtin_cpu_supports("ssse3");
  const bool v3 = v2 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") &&
                  __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c") &&
                  __builtin_cpu_supports("lzcnt");
  const bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                  __builtin_cpu_supports("avx512vl");
  return v4 ? 4 : v3 ? 3 : v2 ? 2 : 1;
#else
  return 0;
#endif
}

// "model name" of /proc/cpuinfo, which aarch64 does not have.
void read_cpu_name(char* name, size_t bytes) {
  snprintf(name, bytes, "CPU");
  FILE* file = fopen("/proc/cpuinfo", "re");
  if (!file) return;
  char line[256];
  while (fgets(line, sizeof(line), file)) {
    const char* colon = strchr(line, ':');
    if (strncmp(line, "model name", 10) != 0 || !colon) continue;
    line[strcspn(line, "\n")] = '\0';
    snprintf(name, bytes, "%.*s", static_cast<int>(bytes - 1), colon + 1 + strspn(colon + 1, " "));
    break;
  }
  fclose(file);
}

Device describe_cpu() {
  Device device;
  device.id = {EK_DEVICE_CPU, 0};
  device.target = cpu_level();
  device.processors = thread_count();
  const long pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
  if (pages > 0 && page_bytes > 0) device.memory_bytes = static_cast<int64_t>(pages) * page_bytes;
#ifdef _SC_LEVEL2_CACHE_SIZE
  const long l2 = sysconf(_SC_LEVEL2_CACHE_SIZE);
  if (l2 > 0) device.l2_bytes = l2;
#endif
  device.threads_per_processor = 1;
  read_cpu_name(device.name, sizeof(device.name));
  return device;
}

ek_status count(ek_context*, int* count_out) {
  *count_out = 1;
  return EK_STATUS_OK;
}

const char* why_none() { return ""; }

ek_status describe(ek_context*, int, Device* device_out) {
  static const Device device = describe_cpu();
  *device_out = device;
  return EK_STATUS_OK;
}

ek_status probe(ek_context*, Device*) { return EK_STATUS_OK; }

constexpr size_t kAlignment = 256;

ek_status alloc(ek_context* context, ek_device, size_t bytes, void** data_out) {
  *data_out = nullptr;
  if (bytes == 0) return EK_STATUS_OK;
  const size_t whole = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  if (whole >= bytes) *data_out = aligned_alloc(kAlignment, whole);
  if (*data_out) return EK_STATUS_OK;
  return fail(context, EK_STATUS_OUT_OF_MEMORY, "no %zu bytes of memory on cpu:0", bytes);
}

ek_status alloc_zeroed(ek_context* context, ek_device device, size_t bytes, void** data_out) {
  const ek_status status = alloc(context, device, bytes, data_out);
  if (status == EK_STATUS_OK && bytes) memset(*data_out, 0, bytes);
  return status;
}

ek_status release(ek_context*, ek_device, void* data) {
  free(data);
  return EK_STATUS_OK;
}

ek_status copy(ek_context*, int, ek_stream, void* dst, const void* src, size_t bytes) {
  if (bytes) memmove(dst, src, bytes);
  return EK_STATUS_OK;
}

ek_status fill(ek_context*, int, ek_stream, void* dst, uint8_t value, size_t bytes) {
  if (bytes) memset(dst, value, bytes);
  return EK_STATUS_OK;
}

ek_status stream_create(ek_context*, int, ek_stream* stream_out) {
  static char stream;  // one name for all: there is nothing to tell apart
  *stream_out = &stream;
  return EK_STATUS_OK;
}

ek_status stream_destroy(ek_context*, int, ek_stream) { return EK_STATUS_OK; }
ek_status stream_synchronize(ek_context*, int, ek_stream) { return EK_STATUS_OK; }

ek_status stream_capturing(ek_context*, int, ek_stream, bool* capturing_out) {
  *capturing_out = false;
  return EK_STATUS_OK;
}

ek_status event_create(ek_context* context, int, bool, void** event_out) {
  *event_out = new (std::nothrow) timespec{};
  return *event_out ? EK_STATUS_OK : fail(context, EK_STATUS_OUT_OF_MEMORY, "no memory for an event");
}

void event_destroy(int, void* event) { delete static_cast<timespec*>(event); }

ek_status event_record(ek_context*, int, void* event, ek_stream) {
  clock_gettime(CLOCK_MONOTONIC, static_cast<timespec*>(event));
  return EK_STATUS_OK;
}

ek_status event_wait(ek_context*, int, void*, ek_stream) { return EK_STATUS_OK; }
ek_status event_synchronize(ek_context*, int, void*) { return EK_STATUS_OK; }

ek_status event_elapsed(ek_context*, int, void* start, void* stop, float* milliseconds_out) {
  const timespec &a = *static_cast<timespec*>(start), &b = *static_cast<timespec*>(stop);
  const double seconds = static_cast<double>(b.tv_sec - a.tv_sec) + 1e-9 * static_cast<double>(b.tv_nsec - a.tv_nsec);
  *milliseconds_out = static_cast<float>(1e3 * seconds);
  return EK_STATUS_OK;
}

constexpr Backend kBackend = [] {
  Backend b = {};
  b.name = "cpu";
  b.count = count;
  b.why_none = why_none;
  b.describe = describe;
  b.probe = probe;
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
  return b;
}();

}  // namespace

const Backend& cpu_backend() { return kBackend; }

}  // namespace ek
