/* SPDX-License-Identifier: Apache-2.0
 * Counts checks, prints the ones that fail. */
#ifndef EINKORN_TESTS_ABI_CHECK_H
#define EINKORN_TESTS_ABI_CHECK_H

#include <stdio.h>
#include <string.h>

static int checks, failures;

#define CHECK(condition)                                                      \
  do {                                                                        \
    ++checks;                                                                 \
    if (!(condition)) {                                                       \
      ++failures;                                                             \
      fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #condition); \
    }                                                                         \
  } while (0)

/* The call returns this status, and a text that contains `part`. */
#define CHECK_FAILS(call, status, text, part)                                                                  \
  do {                                                                                                         \
    const int status_ = (int)(call);                                                                           \
    ++checks;                                                                                                  \
    if (status_ != (int)(status) || !strstr((text), (part))) {                                                 \
      ++failures;                                                                                              \
      fprintf(stderr, "%s:%d: failed: %s\n  status %d, expected %d; text \"%s\", expected \"%s\"\n", __FILE__, \
              __LINE__, #call, status_, (int)(status), (text), (part));                                        \
    }                                                                                                          \
  } while (0)

#define CHECK_OK(call) CHECK((call) == EK_STATUS_OK)

static inline int report(const char* name) {
  printf("%s: %d checks, %d failed\n", name, checks, failures);
  return failures ? 1 : 0;
}

#endif
