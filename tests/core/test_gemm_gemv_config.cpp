// SPDX-License-Identifier: Apache-2.0
// How products with few rows are cut into blocks (gemm_gemv.cu), and the tile that mma.sync kernels take: every element of
// b belongs to exactly one block, nobody has nothing to do, and shared memory is not asked for beyond what there is.
#include <initializer_list>

#include "check.h"
#include "ops/gemm/gemm_gemv_config.h"

using namespace ek;

namespace {

Device device_with(int processors) {
  Device d;
  d.id = {EK_DEVICE_CUDA, 0};
  d.target = 90;
  d.processors = processors;
  d.smem_per_block = 232448;
  return d;
}

alignas(16) char g_memory[16];

// along_k: b lies contiguous along k, as weights do; else along n.
GemmCall product(int64_t m, int64_t n, int64_t k, int64_t batch, bool along_k, ek_dtype dtype) {
  GemmCall c;
  c.in = c.out = dtype;
  c.m = m, c.n = c.n_out = n, c.k = k, c.batch = batch;
  const int64_t wide_k = (k + 7) / 8 * 8, wide_n = (n + 7) / 8 * 8;
  c.a = {g_memory, wide_k, 1, m * wide_k};
  c.b = along_k ? Matrix{g_memory, 1, wide_k, n * wide_k} : Matrix{g_memory, wide_n, 1, k * wide_n};
  c.d = {g_memory, wide_n, 1, m * wide_n};
  return c;
}

void all_of_b_once() {
  for (const int processors : {1, 24, 132, 148})
    for (const bool along_k : {false, true})
      for (const ek_dtype dtype : {EK_DTYPE_BF16, EK_DTYPE_F32})
        for (const int64_t batch : {1, 3, 1000})
          for (const int64_t n : {1, 7, 64, 100, 1024, 4097, 57344})
            for (const int64_t k : {1, 8, 63, 256, 1000, 4096, 14336, 28672})
              for (int64_t m = 1; m <= kGemvMostRows; ++m) {
                const Device device = device_with(processors);
                const GemmCall c = product(m, n, k, batch, along_k, dtype);
                const GemvConfig g = gemv_config(c, device);
                CHECK_EQ(g.along_k, along_k);
                CHECK(g.rows >= m && g.rows < 2 * m && (g.rows & (g.rows - 1)) == 0);
                const int64_t columns = along_k ? g.columns * (kGemvThreads / g.threads) : g.columns;
                CHECK(g.blocks * columns >= n && (g.blocks - 1) * columns < n);
                CHECK_EQ(g.sums, columns * g.rows);
                // The last block of a split takes what is left of k, and there is something left.
                CHECK(g.splits >= 1 && (g.splits - 1) * g.range < k);
                if (!along_k) CHECK(g.splits * g.range >= k);
                if (along_k) {
                  const int64_t unit = 16 / dtype_bytes(dtype);
                  CHECK(g.splits == 1 || g.range % unit == 0);
                  CHECK(g.splits * g.range + unit > k || g.splits * g.range >= k / unit * unit);
                  CHECK(g.threads >= 32 && kGemvThreads % g.threads == 0);
                }
                const int piece = gemv_bulk_piece(c, g, device);
                if (piece) {
                  CHECK(along_k && g.splits == 1 && batch == 1);
                  CHECK(gemv_bulk_smem(c, g.rows, piece) <= static_cast<size_t>(device.smem_per_block));
                }
                CHECK(gemv_slab(c) >= 1 && gemv_slab(c) <= 65535);
              }
}

void fills_the_device() {
  const Device device = device_with(132);
  const GemvConfig few = gemv_config(product(1, 64, 8192, 1, true, EK_DTYPE_BF16), device);
  CHECK(few.splits > 1 && few.splits <= 16);  // 16 columns to a block: k is shared out
  CHECK_EQ(gemv_config(product(1, 57344, 8192, 1, true, EK_DTYPE_BF16), device).splits, 1);
  CHECK(gemv_bulk_piece(product(1, 57344, 8192, 1, true, EK_DTYPE_BF16),
                        gemv_config(product(1, 57344, 8192, 1, true, EK_DTYPE_BF16), device), device));
}

void tiles_of_mma() {
  const Device device = device_with(132);
  const auto tile = [&](int64_t m, int64_t n, int first) {
    return gemm_mma_tile(product(m, n, 4096, 1, true, EK_DTYPE_BF16), device, first);
  };
  CHECK_EQ(tile(8192, 8192, 0), 0);  // many waves: the tile that reads shared memory least
  CHECK_EQ(tile(64, 64, 0), 2);      // one block either way: the smallest
  CHECK_EQ(tile(8192, 8192, 1), 1);  // a device without room for the first
  for (const int64_t m : {1, 64, 100, 1000, 5000})
    for (const int64_t n : {8, 300, 4096}) CHECK(tile(m, n, 1) >= 1 && tile(m, n, 1) <= 2);
}

void layouts() {
  GemmCall c = product(4, 64, 64, 1, true, EK_DTYPE_BF16);
  CHECK(gemm_layout_of_b(c) == GemmLayout::kAlongK && gemm_layout_of_a(c) == GemmLayout::kAlongK);
  CHECK(!gemm_mma_why_not(c));
  CHECK(gemm_layout_of_b(product(4, 64, 64, 1, false, EK_DTYPE_BF16)) == GemmLayout::kAcross);
  c.b.col = 65;  // columns that begin off every 16 bytes
  CHECK(gemm_layout_of_b(c) == GemmLayout::kNeither && gemm_mma_why_not(c));
  c = product(4, 64, 64, 1, true, EK_DTYPE_BF16);
  c.a.data = g_memory + 2;
  CHECK(gemm_layout_of_a(c) == GemmLayout::kNeither && gemm_mma_why_not(c));
}

// What no grid holds is known to the rows before they launch it.
void grids() {
  const Device device = device_with(132);
  const int64_t n = int64_t{1} << 33;
  const auto blocks = [&](int64_t columns) {
    return gemv_config(product(1, columns, 8192, 1, true, EK_DTYPE_BF16), device).blocks;
  };
  CHECK(blocks(n - 4) <= kGemmMaxBlocks && blocks(n) > kGemmMaxBlocks);
  const int64_t most = (int64_t{1} << 31) - 1024;
  CHECK(!gemm_mma_why_not(product(64 * 64, most, 8, 1, true, EK_DTYPE_BF16)));
  CHECK(gemm_mma_why_not(product(64 * 65, most, 8, 1, true, EK_DTYPE_BF16)));
  CHECK(gemm_mma_why_not(product(1, most + 1, 8, 1, true, EK_DTYPE_BF16)));
}

}  // namespace

int main() {
  all_of_b_once();
  fills_the_device();
  tiles_of_mma();
  layouts();
  grids();
  return check::report("gemm_gemv_config");
}
