// SPDX-License-Identifier: Apache-2.0
// The tiles of attention_sm80: none asks for more than a device has, batch and lengths never change the steps in which
// keys are added up, blocks cover every tile of queries once, and what is refused is refused with a reason. And
// attention_decode_sm80's blocks have room for warps on every device.
#include <set>
#include <tuple>

#include "attention_calls.h"
#include "check.h"
#include "ops/attention/attention_sm80_config.h"

struct float2;  // CUDA's
#include "ops/attention/attention_decode_sm80.h"

using namespace ek;

namespace {

AttentionArgs dense(int64_t batch, int64_t heads, int64_t kv_heads, int64_t length, int64_t head_dim, int64_t v_dim) {
  return attention_dense(EK_DTYPE_BF16, batch, heads, kv_heads, length, head_dim, v_dim);
}

void tiles() {
  for (const Device& device : {kH200, kA100, kL40})
    for (int64_t d = 8; d <= 512; d += 8)
      for (int64_t v : {int64_t{8}, int64_t{64}, int64_t{128}, d, int64_t{1024}}) {
        const AttentionArgs a = dense(4, 8, 2, 4096, d, v);
        CHECK(sm80_why_not(a, device) == nullptr);
        const Sm80Tile& t = kSm80Tiles[sm80_tile(attention_call(a), device)];
        CHECK(t.head_dim >= d && t.smem <= device.smem_per_block);
        CHECK(t.v_dim * sm80_parts(attention_call(a), t) >= v);
        // The one choice that depends on the batch is between tiles for the same dims.
        const Sm80Tile& one = kSm80Tiles[sm80_tile(attention_call(dense(1, 8, 2, 16, d, v)), device)];
        CHECK(one.head_dim == t.head_dim && one.v_dim == t.v_dim);
      }
  CHECK_EQ(sm80_tile(attention_call(dense(4, 32, 32, 4096, 128, 128)), kH200), 1);
  CHECK_EQ(sm80_tile(attention_call(dense(1, 8, 8, 128, 128, 128)), kH200), 2);   // fewer blocks than SMs
  CHECK_EQ(sm80_tile(attention_call(dense(64, 32, 8, 16, 128, 128)), kH200), 2);  // 64 rows are all there are
  CHECK_EQ(sm80_tile(attention_call(dense(4, 16, 16, 4096, 192, 128)), kH200), 3);
  CHECK_EQ(sm80_tile(attention_call(dense(4, 16, 16, 4096, 192, 192)), kH200), 4);
  CHECK_EQ(sm80_tile(attention_call(dense(1, 8, 1, 4096, 512, 512)), kH200), 5);
  CHECK_EQ(sm80_tile(attention_call(dense(1, 8, 1, 4096, 512, 512)), kL40), 6);
}

void blocks() {
  for (uint32_t tiles : {1u, 2u, 7u})
    for (uint32_t kv_heads : {1u, 3u, 8u})
      for (uint32_t parts : {1u, 2u})
        for (uint32_t section = 1; section <= kv_heads; ++section) {
          std::set<std::tuple<uint32_t, uint32_t, uint32_t>> seen;
          for (uint32_t i = 0; i < tiles * kv_heads * parts; ++i) {
            const Sm80Unit u = sm80_unit(i, tiles, kv_heads, parts, section);
            CHECK(u.tile < tiles && u.kv_head < kv_heads && u.part < parts);
            seen.insert({u.tile, u.kv_head, u.part});
          }
          CHECK_EQ(seen.size(), size_t{tiles} * kv_heads * parts);
        }
  // With cu_q the lengths are not known: there are blocks enough however the tokens are divided.
  AttentionCall c = attention_call(dense(1, 6, 2, 1000, 64, 64));
  const int32_t cu_q[] = {0, 1, 1, 900, 1000};
  c.seqs.cu_q = cu_q, c.batch = 4;
  int64_t need = 0;
  for (int b = 0; b < 4; ++b) need += (c.seqs.q_count(b) * 3 + 127) / 128;
  CHECK(sm80_blocks(c, kSm80Tiles[0]) >= need * 2);
}

// What a block keeps of each row: from query to query a range moves by one key at most, at either end.
void ranges() {
  for (bool causal : {false, true})
    for (int left : {-1, 0, 3})
      for (int right : {-1, 0, 2})
        for (int64_t kv_len = 0; kv_len < 9; ++kv_len)
          for (int64_t q_len = 1; q_len < 9; ++q_len)
            for (int64_t prefix = 0; prefix <= (causal ? kv_len + 1 : 0); ++prefix)
              for (int64_t i = 1; i < q_len; ++i) {
                const Mask mask = {causal, left, right};
                const KeyRange a = visible(mask, i - 1, q_len, kv_len, prefix);
                const KeyRange b = visible(mask, i, q_len, kv_len, prefix);
                CHECK(b.begin - a.begin >= 0 && b.begin - a.begin <= 1);
                CHECK(b.end - a.end >= 0 && b.end - a.end <= 1);
              }
}

void decode_groups() {
  for (const Device& device : {kH200, kA100, kL40})
    for (int64_t d = 8; d <= 512; d += 8)
      for (ek_dtype cache : {EK_DTYPE_BF16, EK_DTYPE_E4M3})
        for (int64_t heads : {2, 4, 16}) {
          AttentionCall c = attention_call(dense(1, heads, 1, 4096, d, d));
          c.K = cache;
          c.seqs.q_len = 1;
          CHECK(decode_shape_sm80(c, device).groups >= (d <= 256 ? 2 : 1));
        }
}

void refusals() {
  AttentionArgs a = dense(2, 8, 2, 64, 60, 64);
  CHECK_TEXT(sm80_why_not(a, kH200), "head_dim or v_dim is not a multiple of 8");
  a = dense(2, 8, 2, 64, 64, 64);
  a.k.stride[2] += 4;
  CHECK_CONTAINS(sm80_why_not(a, kH200), "16-byte boundaries");
  a = dense(2, 8, 2, 64, 64, 64);
  a.T = EK_DTYPE_F32;
  CHECK_TEXT(sm80_why_not(a, kH200), "the inputs are f32");
  CHECK_CONTAINS(sm80_why_not(dense(2, 8, 2, 64, 520, 64), kH200), "more than 512");
  CHECK_CONTAINS(sm80_why_not(dense(1, 8, 2, int64_t{1} << 31, 64, 64), kH200), "2^31");
}

}  // namespace

int main() {
  tiles();
  blocks();
  ranges();
  decode_groups();
  refusals();
  return check::report("attention_sm80");
}
