/* SPDX-License-Identifier: Apache-2.0
 * einkorn: every kernel a language model needs behind one C ABI.
 *
 * This header: status, dtypes, tensors, devices, memory, streams, events, graphs, contexts and the questions one can
 * ask the dispatcher. The ops themselves are in <einkorn/ops.h>, generated from schema/.
 * Rules that hold for every call: no exception, print, abort or exit crosses the ABI; on an error nothing was launched
 * and no output was written; the caller's current CUDA device is what it was. */
#ifndef EINKORN_EINKORN_H
#define EINKORN_EINKORN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define EK_API __attribute__((visibility("default")))
#else
#define EK_API
#endif

/* ---- version ---------------------------------------------------------------------------------------------------- */

#define EK_VERSION_MAJOR 0
#define EK_VERSION_MINOR 1
#define EK_VERSION_PATCH 0

EK_API uint32_t ek_version(void);       /* major << 16 | minor << 8 | patch of the loaded library */
EK_API const char* ek_build_info(void); /* "einkorn 0.1.0, cuda 13.0 (sm_90a)" or "einkorn 0.1.0, cpu only" */

/* ---- status ----------------------------------------------------------------------------------------------------- */

typedef enum ek_status {
  EK_STATUS_OK = 0,
  EK_STATUS_INVALID_ARGUMENT = 1, /* the message names the op, the argument, what it is and what was expected */
  EK_STATUS_UNSUPPORTED = 2, /* legal, but no row takes it on this device with these flags; the message lists why */
  EK_STATUS_OUT_OF_MEMORY = 3,
  EK_STATUS_WORKSPACE = 4, /* the context's workspace is too small and can't grow now (caller's memory, or capturing) */
  EK_STATUS_CUDA = 5,      /* the CUDA runtime refused; the message has its words */
  EK_STATUS_NOT_FOUND = 6, /* no such op, kernel or device */
  EK_STATUS_INTERNAL = 7
} ek_status;

EK_API const char* ek_status_name(ek_status status); /* "invalid_argument"; never NULL */

/* ---- dtypes ----------------------------------------------------------------------------------------------------- */

/* The four bytes of a DLDataType (code, bits, lanes) read as one little-endian integer, so that dtypes compare with ==
 * and are plain numbers in every language. Codes are DLPack's. */
typedef uint32_t ek_dtype;
#define EK_DTYPE(code, bits) ((ek_dtype)(code) | (ek_dtype)(bits) << 8 | (ek_dtype)1 << 16)

#define EK_DTYPE_BOOL EK_DTYPE(6, 8)
#define EK_DTYPE_U8 EK_DTYPE(1, 8)
#define EK_DTYPE_I8 EK_DTYPE(0, 8)
#define EK_DTYPE_I32 EK_DTYPE(0, 32)
#define EK_DTYPE_I64 EK_DTYPE(0, 64)
#define EK_DTYPE_F64 EK_DTYPE(2, 64)
#define EK_DTYPE_F32 EK_DTYPE(2, 32)
#define EK_DTYPE_F16 EK_DTYPE(2, 16)
#define EK_DTYPE_BF16 EK_DTYPE(4, 16)
#define EK_DTYPE_E4M3 EK_DTYPE(10, 8) /* fp8 e4m3fn: +-448, no infinity */
#define EK_DTYPE_E5M2 EK_DTYPE(12, 8)
#define EK_DTYPE_E8M0 EK_DTYPE(14, 8) /* a power-of-two scale */
#define EK_DTYPE_E2M1 EK_DTYPE(17, 4) /* fp4, two to a byte, low nibble first */
#define EK_DTYPE_I4 EK_DTYPE(0, 4)    /* two to a byte, low nibble first */
#define EK_DTYPE_U4 EK_DTYPE(1, 4)

EK_API const char* ek_dtype_name(ek_dtype dtype); /* "bf16"; "unknown" for a code that is not listed above */

/* ---- tensors ---------------------------------------------------------------------------------------------------- */

enum { EK_DEVICE_CPU = 1, EK_DEVICE_CUDA = 2, EK_DEVICE_CUDA_HOST = 3, EK_DEVICE_CUDA_MANAGED = 13 };

typedef struct ek_device {
  int32_t type; /* EK_DEVICE_* (DLPack's codes) */
  int32_t id;
} ek_device;

/* Field for field a DLTensor: a DLTensor* may be passed where an ek_tensor* is asked for. Strides count elements; NULL
 * strides mean row-major and dense. The library reads descriptors during the call only. */
typedef struct ek_tensor {
  void* data;
  ek_device device;
  int32_t ndim;
  ek_dtype dtype;
  const int64_t* shape;
  const int64_t* strides;
  uint64_t byte_offset;
} ek_tensor;

#define EK_MAX_DIMS 8

/* ---- devices and memory ----------------------------------------------------------------------------------------- */

typedef struct ek_device_info {
  uint32_t struct_size; /* set by the caller to sizeof(ek_device_info) */
  int32_t target;       /* CUDA: compute capability, 90 for 9.0. CPU: x86-64 level 2, 3 or 4 in use; 0 elsewhere */
  int32_t processors;   /* CUDA: SMs. CPU: threads of the pool */
  int32_t reserved;
  uint64_t memory_bytes; /* total */
  uint64_t l2_bytes;     /* 0 where unknown */
  char name[128];
} ek_device_info;

/* 0 CUDA devices is an answer, not an error: no driver, no GPU, or a build without CUDA. */
EK_API ek_status ek_device_count(int32_t device_type, int32_t* count_out);
EK_API ek_status ek_device_query(ek_device device, ek_device_info* info_out);

EK_API ek_status ek_memory_alloc(ek_device device, size_t bytes, void** data_out); /* 256-byte aligned */
EK_API ek_status ek_memory_free(ek_device device, void* data);                     /* NULL is fine */

/* ---- contexts --------------------------------------------------------------------------------------------------- */

/* A device, a stream, a workspace and flags. As many as you like; each is used by one thread at a time. */
typedef struct ek_context ek_context;
typedef void*
    ek_stream; /* cudaStream_t on CUDA (NULL: the default stream); on the CPU work is done when a call returns */

enum {
  EK_FLAG_DETERMINISTIC = 1,   /* only rows that give the same bits every time */
  EK_FLAG_BATCH_INVARIANT = 2, /* only rows whose result for one row of a batch does not depend on the others */
  EK_FLAG_PDL = 4,             /* programmatic dependent launch: a kernel may start while the one before it drains */
  EK_FLAG_TF32 = 8             /* f32 matrix products may round their inputs to TF32 */
};

EK_API ek_status ek_context_create(ek_device device, ek_context** context_out);
EK_API void ek_context_destroy(ek_context* context); /* NULL is fine; waits for its work */

/* A context that moves to another stream orders the new stream after the old one wherever they share workspace. */
EK_API ek_status ek_context_set_stream(ek_context* context, ek_stream stream);
EK_API ek_status ek_context_set_flags(ek_context* context, uint32_t flags);

/* Use the caller's memory as workspace (256-byte aligned; it stays the caller's), or NULL to own one again. */
EK_API ek_status ek_context_set_workspace(ek_context* context, void* data, size_t bytes);
/* Grow the owned workspace now, so that no later call has to (during capture none can). */
EK_API ek_status ek_context_reserve(ek_context* context, size_t bytes);
EK_API ek_status ek_context_synchronize(ek_context* context);

/* The last error of this context; "" after a success. ek_last_error() is for calls that have no context, per thread. */
EK_API const char* ek_context_error(const ek_context* context);
EK_API const char* ek_last_error(void);

/* Asynchronous on the context's stream; host memory should be pinned to be so in fact. */
EK_API ek_status ek_memory_copy(ek_context* context, void* dst, const void* src, size_t bytes);
EK_API ek_status ek_memory_fill(ek_context* context, void* dst, uint8_t value, size_t bytes);

/* ---- streams, events, graphs: for callers with no CUDA runtime of their own --------------------------------------- */

EK_API ek_status ek_stream_create(ek_device device, ek_stream* stream_out);
EK_API ek_status ek_stream_destroy(ek_device device, ek_stream stream);
EK_API ek_status ek_stream_synchronize(ek_device device, ek_stream stream);

typedef struct ek_event ek_event;
EK_API ek_status ek_event_create(ek_device device, ek_event** event_out);
EK_API void ek_event_destroy(ek_event* event);
EK_API ek_status ek_event_record(ek_event* event, ek_context* context);
EK_API ek_status ek_event_wait(ek_event* event,
                               ek_context* context); /* later work of the context waits for the event */
EK_API ek_status ek_event_synchronize(ek_event* event);
EK_API ek_status ek_event_elapsed(const ek_event* start, const ek_event* stop, float* milliseconds_out);

/* Between begin and end, calls on the context are recorded, not run. CPU: EK_STATUS_UNSUPPORTED. Attributes of the
 * args structs are frozen into the graph; tensor contents are read at each launch. */
typedef struct ek_graph ek_graph;
EK_API ek_status ek_graph_begin(ek_context* context);
EK_API ek_status ek_graph_end(ek_context* context, ek_graph** graph_out);
EK_API ek_status ek_graph_launch(ek_graph* graph, ek_context* context);
EK_API void ek_graph_destroy(ek_graph* graph);

/* ---- dispatch --------------------------------------------------------------------------------------------------- */

/* The library routes each call to one kernel row. These say which rows there are and why one was taken. */
EK_API int32_t ek_op_count(void);
EK_API const char* ek_op_name(int32_t index);   /* NULL past the end */
EK_API int32_t ek_kernel_count(const char* op); /* rows of all devices; 0 for an unknown op */

typedef struct ek_kernel_info {
  uint32_t struct_size; /* set by the caller */
  int32_t device_type;  /* EK_DEVICE_CPU or EK_DEVICE_CUDA */
  int32_t target;       /* the least ek_device_info.target that can run it */
  uint32_t flags;       /* EK_FLAG_DETERMINISTIC, _BATCH_INVARIANT: what the row promises; _TF32: it needs that flag */
  const char* name;
} ek_kernel_info;
EK_API ek_status ek_kernel_query(const char* op, int32_t index, ek_kernel_info* info_out);

/* Calls of `op` on this context run this row or fail with its reason; kernel NULL: free choice again. The environment
 * variable EINKORN_KERNEL=<row> does the same for every context that forces nothing else for that row's op. */
EK_API ek_status ek_kernel_force(ek_context* context, const char* op, const char* kernel);
EK_API const char* ek_kernel_last(const ek_context* context); /* the row that ran last; "" before the first */

/* Replace the measured routing table by `text` (docs/dispatch.md has the format); NULL: the built-in one. */
EK_API ek_status ek_table_set(ek_context* context, const char* text);

/* Write, as text, the row that would run and every refusal with its reason. `args` is the op's args struct. Always
 * NUL-terminates; *needed_out (may be NULL) gets the full length including the NUL. */
EK_API ek_status ek_explain(ek_context* context, const char* op, const void* args, char* text_out, size_t text_bytes,
                            size_t* needed_out);

#ifdef __cplusplus
}
#endif
#endif /* EINKORN_EINKORN_H */
