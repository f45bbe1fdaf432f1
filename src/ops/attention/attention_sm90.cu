// SPDX-License-Identifier: Apache-2.0
// attention on Hopper (TMA + wgmma) as a row: which calls it takes. The kernels are built in attention_sm90_<dtype>.cu.
#include "cuda/hopper.h"
#include "cuda/launch.h"
#include "ops/attention/attention_rows.h"
#include "ops/attention/attention_sm90_run.h"

namespace ek {

namespace {

// The copy engine takes strides of 16 bytes and upwards. A dim of size 1 has none.
bool tma_stride(int64_t size, int64_t stride) { return size == 1 || (stride > 0 && stride % 8 == 0); }
bool aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }
// Positions, windows and pieces of work are counted in 32 bits, and added to one another.
bool fits(int64_t n) { return n < int64_t{1} << 30; }

const char* why_not_cache(const AttentionCall& c, const KvCache& x) {
  if (!aligned(x.data)) return "k or v is not on a 16-byte boundary";
  if (!tma_stride(c.pages, x.page) || !tma_stride(c.seqs.page_size, x.slot) || !tma_stride(c.kv_heads, x.head))
    return "strides of k or v are not positive multiples of 8";
  return nullptr;
}

}  // namespace

const char* attention_sm90_why_not(const AttentionCall& c, const Device& device) {
  if (const char* why = why_not_wgmma(device)) return why;
  if (c.T != EK_DTYPE_F16 && c.T != EK_DTYPE_BF16) return "for f16 and bf16 only";
  if (c.head_dim > 256 || c.v_dim > 256) return "head_dim or v_dim is more than 256";
  if (c.v_dim % 8 != 0 || c.v_dim == 0) return "v_dim is 0 or not a multiple of 8";
  if (c.pages == 0 || c.seqs.page_size == 0) return "k has no tokens";
  if (!fits(c.tokens) || !fits(c.pages) || !fits(c.seqs.page_size) || !fits(c.seqs.max_kv) ||
      !fits(c.heads * (c.tokens / 128 + 2 * c.batch)))
    return "sizes of 2^30 and more";
  TokenStrides q = {}, y = {}, lse = {};
  if (!attention_token_strides(c, c.q, &q) || !attention_token_strides(c, c.y, &y) ||
      (c.lse.data && !attention_token_strides(c, c.lse, &lse)))
    return "the tokens of q, y or lse do not lie at one stride";
  const int64_t q_len = c.seqs.cu_q ? c.tokens : c.seqs.q_len, seqs = c.seqs.cu_q ? 1 : c.batch;
  if (!aligned(c.q.data) || !tma_stride(q_len, q.token) || !tma_stride(seqs, q.seq) ||
      !tma_stride(c.heads, c.q.stride[c.lead]))
    return "q is not on 16-byte boundaries, or strides of it are not positive multiples of 8";
  if (!aligned(c.y.data) || y.token % 8 != 0 || y.seq % 8 != 0 || c.y.stride[c.lead] % 8 != 0)
    return "rows of y are not on 16-byte boundaries";
  if (const char* why = why_not_cache(c, c.k)) return why;
  return why_not_cache(c, c.v);
}

ek_status attention_sm90(const AttentionCall& c, const Launch& l) {
  if (c.tokens == 0 || c.batch == 0 || c.heads == 0) return EK_STATUS_OK;
  return c.T == EK_DTYPE_BF16 ? attention_sm90_run<bf16>(c, l) : attention_sm90_run<half>(c, l);
}

}  // namespace ek
