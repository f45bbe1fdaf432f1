/* SPDX-License-Identifier: Apache-2.0
 * The library and its process: loading starts no thread; the CPU works without a driver and with no visible GPU; a fork
 * before the first use is nothing special; after it the CPU still works, and CUDA says what is wrong. */
#define _POSIX_C_SOURCE 200809L
#include <dirent.h>
#include <einkorn/ops.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

enum { kElements = 1 << 20 }; /* enough for every thread of the pool */
static const ek_device cpu = {EK_DEVICE_CPU, 0}, gpu = {EK_DEVICE_CUDA, 0};

/* Those of an emulator are not ours. */
static int threads_of_process(void) {
  int count = -EMULATOR_THREADS;
  struct dirent* entry;
  DIR* tasks = opendir("/proc/self/task");
  while ((entry = readdir(tasks))) count += entry->d_name[0] != '.';
  closedir(tasks);
  return count;
}

static int gpu_count(void) {
  int32_t count = 0;
  CHECK_OK(ek_device_count(EK_DEVICE_CUDA, &count));
  return count;
}

/* y = a + a of a million elements: is it right? */
static void run_op(ek_context* context, ek_device device) {
  const int64_t shape[1] = {kElements};
  const size_t bytes = kElements * sizeof(float);
  ek_add_args args = EK_ADD_ARGS;
  ek_tensor a = {NULL, device, 1, EK_DTYPE_F32, shape, NULL, 0}, y = a;
  float* host = malloc(bytes);
  int i, wrong = 0;
  for (i = 0; i < kElements; ++i) host[i] = (float)i;
  CHECK_OK(ek_memory_alloc(device, bytes, &a.data));
  CHECK_OK(ek_memory_alloc(device, bytes, &y.data));
  CHECK_OK(ek_memory_copy(context, a.data, host, bytes));
  args.a = args.b = &a;
  args.y = &y;
  CHECK_OK(ek_add(context, &args));
  CHECK_OK(ek_memory_copy(context, host, y.data, bytes));
  CHECK_OK(ek_context_synchronize(context));
  for (i = 0; i < kElements; ++i) wrong += host[i] != 2 * (float)i;
  CHECK(wrong == 0);
  CHECK_OK(ek_memory_free(device, a.data));
  CHECK_OK(ek_memory_free(device, y.data));
  free(host);
}

static void run_on(ek_device device) {
  ek_context* context = NULL;
  if (ek_context_create(device, &context)) {
    fprintf(stderr, "ek_context_create: %s\n", ek_last_error());
    ++failures;
    return;
  }
  run_op(context, device);
  ek_context_destroy(context);
}

static void in_child(const char* name, void (*body)(void)) {
  int status = 0;
  const pid_t child = fork();
  if (child == 0) {
    alarm(60); /* a child that hangs is a failure */
    failures = 0;
    body();
    _exit(failures ? 1 : 0);
  }
  waitpid(child, &status, 0);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  if (!WIFEXITED(status) || WEXITSTATUS(status)) fprintf(stderr, "  in the child: %s\n", name);
}

static void no_visible_gpu(void) {
  ek_context* context = NULL;
  setenv("CUDA_VISIBLE_DEVICES", "", 1);
  CHECK(gpu_count() == 0);
  CHECK_FAILS(ek_context_create(gpu, &context), EK_STATUS_NOT_FOUND, ek_last_error(), "no device cuda:0");
  CHECK(!context);
  run_on(cpu);
}

static void fork_before_first_use(void) {
  run_on(cpu);
  if (gpu_count() > 0) run_on(gpu);
}

static ek_context *parent_cpu, *parent_gpu;

static void fork_after_use(void) {
  int32_t count = 42;
  ek_context* context = NULL;
  run_op(parent_cpu, cpu);
  run_on(cpu);
  if (!parent_gpu) return;
  CHECK_FAILS(ek_device_count(EK_DEVICE_CUDA, &count), EK_STATUS_CUDA, ek_last_error(), "forked");
  CHECK(count == 42);
  CHECK_FAILS(ek_context_create(gpu, &context), EK_STATUS_CUDA, ek_last_error(), "forked");
  {
    const int64_t shape[1] = {4};
    float data[4] = {0}, other[4] = {0};
    ek_add_args args = EK_ADD_ARGS;
    ek_tensor a = {data, gpu, 1, EK_DTYPE_F32, shape, NULL, 0}, y = a;
    y.data = other;
    args.a = args.b = &a;
    args.y = &y;
    CHECK_FAILS(ek_add(parent_gpu, &args), EK_STATUS_CUDA, ek_context_error(parent_gpu), "fork");
  }
  CHECK_FAILS(ek_memory_fill(parent_gpu, &count, 0, 4), EK_STATUS_CUDA, ek_context_error(parent_gpu), "fork");
  CHECK_FAILS(ek_context_synchronize(parent_gpu), EK_STATUS_CUDA, ek_context_error(parent_gpu), "fork");
  ek_context_destroy(parent_gpu);
}

int main(void) {
  CHECK(threads_of_process() == 1);
  CHECK(ek_version() && ek_op_count() > 0);
  in_child("no visible GPU", no_visible_gpu);
  in_child("fork before first use", fork_before_first_use);
  CHECK(threads_of_process() == 1);

  CHECK_OK(ek_context_create(cpu, &parent_cpu));
  run_op(parent_cpu, cpu);
  if (gpu_count() > 0) {
    CHECK_OK(ek_context_create(gpu, &parent_gpu));
    run_op(parent_gpu, gpu);
  }
  in_child("fork after use", fork_after_use);
  in_child("fork after use, again", fork_after_use);
  run_op(parent_cpu, cpu);
  if (parent_gpu) run_op(parent_gpu, gpu);
  ek_context_destroy(parent_cpu);
  ek_context_destroy(parent_gpu);
  return report("test_process");
}
