// SPDX-License-Identifier: Apache-2.0
// One pool per process. The caller of parallel_run works too; workers that wake late find the job closed and go back to
// sleep, so a short loop never waits for a slow wake-up. A pool serves one loop at a time: a second caller, or a loop
// inside a loop, runs on its own thread. After a fork the child makes a new pool and forgets the old one, whose threads
// exist in the parent only. Pools are never destroyed: their threads sleep until the process ends.
#include "core/thread_pool.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <new>

#include "core/process.h"

namespace ek {

namespace {

using Body = void (*)(void* state, int64_t begin, int64_t end);

struct Job {
  int64_t n = 0;
  int64_t grain = 1;
  int64_t chunks = 0;
  Body body = nullptr;
  void* state = nullptr;

  void run_chunk(int64_t chunk) const {
    const int64_t begin = chunk * grain;
    body(state, begin, n - begin > grain ? begin + grain : n);
  }
};

inline void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// About 10 us on today's CPUs: longer than the gap between two ops of a model, shorter than it takes to wake a thread.
constexpr int kSpins = 256;

struct Pool {
  Generation generation = 0;
  std::atomic<bool> busy{false};   // a loop is in progress
  std::atomic<uint32_t> epoch{0};  // counts jobs; workers watch it
  std::atomic<int64_t> next_chunk{0};
  std::atomic<int> active{0};  // workers inside the job; written under `mutex`

  pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  pthread_cond_t wake = PTHREAD_COND_INITIALIZER;
  pthread_cond_t done = PTHREAD_COND_INITIALIZER;
  // Under `mutex`:
  Job job;
  bool open = false;  // workers may still join the job
  int sleeping = 0;

  void work(const Job& j) {
    for (;;) {
      const int64_t chunk = next_chunk.fetch_add(1, std::memory_order_relaxed);
      if (chunk >= j.chunks) return;
      j.run_chunk(chunk);
    }
  }

  void worker_loop() {
    uint32_t seen = 0;
    for (;;) {
      for (int i = 0; i < kSpins && epoch.load(std::memory_order_relaxed) == seen; ++i) pause_cpu();
      pthread_mutex_lock(&mutex);
      while (epoch.load(std::memory_order_relaxed) == seen) {
        ++sleeping;
        pthread_cond_wait(&wake, &mutex);
        --sleeping;
      }
      seen = epoch.load(std::memory_order_relaxed);
      if (open) {
        const Job j = job;
        active.fetch_add(1, std::memory_order_relaxed);
        pthread_mutex_unlock(&mutex);
        work(j);
        pthread_mutex_lock(&mutex);
        if (active.fetch_sub(1, std::memory_order_release) == 1) pthread_cond_signal(&done);
      }
      pthread_mutex_unlock(&mutex);
    }
  }

  void run(const Job& j) {
    pthread_mutex_lock(&mutex);
    job = j;
    open = true;
    next_chunk.store(0, std::memory_order_relaxed);
    epoch.fetch_add(1, std::memory_order_relaxed);
    // Spinning workers come by themselves. One wake-up for each chunk that the caller does not take.
    const int64_t wanted = j.chunks - 1;
    if (wanted >= sleeping)
      pthread_cond_broadcast(&wake);
    else
      for (int64_t i = 0; i < wanted; ++i) pthread_cond_signal(&wake);
    pthread_mutex_unlock(&mutex);

    work(j);

    // All chunks are taken; wait for the workers that still run one. Their last chunk ends about when ours did.
    pthread_mutex_lock(&mutex);
    open = false;
    if (active.load(std::memory_order_relaxed)) {
      pthread_mutex_unlock(&mutex);
      for (int i = 0; i < kSpins && active.load(std::memory_order_relaxed); ++i) pause_cpu();
      pthread_mutex_lock(&mutex);
      while (active.load(std::memory_order_relaxed)) pthread_cond_wait(&done, &mutex);
    }
    pthread_mutex_unlock(&mutex);
  }
};

std::atomic<Pool*> g_pool{nullptr};

// Workers take no signals: handlers belong to the application's threads.
void start_workers(Pool* pool) {
  sigset_t all, old;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  for (int i = 1; i < thread_count(); ++i) {
    pthread_t thread;
    const auto main = [](void* p) -> void* {
      static_cast<Pool*>(p)->worker_loop();
      return nullptr;
    };
    if (pthread_create(&thread, nullptr, main, pool)) break;  // fewer threads are slower, not wrong
    pthread_detach(thread);
  }
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
}

// The pool of this process, or nullptr if there is no memory for one. No lock: a fork could leave it locked for ever.
Pool* pool_of_process() {
  Pool* pool = g_pool.load(std::memory_order_acquire);
  if (pool && pool->generation == g_generation) return pool;
  watch_forks();
  Pool* fresh = new (std::nothrow) Pool;
  if (!fresh) return nullptr;
  fresh->generation = g_generation;
  if (g_pool.compare_exchange_strong(pool, fresh, std::memory_order_acq_rel)) {
    start_workers(fresh);
    return fresh;
  }
  delete fresh;  // another thread was first
  return pool;
}

int find_thread_count() {
  if (env().threads) return env().threads;
  // A mask of 1024 CPUs is the usual limit of the call; larger machines answer through sysconf.
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) == 0) return CPU_COUNT(&allowed);
  const long online = sysconf(_SC_NPROCESSORS_ONLN);
  return online > 0 ? static_cast<int>(online) : 1;
}

}  // namespace

int thread_count() {
  static const int count = find_thread_count();
  return count;
}

void parallel_run(int64_t n, int64_t grain, Body body, void* state) {
  if (n <= 0) return;
  if (grain < 1) grain = 1;
  const Job job = {n, grain, (n - 1) / grain + 1, body, state};
  Pool* pool = job.chunks > 1 && thread_count() > 1 ? pool_of_process() : nullptr;
  if (!pool || pool->busy.exchange(true, std::memory_order_acquire)) {
    for (int64_t chunk = 0; chunk < job.chunks; ++chunk) job.run_chunk(chunk);
    return;
  }
  pool->run(job);
  pool->busy.store(false, std::memory_order_release);
}

}  // namespace ek
