/* SPDX-License-Identifier: Apache-2.0
 * Every function of einkorn.h with NULL and with wrong arguments: the right status, a text that names the argument, and
 * outputs that stay as they were. On the CPU, and on a GPU if there is one. */
#include <einkorn/einkorn.h>

#include "check.h"

static int untouched_memory;
#define UNTOUCHED ((void*)&untouched_memory)

static const ek_device cpu = {EK_DEVICE_CPU, 0};
static const ek_device no_type = {77, 0};

static void test_names(void) {
  int i;
  const char* text = NULL;
  for (i = -1; i < 10; ++i) CHECK(ek_status_name((ek_status)i) && *ek_status_name((ek_status)i));
  CHECK(!strcmp(ek_status_name(EK_STATUS_INVALID_ARGUMENT), "invalid_argument"));
  CHECK(!strcmp(ek_status_name((ek_status)100), "unknown"));
  CHECK(!strcmp(ek_dtype_name(EK_DTYPE_BF16), "bf16") && !strcmp(ek_dtype_name(EK_DTYPE_U4), "u4"));
  CHECK(!strcmp(ek_dtype_name(0), "unknown"));
  CHECK(ek_op_count() > 0);
  for (i = 0; i < ek_op_count(); ++i) {
    text = ek_op_name(i);
    CHECK(text && ek_kernel_count(text) > 0);
  }
  CHECK(!ek_op_name(-1) && !ek_op_name(ek_op_count()));
  CHECK(ek_kernel_count(NULL) == 0 && ek_kernel_count("no_such_op") == 0);
}

static void test_kernel_query(void) {
  const char* op = ek_op_name(0);
  ek_kernel_info info;
  int i;
  memset(&info, 0x5a, sizeof info);
  info.struct_size = sizeof info;
  CHECK_FAILS(ek_kernel_query(NULL, 0, &info), EK_STATUS_INVALID_ARGUMENT, ek_last_error(), "op is NULL");
  CHECK_FAILS(ek_kernel_query(op, 0, NULL), EK_STATUS_INVALID_ARGUMENT, ek_last_error(), "info_out is NULL");
  CHECK_FAILS(ek_kernel_query("no_such_op", 0, &info), EK_STATUS_NOT_FOUND, ek_last_error(), "no_such_op");
  CHECK_FAILS(ek_kernel_query(op, -1, &info), EK_STATUS_NOT_FOUND, ek_last_error(), "no row -1");
  CHECK_FAILS(ek_kernel_query(op, ek_kernel_count(op), &info), EK_STATUS_NOT_FOUND, ek_last_error(), op);
  CHECK(info.target == 0x5a5a5a5a);
  info.struct_size = 0;
  CHECK_FAILS(ek_kernel_query(op, 0, &info), EK_STATUS_INVALID_ARGUMENT, ek_last_error(), "struct_size is 0");
  info.struct_size = sizeof info;
  for (i = 0; i < ek_kernel_count(op); ++i) {
    CHECK_OK(ek_kernel_query(op, i, &info));
    CHECK(!strncmp(info.name, op, strlen(op)));
    CHECK(info.device_type == EK_DEVICE_CPU || info.device_type == EK_DEVICE_CUDA);
  }
  CHECK(!strcmp(ek_last_error(), ""));
}

static void test_devices(void) {
  const ek_device no_cpu = {EK_DEVICE_CPU, 1}, no_gpu = {EK_DEVICE_CUDA, 99}, negative = {EK_DEVICE_CPU, -1};
  int32_t count = 42;
  ek_device_info info;
  void* data = UNTOUCHED;
  memset(&info, 0x5a, sizeof info);
  info.struct_size = sizeof info;
  CHECK_FAILS(ek_device_count(EK_DEVICE_CPU, NULL), EK_STATUS_INVALID_ARGUMENT, ek_last_error(), "count_out is NULL");
  CHECK_FAILS(ek_device_count(77, &count), EK_STATUS_INVALID_ARGUMENT, ek_last_error(), "device type is 77");
  CHECK(count == 42);
  CHECK_OK(ek_device_count(EK_DEVICE_CPU, &count));
  CHECK(count == 1);

  CHECK_FAILS(ek_device_query(cpu, NULL), EK_STATUS_INVALID_ARGUMENT, ek_last_error(), "info_out is NULL");
  CHECK_FAILS(ek_device_query(no_type, &info), EK_STATUS_INVALID_ARGUMENT, ek_last_error(), "device type is 77");
  CHECK_FAILS(ek_device_query(no_cpu, &info), EK_STATUS_NOT_FOUND, ek_last_error(), "no device cpu:1");
  CHECK_FAILS(ek_device_query(negative, &info), EK_STATUS_NOT_FOUND, ek_last_error(), "no device cpu:-1");
  CHECK_FAILS(ek_device_query(no_gpu, &info), EK_STATUS_NOT_FOUND, ek_last_error(), "no device cuda:99");
  CHECK(info.target == 0x5a5a5a5a);
  CHECK_OK(ek_device_query(cpu, &info));
  CHECK(info.processors >= 1 && info.memory_bytes > 0 && info.name[0] && info.reserved == 0);

  CHECK_FAILS(ek_memory_alloc(cpu, 16, NULL), EK_STATUS_INVALID_ARGUMENT, ek_last_error(), "data_out is NULL");
  CHECK_FAILS(ek_memory_alloc(no_type, 16, &data), EK_STATUS_INVALID_ARGUMENT, ek_last_error(), "device type is 77");
  CHECK_FAILS(ek_memory_alloc(no_gpu, 16, &data), EK_STATUS_NOT_FOUND, ek_last_error(), "no device cuda:99");
  CHECK_FAILS(ek_memory_alloc(cpu, (size_t)-1, &data), EK_STATUS_OUT_OF_MEMORY, ek_last_error(), "cpu:0");
  CHECK(data == UNTOUCHED);
  CHECK_FAILS(ek_memory_free(no_type, NULL), EK_STATUS_INVALID_ARGUMENT, ek_last_error(), "device type is 77");
  CHECK_FAILS(ek_memory_free(no_cpu, NULL), EK_STATUS_NOT_FOUND, ek_last_error(), "cpu:1");
}

static void test_context_create(void) {
  const ek_device no_gpu = {EK_DEVICE_CUDA, 99}, pinned = {EK_DEVICE_CUDA_HOST, 0};
  ek_context* context = UNTOUCHED;
  CHECK_FAILS(ek_context_create(cpu, NULL), EK_STATUS_INVALID_ARGUMENT, ek_last_error(), "context_out is NULL");
  CHECK_FAILS(ek_context_create(no_type, &context), EK_STATUS_INVALID_ARGUMENT, ek_last_error(), "device type is 77");
  CHECK_FAILS(ek_context_create(pinned, &context), EK_STATUS_INVALID_ARGUMENT, ek_last_error(), "device type is 3");
  CHECK_FAILS(ek_context_create(no_gpu, &context), EK_STATUS_NOT_FOUND, ek_last_error(), "no device cuda:99");
  CHECK(context == UNTOUCHED);
  ek_context_destroy(NULL);
}

static void test_null_context(void) {
  int args = 0;
  char text[8] = "keep";
  size_t needed = 42;
  ek_graph* graph = UNTOUCHED;
#define NO_CONTEXT(call) CHECK_FAILS(call, EK_STATUS_INVALID_ARGUMENT, ek_last_error(), "context is NULL")
  NO_CONTEXT(ek_context_set_stream(NULL, NULL));
  NO_CONTEXT(ek_context_set_flags(NULL, 0));
  NO_CONTEXT(ek_context_set_workspace(NULL, NULL, 0));
  NO_CONTEXT(ek_context_reserve(NULL, 1));
  NO_CONTEXT(ek_context_synchronize(NULL));
  NO_CONTEXT(ek_memory_copy(NULL, text, text, 1));
  NO_CONTEXT(ek_memory_fill(NULL, text, 0, 1));
  NO_CONTEXT(ek_event_record(NULL, NULL));
  NO_CONTEXT(ek_event_wait(NULL, NULL));
  NO_CONTEXT(ek_graph_begin(NULL));
  NO_CONTEXT(ek_graph_end(NULL, &graph));
  NO_CONTEXT(ek_graph_launch(NULL, NULL));
  NO_CONTEXT(ek_kernel_force(NULL, ek_op_name(0), NULL));
  NO_CONTEXT(ek_table_set(NULL, NULL));
  NO_CONTEXT(ek_explain(NULL, ek_op_name(0), &args, text, sizeof text, &needed));
  CHECK(!strcmp(ek_kernel_last(NULL), ""));
  CHECK(ek_context_error(NULL) && strstr(ek_context_error(NULL), "context is NULL"));
  CHECK(!strcmp(text, "keep") && needed == 42 && graph == UNTOUCHED);
}

static void test_context(ek_device device) {
  const char* op = ek_op_name(0);
  ek_context* context = NULL;
  ek_stream stream = NULL;
  void* memory = NULL;
  char text[64] = "keep";
  size_t needed = 42;
  uint8_t bytes[4] = {1, 2, 3, 4};
  if (ek_context_create(device, &context)) {
    fprintf(stderr, "ek_context_create: %s\n", ek_last_error());
    ++failures;
    return;
  }
  CHECK(!strcmp(ek_context_error(context), "") && !strcmp(ek_kernel_last(context), ""));
#define FAILS(call, part) CHECK_FAILS(call, EK_STATUS_INVALID_ARGUMENT, ek_context_error(context), part)
#define NOT_FOUND(call, part) CHECK_FAILS(call, EK_STATUS_NOT_FOUND, ek_context_error(context), part)
  FAILS(ek_context_set_flags(context, 0x80000001u), "0x80000000");
  CHECK_OK(ek_context_set_flags(context, EK_FLAG_DETERMINISTIC));
  CHECK(!strcmp(ek_context_error(context), ""));
  CHECK_OK(ek_context_set_flags(context, 0));

  CHECK_OK(ek_memory_alloc(device, 1024, &memory));
  CHECK(((uintptr_t)memory & 255) == 0);
  FAILS(ek_context_set_workspace(context, NULL, 16), "data is NULL");
  FAILS(ek_context_set_workspace(context, (char*)memory + 16, 16), "multiple of 256");
  CHECK_OK(ek_context_set_workspace(context, memory, 512));
  CHECK_FAILS(ek_context_reserve(context, 513), EK_STATUS_WORKSPACE, ek_context_error(context), "513 bytes");
  CHECK_OK(ek_context_reserve(context, 512));
  CHECK_OK(ek_context_set_workspace(context, NULL, 0));
  CHECK_FAILS(ek_context_reserve(context, (size_t)-1), EK_STATUS_OUT_OF_MEMORY, ek_context_error(context), "reserve");
  CHECK_OK(ek_context_reserve(context, 4096));

  FAILS(ek_memory_copy(context, NULL, memory, 1), "dst is NULL");
  FAILS(ek_memory_copy(context, memory, NULL, 1), "src is NULL");
  FAILS(ek_memory_fill(context, NULL, 0, 1), "dst is NULL");
  CHECK_OK(ek_memory_copy(context, NULL, NULL, 0));
  CHECK_OK(ek_memory_fill(context, NULL, 0, 0));
  CHECK_OK(ek_memory_fill(context, memory, 7, 1024));
  CHECK_OK(ek_memory_copy(context, memory, bytes, 2));
  CHECK_OK(ek_memory_copy(context, bytes, memory, 4));
  CHECK_OK(ek_context_synchronize(context));
  CHECK(bytes[0] == 1 && bytes[1] == 2 && bytes[2] == 7 && bytes[3] == 7);

  FAILS(ek_kernel_force(context, NULL, "row"), "op is NULL");
  NOT_FOUND(ek_kernel_force(context, "no_such_op", "row"), "no_such_op");
  NOT_FOUND(ek_kernel_force(context, op, "no_such_row"), "no_such_row");
  CHECK_OK(ek_kernel_force(context, op, NULL));
  FAILS(ek_table_set(context, "\nnonsense"), "line 2");
  NOT_FOUND(ek_explain(context, "no_such_op", bytes, text, sizeof text, &needed), "no_such_op");
  FAILS(ek_explain(context, NULL, bytes, text, sizeof text, &needed), "op is NULL");
  FAILS(ek_explain(context, op, NULL, text, sizeof text, &needed), "args is NULL");
  FAILS(ek_explain(context, op, bytes, NULL, 8, &needed), "text_out is NULL");
  CHECK(!strcmp(text, "keep") && needed == 42);
  CHECK_OK(ek_table_set(context, ""));
  CHECK_OK(ek_table_set(context, NULL));

  CHECK_OK(ek_stream_create(device, &stream));
  CHECK(stream);
  CHECK_OK(ek_context_set_stream(context, stream));
  CHECK_OK(ek_stream_synchronize(device, stream));
  CHECK_OK(ek_stream_synchronize(device, NULL));
  CHECK_OK(ek_context_set_stream(context, NULL));
  CHECK_OK(ek_stream_destroy(device, stream));
  CHECK_OK(ek_memory_free(device, memory));
  CHECK_OK(ek_memory_free(device, NULL));
  CHECK_OK(ek_memory_alloc(device, 0, &memory));
  CHECK_OK(ek_memory_free(device, memory));
  ek_context_destroy(context);
}

static void test_streams(ek_device device) {
  ek_stream stream = UNTOUCHED;
  CHECK_FAILS(ek_stream_create(device, NULL), EK_STATUS_INVALID_ARGUMENT, ek_last_error(), "stream_out is NULL");
  CHECK_FAILS(ek_stream_create(no_type, &stream), EK_STATUS_INVALID_ARGUMENT, ek_last_error(), "device type is 77");
  CHECK(stream == UNTOUCHED);
  CHECK_FAILS(ek_stream_destroy(device, NULL), EK_STATUS_INVALID_ARGUMENT, ek_last_error(), "stream is NULL");
  CHECK_FAILS(ek_stream_destroy(no_type, stream), EK_STATUS_INVALID_ARGUMENT, ek_last_error(), "device type is 77");
  CHECK_FAILS(ek_stream_synchronize(no_type, NULL), EK_STATUS_INVALID_ARGUMENT, ek_last_error(), "device type is 77");
}

static void test_events(ek_device device) {
  ek_context* context = NULL;
  ek_event *start = UNTOUCHED, *stop = NULL;
  float milliseconds = -1;
  CHECK_FAILS(ek_event_create(device, NULL), EK_STATUS_INVALID_ARGUMENT, ek_last_error(), "event_out is NULL");
  CHECK_FAILS(ek_event_create(no_type, &start), EK_STATUS_INVALID_ARGUMENT, ek_last_error(), "device type is 77");
  CHECK(start == UNTOUCHED);
  CHECK_FAILS(ek_event_synchronize(NULL), EK_STATUS_INVALID_ARGUMENT, ek_last_error(), "event is NULL");
  ek_event_destroy(NULL);

  CHECK_OK(ek_context_create(device, &context));
  CHECK_OK(ek_event_create(device, &start));
  CHECK_OK(ek_event_create(device, &stop));
  FAILS(ek_event_record(NULL, context), "event is NULL");
  FAILS(ek_event_wait(NULL, context), "event is NULL");
  CHECK_FAILS(ek_event_elapsed(NULL, stop, &milliseconds), EK_STATUS_INVALID_ARGUMENT, ek_last_error(),
              "start is NULL");
  CHECK_FAILS(ek_event_elapsed(start, NULL, &milliseconds), EK_STATUS_INVALID_ARGUMENT, ek_last_error(),
              "stop is NULL");
  CHECK_FAILS(ek_event_elapsed(start, stop, NULL), EK_STATUS_INVALID_ARGUMENT, ek_last_error(), "milliseconds_out");
  CHECK_FAILS(ek_event_elapsed(start, stop, &milliseconds), EK_STATUS_INVALID_ARGUMENT, ek_last_error(),
              "start was never recorded");
  /* An event that was never recorded holds nobody up. */
  CHECK_OK(ek_event_wait(start, context));
  CHECK_OK(ek_event_synchronize(start));
  CHECK_OK(ek_event_record(start, context));
  CHECK_FAILS(ek_event_elapsed(start, stop, &milliseconds), EK_STATUS_INVALID_ARGUMENT, ek_last_error(),
              "stop was never recorded");
  CHECK(milliseconds == -1);
  CHECK_OK(ek_event_record(stop, context));
  CHECK_OK(ek_event_wait(stop, context));
  CHECK_OK(ek_event_synchronize(stop));
  CHECK_OK(ek_event_elapsed(start, stop, &milliseconds));
  CHECK(milliseconds >= 0);
  ek_event_destroy(start);
  ek_event_destroy(stop);
  ek_context_destroy(context);
}

static void test_graphs_cpu(void) {
  ek_context* context = NULL;
  ek_graph* graph = UNTOUCHED;
  CHECK_OK(ek_context_create(cpu, &context));
  CHECK_FAILS(ek_graph_begin(context), EK_STATUS_UNSUPPORTED, ek_context_error(context), "no graphs on cpu");
  FAILS(ek_graph_end(context, NULL), "graph_out is NULL");
  CHECK_FAILS(ek_graph_end(context, &graph), EK_STATUS_UNSUPPORTED, ek_context_error(context), "no graphs on cpu");
  FAILS(ek_graph_launch(NULL, context), "graph is NULL");
  CHECK(graph == UNTOUCHED);
  ek_graph_destroy(NULL);
  ek_context_destroy(context);
}

/* A graph of one fill: recorded, not run; then run as often as it is launched. */
static void test_graphs_cuda(ek_device device) {
  ek_context *context = NULL, *on_cpu = NULL;
  ek_stream stream = NULL;
  ek_graph* graph = UNTOUCHED;
  ek_event *there = NULL, *here = NULL;
  void* memory = NULL;
  uint8_t byte = 0;
  float milliseconds = 0;
  CHECK_OK(ek_context_create(device, &context));
  CHECK_OK(ek_context_create(cpu, &on_cpu));
  CHECK_OK(ek_stream_create(device, &stream));
  CHECK_OK(ek_memory_alloc(device, 16, &memory));
  FAILS(ek_graph_begin(context), "default stream can't be captured");
  FAILS(ek_graph_end(context, &graph), "no capture was begun");
  CHECK_OK(ek_context_set_stream(context, stream));
  CHECK_OK(ek_memory_fill(context, memory, 1, 16));
  CHECK_OK(ek_graph_begin(context));
  FAILS(ek_graph_begin(context), "capturing already");
  FAILS(ek_context_synchronize(context), "capturing");
  FAILS(ek_context_set_stream(context, NULL), "capturing");
  CHECK_FAILS(ek_context_reserve(context, 1 << 24), EK_STATUS_WORKSPACE, ek_context_error(context), "captured");
  CHECK_OK(ek_memory_fill(context, memory, 2, 16));
  FAILS(ek_graph_end(context, NULL), "graph_out is NULL");
  CHECK(graph == UNTOUCHED);
  CHECK_OK(ek_graph_end(context, &graph));
  CHECK_OK(ek_memory_copy(context, &byte, memory, 1));
  CHECK_OK(ek_context_synchronize(context));
  CHECK(byte == 1);
  CHECK_FAILS(ek_graph_launch(graph, on_cpu), EK_STATUS_INVALID_ARGUMENT, ek_context_error(on_cpu),
              "graph is of cuda:0");
  CHECK_OK(ek_graph_launch(graph, context));
  CHECK_OK(ek_memory_copy(context, &byte, memory, 1));
  CHECK_OK(ek_context_synchronize(context));
  CHECK(byte == 2);
  ek_graph_destroy(graph);

  /* A context that is destroyed in the middle of a capture takes it along. */
  CHECK_OK(ek_graph_begin(context));
  CHECK_OK(ek_memory_fill(context, memory, 3, 16));
  ek_context_destroy(context);
  CHECK_OK(ek_stream_synchronize(device, stream));
  CHECK_OK(ek_context_create(device, &context));

  /* Events of one kind of device on the other. */
  CHECK_OK(ek_event_create(device, &there));
  CHECK_OK(ek_event_create(cpu, &here));
  CHECK_FAILS(ek_event_record(there, on_cpu), EK_STATUS_INVALID_ARGUMENT, ek_context_error(on_cpu),
              "event is of cuda:0");
  CHECK_OK(ek_event_record(there, context));
  CHECK_OK(ek_event_record(here, on_cpu));
  CHECK_OK(ek_event_wait(there, on_cpu));
  CHECK_OK(ek_event_wait(here, context));
  CHECK_FAILS(ek_event_elapsed(here, there, &milliseconds), EK_STATUS_INVALID_ARGUMENT, ek_last_error(),
              "stop of cuda:0");
  ek_event_destroy(there);
  ek_event_destroy(here);

  CHECK_OK(ek_memory_free(device, memory));
  ek_context_destroy(context);
  ek_context_destroy(on_cpu);
  CHECK_OK(ek_stream_destroy(device, stream));
}

/* Pinned and managed memory: the host can write it, and the device's context can copy it. */
static void test_host_memory_cuda(ek_device device) {
  const ek_device kinds[2] = {{EK_DEVICE_CUDA_HOST, 0}, {EK_DEVICE_CUDA_MANAGED, 0}};
  ek_context* context = NULL;
  int i;
  CHECK_OK(ek_context_create(device, &context));
  for (i = 0; i < 2; ++i) {
    void *host = NULL, *memory = NULL;
    CHECK_OK(ek_memory_alloc(kinds[i], 4096, &host));
    CHECK_OK(ek_memory_alloc(device, 4096, &memory));
    memset(host, 5 + i, 4096);
    CHECK_OK(ek_memory_copy(context, memory, host, 4096));
    CHECK_OK(ek_context_synchronize(context));
    memset(host, 0, 4096);
    CHECK_OK(ek_memory_copy(context, host, memory, 4096));
    CHECK_OK(ek_context_synchronize(context));
    CHECK(((uint8_t*)host)[0] == 5 + i && ((uint8_t*)host)[4095] == 5 + i);
    CHECK_OK(ek_memory_free(kinds[i], host));
    CHECK_OK(ek_memory_free(device, memory));
  }
  ek_context_destroy(context);
}

/* An older caller has a shorter struct: the fields it knows are filled, nothing behind them is written. A newer one has
 * a longer struct: what this library does not know reads as zero. */
static void test_struct_sizes(void) {
  ek_device_info full, old;
  ek_kernel_info kernel;
  struct {
    ek_device_info known;
    uint64_t added[4];
  } newer;
  const size_t known = offsetof(ek_device_info, l2_bytes);
  full.struct_size = sizeof full;
  CHECK_OK(ek_device_query(cpu, &full));
  CHECK(full.struct_size == sizeof full);

  memset(&old, 0x5a, sizeof old);
  old.struct_size = (uint32_t)known;
  CHECK_OK(ek_device_query(cpu, &old));
  CHECK(old.struct_size == known && old.target == full.target && old.memory_bytes == full.memory_bytes);
  CHECK(old.l2_bytes == 0x5a5a5a5a5a5a5a5au && old.name[0] == 0x5a);

  memset(&newer, 0x5a, sizeof newer);
  newer.known.struct_size = sizeof newer;
  CHECK_OK(ek_device_query(cpu, &newer.known));
  CHECK(newer.known.struct_size == sizeof newer && !strcmp(newer.known.name, full.name));
  CHECK(newer.added[0] == 0 && newer.added[3] == 0);

  memset(&kernel, 0x5a, sizeof kernel);
  kernel.struct_size = offsetof(ek_kernel_info, flags);
  CHECK_OK(ek_kernel_query(ek_op_name(0), 0, &kernel));
  CHECK(kernel.device_type == EK_DEVICE_CPU || kernel.device_type == EK_DEVICE_CUDA);
  CHECK(kernel.flags == 0x5a5a5a5a);

  full.struct_size = 4;
  CHECK_FAILS(ek_device_query(cpu, &full), EK_STATUS_INVALID_ARGUMENT, ek_last_error(), "struct_size is 4");
  full.struct_size = 0xcccccccc;
  CHECK_FAILS(ek_device_query(cpu, &full), EK_STATUS_INVALID_ARGUMENT, ek_last_error(), "struct_size is 3435973836");
}

int main(void) {
  const ek_device gpu = {EK_DEVICE_CUDA, 0};
  int32_t gpus = 0;
  test_names();
  test_kernel_query();
  test_devices();
  test_context_create();
  test_null_context();
  test_context(cpu);
  test_streams(cpu);
  test_events(cpu);
  test_graphs_cpu();
  test_struct_sizes();
  CHECK_OK(ek_device_count(EK_DEVICE_CUDA, &gpus));
  if (gpus > 0) {
    test_context(gpu);
    test_streams(gpu);
    test_events(gpu);
    test_graphs_cuda(gpu);
    test_host_memory_cuda(gpu);
  } else {
    ek_context* context = UNTOUCHED;
    CHECK_FAILS(ek_context_create(gpu, &context), EK_STATUS_NOT_FOUND, ek_last_error(), "no device cuda:0");
    CHECK(context == UNTOUCHED);
  }
  return report(gpus > 0 ? "test_runtime_errors, with a GPU" : "test_runtime_errors, no GPU");
}
