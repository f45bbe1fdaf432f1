// SPDX-License-Identifier: Apache-2.0
// The whole test framework: count checks, print the ones that fail, return non-zero if any did.
#pragma once

#include <cstdio>
#include <cstring>
#include <string>
#include <type_traits>

namespace check {

inline int g_checks = 0;
inline int g_failures = 0;

inline bool that(bool ok, const char* text, const char* file, int line) {
  ++g_checks;
  if (ok) return true;
  ++g_failures;
  std::fprintf(stderr, "%s:%d: failed: %s\n", file, line, text);
  return false;
}

template <class A, class B>
bool equal(const A& a, const B& b, const char* text, const char* file, int line) {
  const bool ok = that(a == b, text, file, line);
  if (!ok) {
    if constexpr (std::is_convertible_v<A, std::string> && std::is_convertible_v<B, std::string>)
      std::fprintf(stderr, "  \"%s\"\n  \"%s\"\n", std::string(a).c_str(), std::string(b).c_str());
    else
      std::fprintf(stderr, "  %lld\n  %lld\n", static_cast<long long>(a), static_cast<long long>(b));
  }
  return ok;
}

// Does `text` contain `part`?
inline bool contains(const std::string& text, const std::string& part, const char* file, int line) {
  const bool ok = that(text.find(part) != std::string::npos, ("contains \"" + part + "\"").c_str(), file, line);
  if (!ok) std::fprintf(stderr, "  text: \"%s\"\n", text.c_str());
  return ok;
}

inline int report(const char* name) {
  std::printf("%s: %d checks, %d failed\n", name, g_checks, g_failures);
  return g_failures ? 1 : 0;
}

}  // namespace check

#define CHECK(condition) check::that((condition), #condition, __FILE__, __LINE__)
#define CHECK_EQ(a, b) check::equal((a), (b), #a " == " #b, __FILE__, __LINE__)
#define CHECK_TEXT(a, b) check::equal(std::string(a), std::string(b), #a " == " #b, __FILE__, __LINE__)
#define CHECK_CONTAINS(text, part) check::contains((text), (part), __FILE__, __LINE__)
