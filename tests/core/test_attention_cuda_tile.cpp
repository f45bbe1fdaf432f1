// SPDX-License-Identifier: Apache-2.0
// The tiles of attention_cuda_tile: none asks for more than a device has, they hold the heads they are for, small ones are
// for few rows, and what is refused is refused with a reason.
#include <initializer_list>

#include "check.h"
#include "ops/attention/attention_cuda_tile.h"

using namespace ek;

namespace {

Device gpu(int target, int processors, int smem) {
  Device d;
  d.id = {EK_DEVICE_CUDA, 0};
  d.target = target, d.processors = processors, d.smem_per_block = smem;
  return d;
}
const Device kH200 = gpu(90, 132, 232448), kA100 = gpu(80, 108, 166912), kL40 = gpu(89, 142, 101376);
const Device kT4 = gpu(75, 40, 65536);

alignas(16) char g_memory[16];

Tensor tensor(std::initializer_list<int64_t> shape) {
  Tensor t;
  t.data = g_memory, t.dtype = EK_DTYPE_F32;
  for (int64_t n : shape) t.shape[t.ndim++] = n;
  for (int64_t d = t.ndim - 1, step = 1; d >= 0; step *= t.shape[d--]) t.stride[d] = step;
  return t;
}

AttentionArgs dense(int64_t batch, int64_t heads, int64_t kv_heads, int64_t length, int64_t head_dim, int64_t v_dim) {
  AttentionArgs a = {};
  a.q = tensor({batch, length, heads, head_dim}), a.y = tensor({batch, length, heads, v_dim});
  a.k = tensor({batch, length, kv_heads, head_dim}), a.v = tensor({batch, length, kv_heads, v_dim});
  a.window_left = a.window_right = -1;
  a.T = EK_DTYPE_F32, a.lead = 2, a.rows = batch * length;
  a.heads = heads, a.kv_heads = kv_heads, a.head_dim = head_dim, a.v_dim = v_dim;
  a.pages = a.batch = batch, a.page_size = a.q_len = a.max_kv = length;
  return a;
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
