// SPDX-License-Identifier: Apache-2.0
#include "core/process.h"

#include <pthread.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace ek {

Generation g_generation = 0;

void watch_forks() {
  // The child has one thread when the handler runs, so a plain increment will do.
  static const int registered = pthread_atfork(nullptr, nullptr, [] { ++g_generation; });
  (void)registered;
}

namespace {

// A copy, because setenv may free what getenv returned. NULL where the variable is unset or empty.
const char* copy_of(const char* variable) {
  const char* value = getenv(variable);
  return value && *value ? strdup(value) : nullptr;
}

Env read_env() {
  Env env;
  env.kernel = copy_of("EINKORN_KERNEL");

  if (const char* log = getenv("EINKORN_LOG"); log && *log) {
    env.log_dispatch = strcmp(log, "dispatch") == 0;
    if (!env.log_dispatch)
      snprintf(env.error, sizeof(env.error), "EINKORN_LOG is \"%.40s\", expected \"dispatch\"", log);
  }

  if (const char* threads = getenv("EINKORN_THREADS"); threads && *threads) {
    char* end = nullptr;
    errno = 0;
    const long count = strtol(threads, &end, 10);
    if (errno == 0 && *end == '\0' && count >= 1 && count <= 4096)
      env.threads = static_cast<int>(count);
    else
      snprintf(env.error, sizeof(env.error), "EINKORN_THREADS is \"%.40s\", expected a number from 1 to 4096", threads);
  }
  return env;
}

}  // namespace

const Env& env() {
  static const Env env = read_env();
  return env;
}

}  // namespace ek
