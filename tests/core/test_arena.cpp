// SPDX-License-Identifier: Apache-2.0
// The workspace of a context: owned and growing, or lent and fixed; during a capture; and the order of streams.
#include <cstring>

#include "check.h"
#include "fake_ops.h"

using fake::g_last;
using fake::kToy;
using fake::make_cpu;
using fake::make_gpu;
using fake::ToyArgs;

namespace {

ToyArgs rows(int64_t n) {
  ToyArgs args;
  args.rows = n;
  return args;
}

void test_growth() {
  auto c = make_cpu(2);  // toy_cpu_v2 asks for 4 * rows bytes
  CHECK_EQ(c->workspace_bytes, size_t{0});
  CHECK_EQ(ek::dispatch(c.get(), kToy, rows(1)), EK_STATUS_OK);
  const size_t first = c->workspace_bytes;
  void* const first_block = g_last.workspace;
  CHECK(first >= 4 && first_block);
  memset(first_block, 1, first);

  // Within what is there nothing moves.
  CHECK_EQ(ek::dispatch(c.get(), kToy, rows(static_cast<int64_t>(first / 4))), EK_STATUS_OK);
  CHECK(g_last.workspace == first_block);

  // One byte more at least doubles it; the old block stays readable for graphs that point to it.
  CHECK_EQ(ek::dispatch(c.get(), kToy, rows(static_cast<int64_t>(first / 4 + 1))), EK_STATUS_OK);
  CHECK(g_last.workspace != first_block);
  CHECK_EQ(c->workspace_bytes, 2 * first);
  CHECK_EQ(c->retired.size(), size_t{1});
  CHECK_EQ(static_cast<char*>(first_block)[first - 1], 1);
  memset(g_last.workspace, 2, 2 * first);

  CHECK_EQ(ek_context_reserve(c.get(), 100 * first), EK_STATUS_OK);
  CHECK_EQ(c->workspace_bytes, 100 * first);
  CHECK_EQ(ek_context_reserve(c.get(), 0), EK_STATUS_OK);
  CHECK_EQ(c->workspace_bytes, 100 * first);
  CHECK_EQ(c->retired.size(), size_t{2});
}

void test_no_memory() {
  auto c = make_cpu(2);
  CHECK_EQ(ek_context_reserve(c.get(), 4096), EK_STATUS_OK);
  const size_t before = c->workspace_bytes;
  CHECK_EQ(ek_context_reserve(c.get(), SIZE_MAX - 10), EK_STATUS_OUT_OF_MEMORY);
  CHECK_CONTAINS(ek_context_error(c.get()), "ek_context_reserve: no memory for 18446744073709551605 bytes");
  CHECK_EQ(ek_context_reserve(c.get(), SIZE_MAX / 2), EK_STATUS_OUT_OF_MEMORY);
  CHECK_EQ(c->workspace_bytes, before);
  CHECK_EQ(ek::dispatch(c.get(), kToy, rows(1)), EK_STATUS_OK);
}

void test_lent() {
  auto c = make_cpu(2);
  CHECK_EQ(ek::dispatch(c.get(), kToy, rows(1)), EK_STATUS_OK);
  void* const owned = g_last.workspace;
  const int runs = g_last.count;
  alignas(256) static char memory[512];
  CHECK_EQ(ek_context_set_workspace(c.get(), memory, 400), EK_STATUS_OK);
  CHECK_EQ(ek::dispatch(c.get(), kToy, rows(100)), EK_STATUS_OK);
  CHECK(g_last.workspace == memory);
  // Too small by any amount is an error, before anything runs.
  CHECK_EQ(ek::dispatch(c.get(), kToy, rows(101)), EK_STATUS_WORKSPACE);
  CHECK_TEXT(ek_context_error(c.get()), "toy_cpu_v2: needs 404 bytes of workspace, ek_context_set_workspace gave 400");
  CHECK_EQ(g_last.count, runs + 1);
  CHECK_EQ(ek_context_reserve(c.get(), 401), EK_STATUS_WORKSPACE);
  CHECK_EQ(ek_context_reserve(c.get(), 400), EK_STATUS_OK);

  CHECK_EQ(ek_context_set_workspace(c.get(), memory + 1, 400), EK_STATUS_INVALID_ARGUMENT);
  CHECK_EQ(ek_context_set_workspace(c.get(), nullptr, 400), EK_STATUS_INVALID_ARGUMENT);
  CHECK(c->workspace == memory);

  // No bytes are a workspace too; then an owned one again, the same as before.
  CHECK_EQ(ek_context_set_workspace(c.get(), memory, 0), EK_STATUS_OK);
  CHECK_EQ(ek::dispatch(c.get(), kToy, rows(1)), EK_STATUS_WORKSPACE);
  CHECK_EQ(ek_context_set_workspace(c.get(), nullptr, 0), EK_STATUS_OK);
  CHECK_EQ(ek::dispatch(c.get(), kToy, rows(101)), EK_STATUS_OK);
  CHECK(g_last.workspace == owned);
}

// ---- a backend whose streams can be captured, to see what a context does with it ----------------------------------

char g_log[256];
ek_stream g_captured = nullptr;
int g_streams[3];

ek_status capturing(ek_context*, int, ek_stream stream, bool* out) {
  *out = stream && stream == g_captured;
  return EK_STATUS_OK;
}
void log_stream(const char* what, ek_stream stream) {
  const size_t used = strlen(g_log);
  const int number = stream ? static_cast<int>(static_cast<int*>(stream) - g_streams) : -1;
  snprintf(g_log + used, sizeof(g_log) - used, "%s %d;", what, number);
}
ek_status event_record(ek_context*, int, void*, ek_stream stream) {
  log_stream("record", stream);
  return EK_STATUS_OK;
}
ek_status event_wait(ek_context*, int, void*, ek_stream stream) {
  log_stream("wait", stream);
  return EK_STATUS_OK;
}

struct Recorder {
  ek::Backend backend = ek::cpu_backend();
  fake::Context context = make_gpu(75);  // toy_cuda asks for dim bytes
  Recorder() {
    backend.stream_capturing = capturing;
    backend.event_record = event_record;
    backend.event_wait = event_wait;
    context->backend = &backend;
    context->is_cuda = true;
    g_log[0] = '\0';
    g_captured = nullptr;
  }
  ~Recorder() { context.reset(); }  // while its backend still exists
};

void test_capture() {
  Recorder r;
  ek_context* c = r.context.get();
  CHECK_EQ(ek_context_set_stream(c, &g_streams[0]), EK_STATUS_OK);
  g_captured = &g_streams[0];
  CHECK_EQ(ek::dispatch(c, kToy, rows(1)), EK_STATUS_WORKSPACE);
  CHECK_CONTAINS(ek_context_error(c), "toy_cuda: needs 64 bytes of workspace, has 0, and can't grow it");
  CHECK_EQ(ek_context_reserve(c, 64), EK_STATUS_WORKSPACE);
  g_captured = nullptr;
  CHECK_EQ(ek_context_reserve(c, 64), EK_STATUS_OK);
  g_captured = &g_streams[0];
  CHECK_EQ(ek::dispatch(c, kToy, rows(1)), EK_STATUS_OK);
}

void test_stream_order() {
  Recorder r;
  ek_context* c = r.context.get();
  // Nothing was used yet: nothing to order.
  CHECK_EQ(ek_context_set_stream(c, &g_streams[0]), EK_STATUS_OK);
  CHECK_TEXT(g_log, "");
  CHECK_EQ(ek::dispatch(c, kToy, rows(1)), EK_STATUS_OK);
  CHECK(g_last.stream == &g_streams[0]);
  CHECK_EQ(ek_context_set_stream(c, &g_streams[0]), EK_STATUS_OK);
  CHECK_TEXT(g_log, "");
  CHECK_EQ(ek_context_set_stream(c, &g_streams[1]), EK_STATUS_OK);
  CHECK_TEXT(g_log, "record 0;wait 1;");
  // Not used on stream 1: stream 2 is not held up by it.
  g_log[0] = '\0';
  CHECK_EQ(ek_context_set_stream(c, &g_streams[2]), EK_STATUS_OK);
  CHECK_TEXT(g_log, "");
  // A captured stream takes no event from outside; leaving it with its capture over orders again.
  CHECK_EQ(ek::dispatch(c, kToy, rows(1)), EK_STATUS_OK);
  g_captured = &g_streams[0];
  CHECK_EQ(ek_context_set_stream(c, &g_streams[0]), EK_STATUS_OK);
  CHECK_TEXT(g_log, "");
  g_captured = nullptr;
  CHECK_EQ(ek_context_set_stream(c, nullptr), EK_STATUS_OK);
  CHECK_TEXT(g_log, "record 0;wait -1;");
}

void test_fork_error() {
  Recorder r;
  ek_context* c = r.context.get();
  c->generation = ek::g_generation + 1;
  CHECK_EQ(ek::dispatch(c, kToy, rows(1)), EK_STATUS_CUDA);
  CHECK_TEXT(ek_context_error(c), "toy: the context was created before a fork; CUDA does not survive one");
  c->generation = ek::g_generation;
}

}  // namespace

int main() {
  test_growth();
  test_no_memory();
  test_lent();
  test_capture();
  test_stream_order();
  test_fork_error();
  return check::report("test_arena");
}
