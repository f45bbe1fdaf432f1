// SPDX-License-Identifier: Apache-2.0
// The tiles of attention_cuda_tile: none asks for more than a device has, they hold the heads they are for, small ones are
// for few rows, and what is refused is refused with a reason.
#include "attention_calls.h"
#include "check.h"
#include "ops/attention/attention_cuda_tile.h"

using namespace ek;

namespace {

AttentionArgs dense(int64_t batch, int64_t heads, int64_t kv_heads, int64_t length, int64_t head_dim, int64_t v_dim) {
  return attention_dense(EK_DTYPE_F32, batch, heads, kv_heads, length, head_dim, v_dim);
}

int chosen(const AttentionArgs& a, const Device& device) { return cuda_tile(attention_call(a), device); }
AttentionArgs causal(AttentionArgs a) {
  a.causal = true;
  return a;
}

void tiles() {
  for (const Device& device : {kH200, kA100, kL40, kT4})
    for (int64_t d = 4; d <= (device.target == 75 ? 128 : 256); d += 4)
      for (int64_t v : {int64_t{4}, int64_t{64}, int64_t{128}, d, int64_t{1024}})
        for (int64_t length : {int64_t{1}, int64_t{100}, int64_t{4096}}) {
          const AttentionArgs a = dense(4, 8, 2, length, d, v);
          CHECK(cuda_tile_why_not(a, device) == nullptr);
          const Sm80Tile& t = kCudaTiles[cuda_tile(attention_call(a), device)];
          CHECK(t.head_dim >= d && t.smem <= device.smem_per_block);
          CHECK(t.v_dim * sm80_parts(attention_call(a), t) >= v);
        }
  CHECK_EQ(chosen(dense(4, 32, 32, 4096, 64, 64), kH200), 0);
  CHECK_EQ(chosen(dense(2, 32, 8, 2048, 128, 128), kH200), 3);
  CHECK_EQ(chosen(dense(1, 32, 8, 256, 128, 128), kH200), 4);   // 64 blocks of 128 rows, but 128 of 64
  CHECK_EQ(chosen(dense(1, 32, 8, 64, 128, 128), kH200), 6);    // 32 of 64
  CHECK_EQ(chosen(dense(512, 32, 8, 4, 128, 128), kH200), 6);   // 16 rows are all there are
  CHECK_EQ(chosen(dense(512, 32, 8, 16, 128, 128), kH200), 4);  // 64
  CHECK_EQ(chosen(dense(2, 32, 8, 2048, 128, 128), kL40), 4);
  CHECK_EQ(chosen(dense(2, 32, 8, 2048, 128, 128), kT4), 5);
  CHECK_EQ(chosen(dense(4, 16, 16, 4096, 192, 128), kH200), 7);
  CHECK_EQ(chosen(dense(4, 16, 16, 4096, 192, 192), kH200), 8);
  CHECK_EQ(chosen(dense(4, 16, 16, 4096, 256, 256), kL40), 9);
}

// The fastest of all tiles in each case that was measured on the H200.
void measured() {
  CHECK_EQ(chosen(causal(dense(2, 32, 8, 2048, 128, 128)), kH200), 3);
  CHECK_EQ(chosen(dense(4, 32, 32, 2048, 64, 64), kH200), 0);
  CHECK_EQ(chosen(causal(dense(4, 32, 32, 2048, 64, 64)), kH200), 1);  // 128 queries see up to 127 keys in vain
  CHECK_EQ(chosen(causal(dense(1, 16, 16, 2048, 192, 128)), kH200), 7);
  CHECK_EQ(chosen(causal(dense(1, 16, 8, 2048, 256, 256)), kH200), 8);
  CHECK_EQ(chosen(dense(3, 16, 16, 729, 72, 72), kH200), 4);  // 288 blocks of 128 rows, of which 264 run at once
  CHECK_EQ(chosen(causal(dense(1, 32, 8, 256, 128, 128)), kH200), 4);
  AttentionArgs a = causal(dense(1, 32, 8, 4096, 128, 128));
  a.rows = a.q_len = 64;
  CHECK_EQ(chosen(a, kH200), 6);
  a.rows = a.q_len = 1;
  CHECK_EQ(chosen(a, kH200), 6);
}

void refusals() {
  AttentionArgs a = dense(2, 8, 2, 64, 66, 64);
  CHECK_TEXT(cuda_tile_why_not(a, kH200), "head_dim or v_dim is not a multiple of 4");
  a = dense(2, 8, 2, 64, 64, 64);
  a.v.stride[2] += 2;
  CHECK_CONTAINS(cuda_tile_why_not(a, kH200), "16-byte boundaries");
  a = dense(2, 8, 2, 64, 64, 64);
  a.T = EK_DTYPE_F16;
  CHECK_TEXT(cuda_tile_why_not(a, kH200), "the inputs are not f32");
  CHECK_CONTAINS(cuda_tile_why_not(dense(2, 8, 2, 64, 260, 64), kH200), "more than 256");
  CHECK_CONTAINS(cuda_tile_why_not(dense(2, 8, 2, 64, 192, 64), kT4), "too little shared memory");
  CHECK_CONTAINS(cuda_tile_why_not(dense(1, 8, 2, int64_t{1} << 31, 64, 64), kH200), "2^31");
}

}  // namespace

int main() {
  tiles();
  measured();
  refusals();
  return check::report("attention_cuda_tile");
}
