// SPDX-License-Identifier: Apache-2.0
// Builds text in memory that someone else owns, and counts what did not fit.
#pragma once

#include <cstdarg>
#include <cstddef>
#include <cstdio>

namespace ek {

class TextWriter {
 public:
  // `text` may be NULL with 0 bytes: then only the length is found.
  TextWriter(char* text, size_t bytes) : text_(text), bytes_(bytes) {
    if (bytes_) text_[0] = '\0';
  }

  __attribute__((format(printf, 2, 3))) void add(const char* format, ...) {
    const size_t room = length_ < bytes_ ? bytes_ - length_ : 0;
    va_list values;
    va_start(values, format);
    const int added = vsnprintf(room ? text_ + length_ : nullptr, room, format, values);
    va_end(values);
    if (added > 0) length_ += static_cast<size_t>(added);
  }

  size_t length() const { return length_; }  // of the full text, without the NUL

 private:
  char* text_;
  size_t bytes_;
  size_t length_ = 0;
};

}  // namespace ek
