// SPDX-License-Identifier: Apache-2.0
// The blocks and warps of attention_decode_cuda_split: every key is some warp's and no step is for nothing, one wave where
// items allow it, clusters only where they are all there at once, and nothing of the batch in batch-invariant calls.
#include <initializer_list>
#include <vector>

#include "check.h"
#include "ops/attention/attention_decode_cuda_split.h"

using namespace ek;

namespace {

Device gpu(int target, int processors, int smem) {
  Device d;
  d.id = {EK_DEVICE_CUDA, 0};
  d.target = target, d.processors = processors, d.smem_per_block = smem;
  return d;
}
const Device kH200 = gpu(90, 132, 232448), kA100 = gpu(80, 108, 166912), kT4 = gpu(75, 40, 65536);

AttentionCall call(ek_dtype K, int64_t batch, int64_t heads, int64_t kv_heads, int64_t keys, int64_t dim,
                   int64_t q_len = 1) {
  AttentionCall c = {};
  c.batch = batch, c.heads = heads, c.kv_heads = kv_heads, c.head_dim = c.v_dim = dim;
  c.seqs.q_len = q_len, c.seqs.max_kv = keys;
  c.mask = {true, -1, -1};
  c.T = EK_DTYPE_BF16, c.K = K;
  return c;
}

void any() {
  for (int step : {4, 8, 32})
    for (int warps : {7, 8})
      for (int processors : {1, 7, 108, 132})
        for (int most : {1, 8})
          for (int64_t items : {0, 1, 2, 8, 33, 128, 1000, 100000})
            for (int64_t keys : {0, 1, 31, 128, 740, 8192, 1 << 20}) {
              const DecodeCoreRoom room = {step, warps, processors, most};
              const DecodeCores c = decode_cores(items, keys, room, false);
              CHECK(c.parts >= 1 && c.parts <= most && (c.parts & (c.parts - 1)) == 0);
              CHECK(c.warps >= 1 && c.warps <= warps && c.steps >= 1);
              // All keys, and fewer steps would not be enough
              const int64_t once = int64_t{c.parts} * c.warps * step;
              CHECK(c.steps * once >= keys && (c.steps == 1 || (c.steps - 1) * once < keys));
              CHECK(items * c.parts * c.warps <= int64_t{processors} * (kCoreWarps + c.parts) ||
                    c.parts * c.warps == 1);
              if (c.parts > 1) {
                CHECK(items * c.parts <= processors);
                CHECK(items <= (AttentionRoom{processors, 2, most}.at_once(c.parts)));
              }
              // The same whatever there is
              const DecodeCores fixed = decode_cores(items, keys, room, true);
              CHECK(fixed.parts == (most < kCoreFixedParts ? most : kCoreFixedParts) && fixed.warps == kCoreFixedWarps);
            }
}

void check(const AttentionCall& c, const Device& device, int parts, int warps, int64_t steps, bool wins) {
  const DecodeCores cores = decode_cores(c, device, false);
  CHECK_EQ(cores.parts, parts);
  CHECK_EQ(cores.warps, warps);
  CHECK_EQ(cores.steps, steps);
  CHECK_EQ(decode_cores_win(c, device), wins);
}

void some() {
  // One row: a warp's step is 32 keys of 64 bytes
  check(call(EK_DTYPE_E4M3, 1, 32, 32, 740, 64), kH200, 4, 3, 2, true);
  check(call(EK_DTYPE_E4M3, 1, 32, 32, 1024, 64), kH200, 4, 4, 2, true);
  check(call(EK_DTYPE_E4M3, 4, 32, 32, 740, 64), kH200, 1, 8, 3, true);
  check(call(EK_DTYPE_E4M3, 8, 32, 32, 512, 64), kH200, 1, 4, 4, true);
  check(call(EK_DTYPE_E4M3, 16, 32, 32, 256, 64), kH200, 1, 2, 4, true);
  check(call(EK_DTYPE_E4M3, 32, 32, 32, 128, 64), kH200, 1, 1, 4, true);
  // Four rows: 8 keys of 256 bytes
  check(call(EK_DTYPE_BF16, 1, 32, 8, 1024, 128), kH200, 8, 8, 2, true);
  check(call(EK_DTYPE_BF16, 32, 32, 8, 128, 128), kH200, 1, 4, 4, true);
  check(call(EK_DTYPE_BF16, 8, 32, 8, 512, 128), kH200, 2, 8, 4, true);
  check(call(EK_DTYPE_BF16, 1, 32, 8, 300, 128), kH200, 8, 3, 2, true);
  check(call(EK_DTYPE_BF16, 1, 32, 8, 8192, 128), kH200, 8, 8, 16, false);  // 34 MB
  check(call(EK_DTYPE_BF16, 8, 32, 8, 2048, 128), kH200, 2, 8, 16, false);  // 67 MB
  check(call(EK_DTYPE_BF16, 1, 4, 1, 16384, 128), kH200, 8, 8, 32, false);  // 8 SMs for 8 MB
  check(call(EK_DTYPE_BF16, 1, 32, 8, 1024, 128), kA100, 1, 8, 16, false);  // no clusters
  check(call(EK_DTYPE_E4M3, 1, 32, 32, 1024, 64), kT4, 1, 7, 5, false);     // little shared memory
  check(call(EK_DTYPE_BF16, 0, 32, 8, 1024, 128), kH200, 8, 8, 2, true);
  check(call(EK_DTYPE_BF16, 1, 32, 8, 0, 128), kH200, 1, 1, 1, true);
  // Keys outside of a window do not count
  AttentionCall c = call(EK_DTYPE_BF16, 8, 32, 8, 1 << 20, 128);
  CHECK(!decode_cores_win(c, kH200));
  c.mask.window_left = 511;
  check(c, kH200, 2, 8, 4, true);
  // The batch changes nothing in batch-invariant calls
  for (int64_t batch : {1, 7, 5000}) {
    const DecodeCores cores = decode_cores(call(EK_DTYPE_I8, batch, 8, 8, 100 * batch, 64), kH200, true);
    CHECK(cores.parts == kCoreFixedParts && cores.warps == kCoreFixedWarps);
  }
}

}  // namespace

int main() {
  any();
  some();
  return check::report("attention_decode_cores");
}
