/* SPDX-License-Identifier: Apache-2.0
 * Threads that call at the same time, each with a context and a shape of its own. On a GPU the kernel's shared memory follows
 * the shape: no launch may meet the amount that another thread has asked for. */
#define _POSIX_C_SOURCE 200809L
#include <einkorn/ops.h>
#include <pthread.h>
#include <stdlib.h>

#include "check.h"

enum { kThreads = 8, kCalls = 500, kColumns = 64 };

typedef struct {
  pthread_t thread;
  ek_device device;
  int64_t rows;
  int failed; /* calls and elements */
  char error[256];
} Worker;

/* y = x transposed, again and again: is every call taken, and the last result right? */
static void* transpose(void* argument) {
  Worker* w = argument;
  const int64_t rows = w->rows, count = rows * kColumns, x_shape[2] = {rows, kColumns}, y_shape[2] = {kColumns, rows};
  const size_t bytes = (size_t)count * sizeof(float);
  ek_tensor x = {NULL, w->device, 2, EK_DTYPE_F32, x_shape, NULL, 0},
            y = {NULL, w->device, 2, EK_DTYPE_F32, y_shape, NULL, 0};
  ek_transpose_2d_args args = EK_TRANSPOSE_2D_ARGS;
  ek_context* context = NULL;
  float* host = malloc(bytes);
  int64_t i;
  for (i = 0; i < count; ++i) host[i] = (float)i;
  w->failed += ek_context_create(w->device, &context) != EK_STATUS_OK;
  w->failed += ek_memory_alloc(w->device, bytes, &x.data) != EK_STATUS_OK;
  w->failed += ek_memory_alloc(w->device, bytes, &y.data) != EK_STATUS_OK;
  w->failed += ek_memory_copy(context, x.data, host, bytes) != EK_STATUS_OK;
  args.x = &x;
  args.y = &y;
  for (i = 0; i < kCalls && !w->failed; ++i)
    if (ek_transpose_2d(context, &args) != EK_STATUS_OK) {
      ++w->failed;
      snprintf(w->error, sizeof w->error, "%s", ek_context_error(context));
    }
  w->failed += ek_memory_copy(context, host, y.data, bytes) != EK_STATUS_OK;
  w->failed += ek_context_synchronize(context) != EK_STATUS_OK;
  for (i = 0; i < count; ++i) w->failed += host[i] != (float)(i % rows * kColumns + i / rows);
  ek_memory_free(w->device, x.data);
  ek_memory_free(w->device, y.data);
  ek_context_destroy(context);
  free(host);
  return NULL;
}

static void at_once(ek_device device) {
  Worker workers[kThreads];
  int t;
  memset(workers, 0, sizeof workers);
  for (t = 0; t < kThreads; ++t) {
    workers[t].device = device;
    workers[t].rows = 131 + 202 * t; /* 17 to 198 KB of shared memory */
    CHECK(pthread_create(&workers[t].thread, NULL, transpose, &workers[t]) == 0);
  }
  for (t = 0; t < kThreads; ++t) {
    CHECK(pthread_join(workers[t].thread, NULL) == 0);
    CHECK(workers[t].failed == 0);
    if (workers[t].error[0]) fprintf(stderr, "  %d rows: %s\n", (int)workers[t].rows, workers[t].error);
  }
}

int main(void) {
  const ek_device cpu = {EK_DEVICE_CPU, 0}, gpu = {EK_DEVICE_CUDA, 0};
  int32_t gpus = 0;
  at_once(cpu);
  CHECK_OK(ek_device_count(EK_DEVICE_CUDA, &gpus));
  if (gpus > 0) at_once(gpu);
  return report("test_threads");
}
