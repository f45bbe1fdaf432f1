// SPDX-License-Identifier: Apache-2.0
// Which keys a query sees, and where a sequence's keys lie: the rules of schema/attention.toml, once for the CPU and CUDA
// rows. Masks combine to one range of keys for each query, so that a kernel has whole tiles of visible keys between at
// most two that need a look at every element. Queries later in a sequence never see less at either end: the range of a
// block of queries is from the first one's begin to the last one's end.
#pragma once

#include <cmath>

#include "core/tensor.h"

// Inlined always: the CPU rows are compiled for several instruction sets, and must not share a copy (see cpu/isa.h).
#ifdef __CUDACC__
#define EK_RULE EK_HOST_DEVICE
#else
#define EK_RULE inline __attribute__((always_inline))
#endif

namespace ek {

constexpr float kLog2e = 1.44269504f, kLn2 = 0.693147181f;  // exponents of 2 in place of those of e

// 0 in place of a maximum of -inf, of which inf - inf would make NaN.
EK_RULE float finite_base(float most) { return most == -INFINITY ? 0.f : most; }

struct Mask {
  bool causal;
  int32_t window_left, window_right;  // -1: off
};

// Keys [begin, end) of one sequence; begin == end: none. I: int64_t, or int where sizes and windows are below 2^30.
template <class I>
struct KeyRangeOf {
  I begin, end;
};
using KeyRange = KeyRangeOf<int64_t>;

// A parameter of type I from which I is not deduced: a call without <int> takes int64_t.
template <class I>
using Index = decltype(KeyRangeOf<I>::begin);

// The keys that query i of q_len sees among kv_len. prefix_len: 0 where there is none.
template <class I = int64_t>
EK_RULE KeyRangeOf<I> visible(const Mask& mask, Index<I> i, Index<I> q_len, Index<I> kv_len, Index<I> prefix_len) {
  const I p = i + kv_len - q_len;  // the last query stands at the last key; negative before the first
  I begin = 0, end = kv_len;
  if (mask.causal) {
    const I last = p + 1 > prefix_len ? p + 1 : prefix_len;
    end = last < end ? last : end;
  }
  if (mask.window_right >= 0 && p + mask.window_right + 1 < end) end = p + mask.window_right + 1;
  if (mask.window_left >= 0 && p - mask.window_left > begin) begin = p - mask.window_left;
  return {begin, end > begin ? end : begin};
}

// The keys that any of the queries [first, last] sees; not every query sees all of them.
template <class I = int64_t>
EK_RULE KeyRangeOf<I> visible(const Mask& mask, Index<I> first, Index<I> last, Index<I> q_len, Index<I> kv_len,
                              Index<I> prefix_len) {
  const I begin = visible<I>(mask, first, q_len, kv_len, prefix_len).begin;
  const I end = visible<I>(mask, last, q_len, kv_len, prefix_len).end;
  return {begin, end > begin ? end : begin};
}

// The keys that all of the queries [first, last] see: tiles inside of it need no mask.
template <class I = int64_t>
EK_RULE KeyRangeOf<I> visible_to_all(const Mask& mask, Index<I> first, Index<I> last, Index<I> q_len, Index<I> kv_len,
                                     Index<I> prefix_len) {
  const I begin = visible<I>(mask, last, q_len, kv_len, prefix_len).begin;
  const I end = visible<I>(mask, first, q_len, kv_len, prefix_len).end;
  return {begin, end > begin ? end : begin};
}

// Lengths and page tables as kernels see them; absent ones are null.
struct Sequences {
  const int32_t* cu_q;        // [batch + 1]
  const int32_t* cu_kv;       // [batch + 1]
  const int32_t* kv_len;      // [batch]
  const int32_t* prefix_len;  // [batch]
  const int32_t* page_table;  // [batch, max_pages]
  int64_t table_stride;       // between the lines of page_table
  int64_t q_len;              // of every sequence, where there is no cu_q
  int64_t page_size,
      max_kv;  // max_kv: no sequence has more keys, whatever kv_len says (with cu_kv: how many on average)

  // The first query of a sequence among all tokens, and how many there are.
  EK_RULE int64_t q_begin(int64_t b) const { return cu_q ? cu_q[b] : b * q_len; }
  EK_RULE int64_t q_count(int64_t b) const { return cu_q ? cu_q[b + 1] - cu_q[b] : q_len; }
  EK_RULE int64_t kv_count(int64_t b) const {
    if (cu_kv) return cu_kv[b + 1] - cu_kv[b];
    if (!kv_len) return page_size;
    return kv_clamped(kv_len[b]);
  }
  EK_RULE int64_t kv_clamped(int64_t n) const { return n < 0 ? 0 : n < max_kv ? n : max_kv; }
  EK_RULE int64_t prefix(int64_t b) const { return prefix_len ? prefix_len[b] : 0; }

  // Page and slot of token t of sequence b.
  struct Place {
    int64_t page, slot;
  };
  EK_RULE Place place(int64_t b, int64_t t) const {
    if (cu_kv) return {0, cu_kv[b] + t};
    if (!page_table) return {b, t};
    // Both fit 32 bits: kv_len is one, and a page that is longer than all sequences is never left.
    const uint32_t token = static_cast<uint32_t>(t);
    const uint32_t size = page_size < 0x7fffffff ? static_cast<uint32_t>(page_size) : 0x7fffffffu;
    const uint32_t index = token / size;
    return {page_table[b * table_stride + index], token - index * size};
  }
};

}  // namespace ek
