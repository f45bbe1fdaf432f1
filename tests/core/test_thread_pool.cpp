// SPDX-License-Identifier: Apache-2.0
// The thread pool: every index once, chunks that depend on n and grain only, callers on many threads, loops in loops,
// and forks before and after its first use.
#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "check.h"
#include "core/thread_pool.h"

namespace {

template <class F>
void parallel(int64_t n, int64_t grain, const F& body) {
  ek::parallel_run(
      n, grain, [](void* state, int64_t begin, int64_t end) { (*static_cast<const F*>(state))(begin, end); },
      const_cast<void*>(static_cast<const void*>(&body)));
}

// Those of an emulator are not ours.
int threads_of_process() {
  int count = -EMULATOR_THREADS;
  DIR* tasks = opendir("/proc/self/task");
  while (const dirent* entry = readdir(tasks)) count += entry->d_name[0] != '.';
  closedir(tasks);
  return count;
}

// Every index exactly once, in chunks [i * grain, (i + 1) * grain).
bool covers(int64_t n, int64_t grain) {
  std::unique_ptr<std::atomic<int>[]> seen(new std::atomic<int>[static_cast<size_t>(n) + 1]());
  std::atomic<bool> good{true};
  parallel(n, grain, [&](int64_t begin, int64_t end) {
    const int64_t step = grain < 1 ? 1 : grain;
    if (begin % step || end > n || (end != n && end - begin != step) || end <= begin) good = false;
    for (int64_t i = begin; i < end; ++i) ++seen[static_cast<size_t>(i)];
  });
  for (int64_t i = 0; i < n; ++i)
    if (seen[static_cast<size_t>(i)] != 1) return false;
  return good;
}

void test_coverage() {
  for (int64_t n : {0, 1, 2, 3, 7, 64, 1000, 4097})
    for (int64_t grain : {0, 1, 2, 3, 64, 1000, 5000}) CHECK(covers(n, grain));
  bool called = false;
  parallel(-5, 1, [&](int64_t, int64_t) { called = true; });
  CHECK(!called);
  // Where n + grain would not fit.
  int64_t chunks = 0, last = 0;
  parallel(INT64_MAX, INT64_MAX - 1, [&](int64_t, int64_t end) {
    __atomic_add_fetch(&chunks, 1, __ATOMIC_RELAXED);
    if (end == INT64_MAX) __atomic_store_n(&last, end, __ATOMIC_RELAXED);
  });
  CHECK_EQ(chunks, int64_t{2});
  CHECK_EQ(last, INT64_MAX);
}

// Many short loops in a row: wake-ups must neither be lost nor reach a loop that is over.
void test_many_loops() {
  for (int round = 0; round < 20000; ++round) {
    std::atomic<int64_t> sum{0};
    const int64_t n = 1 + round % 17;
    parallel(n, 1, [&](int64_t begin, int64_t end) { sum += (end - begin) * (1 + round); });
    if (sum != n * (1 + round)) {
      CHECK_EQ(sum.load(), n * (1 + round));
      return;
    }
  }
  CHECK(true);
}

// All threads take part: chunks that wait for each other finish only if they run at the same time.
void test_threads_take_part() {
  const int threads = ek::thread_count();
  std::atomic<int> arrived{0};
  std::atomic<bool> met{true};
  parallel(threads, 1, [&](int64_t, int64_t) {
    ++arrived;
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (arrived < threads && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    if (arrived < threads) met = false;
  });
  CHECK(met);
  CHECK_EQ(threads_of_process(), threads);
}

void test_callers_and_nesting() {
  std::vector<std::thread> callers;
  std::atomic<int> bad{0};
  for (int t = 0; t < 8; ++t)
    callers.emplace_back([&] {
      for (int round = 0; round < 200; ++round) {
        std::atomic<int64_t> sum{0};
        parallel(100, 3, [&](int64_t begin, int64_t end) {
          parallel(end - begin, 1, [&](int64_t b, int64_t e) { sum += e - b; });
        });
        if (sum != 100) ++bad;
      }
    });
  for (std::thread& caller : callers) caller.join();
  CHECK_EQ(bad.load(), 0);
}

// Signals go to the application's threads.
void test_signals() {
  static std::atomic<int> on_worker{0};
  static thread_local bool mine = false;
  mine = true;
  signal(SIGUSR1, [](int) {
    if (!mine) ++on_worker;
  });
  for (int i = 0; i < 100; ++i) kill(getpid(), SIGUSR1);
  CHECK_EQ(on_worker.load(), 0);
}

int in_child(const std::function<bool()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(30);  // a child that hangs is a failure, not a wait for ever
    _exit(body() ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 100;
}

bool works_in_child() {
  if (!covers(1000, 1)) return false;
  return threads_of_process() == ek::thread_count();
}

}  // namespace

int main() {
  setenv("EINKORN_THREADS", "4", 1);
  CHECK_EQ(threads_of_process(), 1);
  CHECK_EQ(in_child(works_in_child), 0);  // before the first use
  CHECK_EQ(threads_of_process(), 1);      // nothing here started a thread
  CHECK_EQ(ek::thread_count(), 4);
  CHECK_EQ(threads_of_process(), 1);

  test_coverage();
  test_many_loops();
  test_threads_take_part();
  test_callers_and_nesting();
  test_signals();

  CHECK_EQ(in_child(works_in_child), 0);  // after it
  CHECK_EQ(in_child([] { return works_in_child() && in_child(works_in_child) == 0; }), 0);
  // Forks while other threads are in the middle of loops.
  std::atomic<bool> stop{false};
  std::thread busy([&] {
    while (!stop) parallel(64, 1, [](int64_t, int64_t) {});
  });
  for (int i = 0; i < 50; ++i) CHECK_EQ(in_child(works_in_child), 0);
  stop = true;
  busy.join();
  CHECK(covers(1000, 1));
  return check::report("test_thread_pool");
}
