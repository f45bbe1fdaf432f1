// SPDX-License-Identifier: Apache-2.0
// The Hopper kernels by dtype, built one to a file, and where the tokens of a tensor lie.
#pragma once

#include "dispatch/kernel.h"
#include "ops/attention/attention_call.h"

namespace ek {

template <class T>
ek_status attention_sm90_run(const AttentionCall& c, const Launch& l);

// From token to token of a sequence and from sequence to sequence; with cu_q from token to token of all.
struct TokenStrides {
  int64_t seq, token;
};

// Of q, y or lse; false where two strides do not do.
inline bool attention_token_strides(const AttentionCall& c, const Tensor& t, TokenStrides* strides_out) {
  const auto merged = [&](int from, int to, int64_t* stride_out) {  // dims [from, to) as one
    int64_t size = 1, stride = 0;
    for (int i = to - 1; i >= from; --i) {
      if (t.shape[i] == 1) continue;
      if (size == 1)
        stride = t.stride[i];
      else if (t.stride[i] != stride * size)
        return false;
      size *= t.shape[i];
    }
    *stride_out = stride;
    return true;
  };
  if (merged(0, c.lead, &strides_out->token)) {
    strides_out->seq = c.seqs.q_len * strides_out->token;
    return true;
  }
  if (c.seqs.cu_q) return false;
  // Where the dims of a sequence end
  int64_t size = 1;
  for (int i = c.lead; i-- > 0;) {
    size *= t.shape[i];
    if (size == c.seqs.q_len) return merged(i, c.lead, &strides_out->token) && merged(0, i, &strides_out->seq);
  }
  return false;
}

}  // namespace ek
