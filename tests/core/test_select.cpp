// SPDX-License-Identifier: Apache-2.0
// Selection: targets, flags, forced rows, routing rules, refusals, explanations, workspace and the log.
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <string>

#include "check.h"
#include "fake_ops.h"

using fake::g_last;
using fake::kOther;
using fake::kToy;
using fake::make_cpu;
using fake::make_gpu;
using fake::ToyArgs;

namespace {

// Runs the call and says which row ran, or the error.
std::string run(ek_context* c, const ToyArgs& args, const ek::OpTables<ToyArgs>& op = kToy) {
  g_last.row = "";
  if (ek::dispatch(c, op, args)) return std::string("error: ") + ek_context_error(c);
  return g_last.row;
}

ToyArgs shape(int64_t rows, int64_t dim, ek_dtype dtype = EK_DTYPE_F32) {
  ToyArgs args;
  args.rows = rows;
  args.dim = dim;
  args.T = dtype;
  return args;
}

void test_targets() {
  auto gpu = make_gpu(90);
  CHECK_TEXT(run(gpu.get(), shape(4, 64)), "toy_cuda_fast");
  CHECK_TEXT(ek_kernel_last(gpu.get()), "toy_cuda_fast");
  CHECK_TEXT(run(gpu.get(), shape(4, 63)), "toy_cuda_loose");
  CHECK_TEXT(run(gpu.get(), shape(4000, 63)), "toy_cuda");
  CHECK_TEXT(run(make_gpu(80).get(), shape(4, 64)), "toy_cuda_loose");
  CHECK_TEXT(run(make_gpu(75).get(), shape(4, 64)), "toy_cuda");
  CHECK_TEXT(run(make_gpu(120).get(), shape(4, 64)), "toy_cuda_fast");
  CHECK_TEXT(run(make_cpu(4).get(), shape(4, 64)), "toy_cpu_v4");
  CHECK_TEXT(run(make_cpu(3).get(), shape(4, 64)), "toy_cpu_v2");
  CHECK_TEXT(run(make_cpu(4).get(), shape(4, 63)), "toy_cpu_v2");
}

void test_nothing_usable() {
  auto old_gpu = make_gpu(70);
  CHECK_EQ(ek::dispatch(old_gpu.get(), kToy, shape(4, 64)), EK_STATUS_UNSUPPORTED);
  CHECK_TEXT(ek_context_error(old_gpu.get()),
             "toy: no row takes the call on cuda:0 (fake)\n"
             "  toy_cuda_fast: needs sm_90, the device is sm_70\n"
             "  toy_cuda_loose: needs sm_80, the device is sm_70\n"
             "  toy_cuda: needs sm_75, the device is sm_70\n"
             "  toy_cpu_v4: runs on the CPU\n"
             "  toy_cpu_v2: runs on the CPU");
  CHECK_TEXT(ek_kernel_last(old_gpu.get()), "");

  auto old_cpu = make_cpu(1);
  CHECK_EQ(ek::dispatch(old_cpu.get(), kToy, shape(4, 64)), EK_STATUS_UNSUPPORTED);
  CHECK_CONTAINS(ek_context_error(old_cpu.get()), "toy_cpu_v4: needs x86-64-v4, CPU and system allow v1");
  CHECK_CONTAINS(ek_context_error(old_cpu.get()), "toy_cuda: runs on CUDA");

  // A row's own reason, and "" after the next success.
  auto cpu = make_cpu(2);
  CHECK_EQ(ek::dispatch(cpu.get(), kOther, shape(2000, 64)), EK_STATUS_UNSUPPORTED);
  CHECK_CONTAINS(ek_context_error(cpu.get()), "\n  other_cpu: rows > 1000");
  CHECK_TEXT(run(cpu.get(), shape(2, 64), kOther), "other_cpu");
  CHECK_TEXT(ek_context_error(cpu.get()), "");
}

void test_flags() {
  auto gpu = make_gpu(80);
  CHECK_EQ(ek_context_set_flags(gpu.get(), EK_FLAG_DETERMINISTIC), EK_STATUS_OK);
  CHECK_TEXT(run(gpu.get(), shape(4, 64)), "toy_cuda");
  CHECK_EQ(ek_context_set_flags(gpu.get(), EK_FLAG_BATCH_INVARIANT), EK_STATUS_OK);
  CHECK_TEXT(run(gpu.get(), shape(4, 64)), "toy_cuda");
  // Flags that are no promise of a row leave the choice alone and reach the row.
  CHECK_EQ(ek_context_set_flags(gpu.get(), EK_FLAG_PDL | EK_FLAG_TF32), EK_STATUS_OK);
  CHECK_TEXT(run(gpu.get(), shape(4, 64)), "toy_cuda_loose");
  CHECK_EQ(g_last.flags, uint32_t{EK_FLAG_PDL | EK_FLAG_TF32});
  CHECK_EQ(ek_context_set_flags(gpu.get(), 64), EK_STATUS_INVALID_ARGUMENT);
  CHECK_CONTAINS(ek_context_error(gpu.get()), "0x40");
  CHECK_EQ(gpu->flags, uint32_t{EK_FLAG_PDL | EK_FLAG_TF32});

  auto cpu = make_cpu(4);
  ek_context_set_flags(cpu.get(), EK_FLAG_BATCH_INVARIANT);
  CHECK_EQ(ek::dispatch(cpu.get(), kOther, shape(4, 64)), EK_STATUS_UNSUPPORTED);
  CHECK_CONTAINS(ek_context_error(cpu.get()), "other_cpu: not batch invariant, which the context's flags ask for");
}

void test_force() {
  auto gpu = make_gpu(90);
  CHECK_EQ(ek_kernel_force(gpu.get(), "toy", "toy_cuda"), EK_STATUS_OK);
  CHECK_TEXT(run(gpu.get(), shape(4, 64)), "toy_cuda");

  // A refusal is an error with its reason, never another row.
  ek_kernel_force(gpu.get(), "toy", "toy_cuda_fast");
  CHECK_EQ(ek::dispatch(gpu.get(), kToy, shape(4, 63)), EK_STATUS_UNSUPPORTED);
  CHECK_TEXT(ek_context_error(gpu.get()), "toy: row toy_cuda_fast, forced by ek_kernel_force, refuses: dim % 8 != 0");
  ek_kernel_force(gpu.get(), "toy", "toy_cpu_v2");
  CHECK_EQ(ek::dispatch(gpu.get(), kToy, shape(4, 64)), EK_STATUS_UNSUPPORTED);
  CHECK_CONTAINS(ek_context_error(gpu.get()), "refuses: runs on the CPU");
  ek_kernel_force(gpu.get(), "toy", "toy_cuda_loose");
  ek_context_set_flags(gpu.get(), EK_FLAG_DETERMINISTIC);
  CHECK_EQ(ek::dispatch(gpu.get(), kToy, shape(4, 64)), EK_STATUS_UNSUPPORTED);
  CHECK_CONTAINS(ek_context_error(gpu.get()), "refuses: not deterministic");
  ek_context_set_flags(gpu.get(), 0);

  // Free again; other contexts and ops never were bound.
  ek_kernel_force(gpu.get(), "toy", "toy_cuda");
  CHECK_TEXT(run(make_gpu(90).get(), shape(4, 64)), "toy_cuda_fast");
  CHECK_EQ(ek_kernel_force(gpu.get(), "toy", nullptr), EK_STATUS_OK);
  CHECK_TEXT(run(gpu.get(), shape(4, 64)), "toy_cuda_fast");

  CHECK_EQ(ek_kernel_force(gpu.get(), "toy", "other_cpu"), EK_STATUS_NOT_FOUND);
  CHECK_EQ(ek_kernel_force(gpu.get(), "nothing", "other_cpu"), EK_STATUS_NOT_FOUND);
  CHECK_TEXT(run(gpu.get(), shape(4, 64)), "toy_cuda_fast");
}

void test_rules() {
  auto gpu = make_gpu(90);
  const char* table =
      "toy T=bf16 rows=1..64 dim=4096.. : toy_cuda\n"
      "toy dim=63 : toy_cuda_fast  # refuses this dim, so the next rule is asked\n"
      "toy dim=63 : toy_cuda\n"
      "toy layout=interleaved : toy_cuda_loose\n";
  CHECK_EQ(ek_table_set(gpu.get(), table), EK_STATUS_OK);
  CHECK_TEXT(run(gpu.get(), shape(64, 4096, EK_DTYPE_BF16)), "toy_cuda");
  CHECK_TEXT(run(gpu.get(), shape(65, 4096, EK_DTYPE_BF16)), "toy_cuda_fast");
  CHECK_TEXT(run(gpu.get(), shape(64, 4095, EK_DTYPE_BF16)), "toy_cuda_loose");
  CHECK_TEXT(run(gpu.get(), shape(64, 4096, EK_DTYPE_F16)), "toy_cuda_fast");
  CHECK_TEXT(run(gpu.get(), shape(4, 63)), "toy_cuda");
  ToyArgs interleaved = shape(4, 64);
  interleaved.layout = 1;
  CHECK_TEXT(run(gpu.get(), interleaved), "toy_cuda_loose");

  // A forced row beats a rule; a rule's row must keep the context's promises.
  ek_kernel_force(gpu.get(), "toy", "toy_cuda_fast");
  CHECK_TEXT(run(gpu.get(), interleaved), "toy_cuda_fast");
  ek_kernel_force(gpu.get(), "toy", nullptr);
  ek_context_set_flags(gpu.get(), EK_FLAG_DETERMINISTIC);
  CHECK_TEXT(run(gpu.get(), interleaved), "toy_cuda_fast");

  // Batch-invariant selection does not look at rules about batch dims, and does look at others.
  ek_context_set_flags(gpu.get(), EK_FLAG_BATCH_INVARIANT);
  CHECK_TEXT(run(gpu.get(), shape(64, 4096, EK_DTYPE_BF16)), "toy_cuda_fast");
  CHECK_TEXT(run(gpu.get(), shape(4, 63)), "toy_cuda");
  ek_context_set_flags(gpu.get(), 0);

  // A bad table leaves the old one; NULL brings back the built-in one of the device's name.
  CHECK_EQ(ek_table_set(gpu.get(), "toy dim : toy_cuda"), EK_STATUS_INVALID_ARGUMENT);
  CHECK_TEXT(run(gpu.get(), shape(4, 63)), "toy_cuda");
  CHECK_EQ(ek_table_set(gpu.get(), nullptr), EK_STATUS_OK);
  CHECK_TEXT(run(gpu.get(), shape(4, 4096)), "toy_cuda_loose");
  CHECK_EQ(ek_table_set(gpu.get(), ""), EK_STATUS_OK);
  CHECK_TEXT(run(gpu.get(), shape(4, 4096)), "toy_cuda_fast");
}

void test_workspace() {
  size_t bytes = 0;
  auto gpu = make_gpu(90);
  CHECK_EQ(ek::workspace_bytes(gpu.get(), kToy, shape(100, 64), &bytes), EK_STATUS_OK);
  CHECK_EQ(bytes, size_t{400});  // toy_cuda_fast asks for 4 * rows, toy_cuda for dim
  CHECK_EQ(ek::workspace_bytes(gpu.get(), kToy, shape(4, 64), &bytes), EK_STATUS_OK);
  CHECK_EQ(bytes, size_t{64});
  CHECK_EQ(ek::workspace_bytes(gpu.get(), kToy, shape(100, 63), &bytes), EK_STATUS_OK);
  CHECK_EQ(bytes, size_t{63});  // the fast row refuses
  // The answer holds whatever is forced or flagged later.
  ek_kernel_force(gpu.get(), "toy", "toy_cuda");
  ek_context_set_flags(gpu.get(), EK_FLAG_DETERMINISTIC);
  CHECK_EQ(ek::workspace_bytes(gpu.get(), kToy, shape(100, 64), &bytes), EK_STATUS_OK);
  CHECK_EQ(bytes, size_t{400});
  CHECK_EQ(ek::workspace_bytes(gpu.get(), kOther, shape(100, 64), &bytes), EK_STATUS_OK);
  CHECK_EQ(bytes, size_t{0});

  // A row without workspace gets none, and no counters either.
  uint32_t counters[4] = {};
  gpu->counters = counters;
  ek_context_set_flags(gpu.get(), 0);
  ek_kernel_force(gpu.get(), "toy", "toy_cuda_loose");
  CHECK_TEXT(run(gpu.get(), shape(4, 64)), "toy_cuda_loose");
  CHECK(!g_last.workspace && !g_last.counters && !gpu->workspace_used);
  ek_kernel_force(gpu.get(), "toy", "toy_cuda");
  CHECK_TEXT(run(gpu.get(), shape(4, 64)), "toy_cuda");
  CHECK(g_last.workspace && g_last.counters == counters && gpu->workspace_used);
  CHECK_EQ(reinterpret_cast<uintptr_t>(g_last.workspace) % 256, uintptr_t{0});
  gpu->counters = nullptr;  // not the context's to free
}

void test_row_failure() {
  auto gpu = make_gpu(90);
  CHECK_TEXT(run(gpu.get(), shape(4, 63)), "toy_cuda_loose");
  fake::g_run_status = EK_STATUS_CUDA;
  CHECK_EQ(ek::dispatch(gpu.get(), kToy, shape(4, 64)), EK_STATUS_CUDA);
  fake::g_run_status = EK_STATUS_OK;
  CHECK_TEXT(ek_context_error(gpu.get()), "toy: the row failed");
  CHECK_TEXT(ek_kernel_last(gpu.get()), "toy_cuda_loose");
}

void test_explain() {
  auto gpu = make_gpu(90);
  ToyArgs args = shape(2000, 63, EK_DTYPE_BF16);
  args.layout = 1;
  const std::string expected =
      "toy T=bf16 rows=2000 dim=63 group=0 layout=interleaved centred=0 on cuda:0 (fake)\n"
      "-> toy_cuda: the first that takes the call\n"
      "   toy_cuda_fast: dim % 8 != 0\n"
      "   toy_cuda_loose: rows > 1000\n"
      "   toy_cpu_v4: runs on the CPU\n"
      "   toy_cpu_v2: runs on the CPU\n";
  char text[1024];
  size_t needed = 0;
  CHECK_EQ(ek_explain(gpu.get(), "toy", &args, text, sizeof(text), &needed), EK_STATUS_OK);
  CHECK_TEXT(text, expected);
  CHECK_EQ(needed, expected.size() + 1);
  CHECK_EQ(ek_explain(gpu.get(), "toy", &args, nullptr, 0, &needed), EK_STATUS_OK);
  CHECK_EQ(needed, expected.size() + 1);
  CHECK_EQ(ek_explain(gpu.get(), "toy", &args, text, 10, nullptr), EK_STATUS_OK);
  CHECK_TEXT(text, expected.substr(0, 9));
  CHECK_EQ(ek_explain(gpu.get(), "toy", &args, text, needed, &needed), EK_STATUS_OK);
  CHECK_TEXT(text, expected);

  args = shape(4, 64);
  ek_table_set(gpu.get(), "\ntoy dim=64 : toy_cuda");
  ek_explain(gpu.get(), "toy", &args, text, sizeof(text), nullptr);
  CHECK_CONTAINS(text, "-> toy_cuda: line 2 of the routing table\n");
  CHECK_CONTAINS(text, "   toy_cuda_fast: would take the call too\n");
  args.dim = 63;
  ek_kernel_force(gpu.get(), "toy", "toy_cuda_fast");
  CHECK_EQ(ek_explain(gpu.get(), "toy", &args, text, sizeof(text), nullptr), EK_STATUS_OK);
  CHECK_CONTAINS(text, "-> toy_cuda_fast: forced by ek_kernel_force, but it refuses\n");
  CHECK_CONTAINS(text, "   toy_cuda_fast: dim % 8 != 0\n");

  ek_explain(make_gpu(70).get(), "toy", &args, text, sizeof(text), nullptr);
  CHECK_CONTAINS(text, "\n-> no row takes the call\n");
  CHECK_EQ(ek_explain(gpu.get(), "nothing", &args, text, sizeof(text), nullptr), EK_STATUS_NOT_FOUND);
  CHECK_EQ(ek_explain(gpu.get(), "toy", &args, nullptr, 10, nullptr), EK_STATUS_INVALID_ARGUMENT);
}

void test_registry() {
  CHECK_EQ(ek_op_count(), 2);
  CHECK_TEXT(ek_op_name(1), "other");
  CHECK(ek_op_name(2) == nullptr && ek_op_name(-1) == nullptr);
  CHECK_EQ(ek_kernel_count("toy"), 5);
  CHECK_EQ(ek_kernel_count("nothing"), 0);
  CHECK_EQ(ek_kernel_count(nullptr), 0);
  ek_kernel_info info = {};
  info.struct_size = sizeof(info);
  CHECK_EQ(ek_kernel_query("toy", 1, &info), EK_STATUS_OK);
  CHECK_TEXT(info.name, "toy_cuda_loose");
  CHECK_EQ(info.device_type, int{EK_DEVICE_CUDA});
  CHECK_EQ(info.target, 80);
  CHECK_EQ(info.flags, 0u);
  CHECK_EQ(ek_kernel_query("other", 0, &info), EK_STATUS_OK);
  CHECK_EQ(info.flags, uint32_t{EK_FLAG_DETERMINISTIC});
  CHECK_EQ(ek_kernel_query("toy", 5, &info), EK_STATUS_NOT_FOUND);
  CHECK_EQ(ek_kernel_query("toy", -1, &info), EK_STATUS_NOT_FOUND);
}

// Runs `body` in a process of its own, where the environment was not yet read, and returns what it wrote to stderr.
std::string in_child(const char* variable, const char* value, const std::function<void()>& body) {
  int ends[2];
  if (pipe(ends)) return "pipe failed";
  const pid_t child = fork();
  if (child == 0) {
    setenv(variable, value, 1);
    dup2(ends[1], STDERR_FILENO);
    check::g_failures = 0;
    body();
    _exit(check::g_failures ? 1 : 0);
  }
  close(ends[1]);
  std::string text;
  char buffer[512];
  for (ssize_t n; (n = read(ends[0], buffer, sizeof(buffer))) > 0;) text.append(buffer, static_cast<size_t>(n));
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (!CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0)) std::fprintf(stderr, "%s", text.c_str());
  return text;
}

void test_environment() {
  in_child("EINKORN_KERNEL", "toy_cuda_loose", [] {
    auto gpu = make_gpu(90);
    CHECK_TEXT(run(gpu.get(), shape(4, 64)), "toy_cuda_loose");
    CHECK_EQ(ek::dispatch(gpu.get(), kToy, shape(4000, 64)), EK_STATUS_UNSUPPORTED);
    CHECK_CONTAINS(ek_context_error(gpu.get()), "toy_cuda_loose, forced by EINKORN_KERNEL, refuses: rows > 1000");
    // The context's own choice comes first; letting go of it brings the variable back. Other ops are not touched.
    ek_kernel_force(gpu.get(), "toy", "toy_cuda");
    CHECK_TEXT(run(gpu.get(), shape(4, 64)), "toy_cuda");
    ek_kernel_force(gpu.get(), "toy", nullptr);
    CHECK_TEXT(run(gpu.get(), shape(4, 64)), "toy_cuda_loose");
    CHECK_TEXT(run(make_cpu(4).get(), shape(4, 64), kOther), "other_cpu");
    // Read once.
    setenv("EINKORN_KERNEL", "toy_cuda", 1);
    CHECK_TEXT(run(make_gpu(90).get(), shape(4, 64)), "toy_cuda_loose");
  });
  in_child("EINKORN_KERNEL", "no_such_row", [] {
    ek_context* context = nullptr;
    CHECK_EQ(ek_context_create({EK_DEVICE_CPU, 0}, &context), EK_STATUS_NOT_FOUND);
    CHECK_CONTAINS(ek_last_error(), "EINKORN_KERNEL is \"no_such_row\"");
    CHECK(context == nullptr);
  });
  in_child("EINKORN_THREADS", "many", [] {
    ek_context* context = nullptr;
    CHECK_EQ(ek_context_create({EK_DEVICE_CPU, 0}, &context), EK_STATUS_INVALID_ARGUMENT);
    CHECK_CONTAINS(ek_last_error(), "EINKORN_THREADS is \"many\"");
  });
  in_child("EINKORN_LOG", "everything", [] {
    ek_context* context = nullptr;
    CHECK_EQ(ek_context_create({EK_DEVICE_CPU, 0}, &context), EK_STATUS_INVALID_ARGUMENT);
    CHECK_CONTAINS(ek_last_error(), "EINKORN_LOG is \"everything\"");
  });
  const std::string log = in_child("EINKORN_LOG", "dispatch", [] {
    auto gpu = make_gpu(90);
    CHECK_TEXT(run(gpu.get(), shape(4, 63)), "toy_cuda_loose");
    ek_kernel_force(gpu.get(), "toy", "toy_cuda_fast");
    CHECK_EQ(ek::dispatch(gpu.get(), kToy, shape(4, 63)), EK_STATUS_UNSUPPORTED);
  });
  const char* call = "einkorn: toy T=f32 rows=4 dim=63 group=0 layout=halves centred=0 -> ";
  CHECK_CONTAINS(log,
                 std::string(call) + "toy_cuda_loose (the first that takes the call); toy_cuda_fast: dim % 8 != 0\n");
  CHECK_CONTAINS(log, std::string(call) + "nothing (forced by ek_kernel_force); toy_cuda_fast: dim % 8 != 0\n");
}

// Not a benchmark with a bar, but a mistake of a whole order (a lock, a string, an allocation) would show.
void test_host_time() {
  auto gpu = make_gpu(75);
  const ToyArgs args = shape(4, 64);
  ek::dispatch(gpu.get(), kToy, args);
  using Clock = std::chrono::steady_clock;
  double least = 1e9;
  for (int round = 0; round < 20; ++round) {
    const auto begin = Clock::now();
    for (int i = 0; i < 1000; ++i) ek::dispatch(gpu.get(), kToy, args);
    const std::chrono::duration<double, std::nano> time = Clock::now() - begin;
    if (time.count() / 1000 < least) least = time.count() / 1000;
  }
  std::printf("dispatch: %.1f ns a call\n", least);
  CHECK(least < 150);
}

}  // namespace

int main() {
  test_environment();  // first: children must find the environment unread
  test_targets();
  test_nothing_usable();
  test_flags();
  test_force();
  test_rules();
  test_workspace();
  test_row_failure();
  test_explain();
  test_registry();
  test_host_time();
  return check::report("test_select");
}
