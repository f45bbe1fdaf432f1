// SPDX-License-Identifier: Apache-2.0
// What the rows of the gemm family are told: strides, dims of size 1, the product the other way round, gates, and the
// two halves of an mlp.
#include <initializer_list>

#include "check.h"
#include "ops/gemm/gemm_call.h"

using namespace ek;

namespace {

float g_memory[16];

Tensor tensor(float* data, std::initializer_list<int64_t> shape, std::initializer_list<int64_t> stride) {
  Tensor t;
  t.data = data;
  t.dtype = EK_DTYPE_F32;
  for (int64_t n : shape) t.shape[t.ndim++] = n;
  int d = 0;
  for (int64_t s : stride) t.stride[d++] = s;
  return t;
}

void check_matrix(const Matrix& x, const void* data, int64_t row, int64_t col, int64_t batch = 0) {
  CHECK(x.data == data);
  CHECK_EQ(x.row, row);
  CHECK_EQ(x.col, col);
  CHECK_EQ(x.batch, batch);
}

void strides() {
  float* p = g_memory;
  check_matrix(gemm_detail::matrix_of(tensor(p, {3, 5}, {7, 1})), p, 7, 1);
  check_matrix(gemm_detail::matrix_of(tensor(p, {3, 5}, {1, 4})), p, 1, 4);
  check_matrix(gemm_detail::matrix_of(tensor(p, {2, 3, 5}, {100, 7, 2})), p, 7, 2, 100);
  check_matrix(gemm_detail::matrix_of(tensor(p, {2, 3, 5}, {0, 7, 2})), p, 7, 2, 0);
  check_matrix(gemm_detail::matrix_of(tensor(p, {1, 3, 5}, {100, 7, 1})), p, 7, 1, 100);
  check_matrix(gemm_detail::matrix_of(tensor(p, {1, 3, 5}, {0, 5, 1})), p, 5, 1, 15);  // no shared matrix: the only one
  CHECK(gemm_detail::matrix_of(Tensor()).data == nullptr);

  // The stride of a dim of size 1 is kept where several rows could lie so, else it is a dense matrix's: rows of a table
  // that refuse two rows for their stride must refuse one, or a result would depend on the batch.
  for (int64_t any : {int64_t{0}, int64_t{1}, int64_t{3}, int64_t{1} << 40}) {
    check_matrix(gemm_detail::matrix_of(tensor(p, {1, 20}, {any, 1})), p, any < 20 ? 20 : any, 1);
    check_matrix(gemm_detail::matrix_of(tensor(p, {1, 20}, {any, 3})), p, 1, 3);
    check_matrix(gemm_detail::matrix_of(tensor(p, {20, 1}, {3, any})), p, 3, 1);
    check_matrix(gemm_detail::matrix_of(tensor(p, {1, 1}, {any, any})), p, any < 1 ? 1 : any, 1);
  }
}

GemmArgs gemm_args(bool d_by_columns) {
  float *a = g_memory, *b = a + 1, *c = a + 2, *d = a + 3;
  GemmArgs args = {};
  args.a = tensor(a, {3, 7}, {7, 1});
  args.b = tensor(b, {7, 5}, {1, 7});
  args.c = tensor(c, {3, 5}, {5, 1});
  args.d = d_by_columns ? tensor(d, {3, 5}, {1, 3}) : tensor(d, {3, 5}, {8, 1});
  args.alpha = 2;
  args.beta = 3;
  args.constant_b = true;
  args.T = args.D = EK_DTYPE_F32;
  args.m = 3, args.n = 5, args.k = 7;
  return args;
}

void products() {
  const GemmCall call = gemm_call(gemm_args(false));
  CHECK(call.m == 3 && call.n == 5 && call.k == 7 && call.n_out == 5 && call.batch == 1);
  CHECK(call.alpha == 2 && call.beta == 3 && call.out_scale == 1 && call.constant_b && call.plain());
  check_matrix(call.a, g_memory, 7, 1);
  check_matrix(call.b, g_memory + 1, 1, 7);
  check_matrix(call.c, g_memory + 2, 5, 1);
  check_matrix(call.d, g_memory + 3, 8, 1);

  GemmArgs unread = gemm_args(false);
  unread.beta = 0;
  CHECK(gemm_call(unread).c.data == nullptr);  // so that no row can read it

  // d by columns: d^T = b^T a^T, whose rows are contiguous. What was b is now a, and no longer known to be constant.
  const GemmCall turned = gemm_call(gemm_args(true));
  CHECK(turned.m == 5 && turned.n == 3 && turned.k == 7 && turned.n_out == 3 && !turned.constant_b);
  check_matrix(turned.a, g_memory + 1, 7, 1);
  check_matrix(turned.b, g_memory, 1, 7);
  check_matrix(turned.c, g_memory + 2, 1, 5);
  check_matrix(turned.d, g_memory + 3, 3, 1);

  // Neither by rows nor by columns: as it is.
  GemmArgs loose = gemm_args(false);
  loose.d = tensor(g_memory + 3, {3, 5}, {20, 2});
  CHECK(gemm_call(loose).m == 3);

  GemmBatchedArgs batched = {};
  batched.a = tensor(g_memory, {4, 3, 7}, {21, 7, 1});
  batched.b = tensor(g_memory + 1, {4, 7, 5}, {0, 5, 1});
  batched.d = tensor(g_memory + 3, {4, 3, 5}, {15, 1, 3});
  batched.alpha = 1;
  batched.T = EK_DTYPE_BF16, batched.D = EK_DTYPE_F32;
  batched.batch = 4, batched.m = 3, batched.n = 5, batched.k = 7;
  const GemmCall many = gemm_batched_call(batched);
  CHECK(many.batch == 4 && many.m == 5 && many.n == 3 && many.in == EK_DTYPE_BF16 && many.out == EK_DTYPE_F32);
  check_matrix(many.a, g_memory + 1, 1, 5, 0);
  check_matrix(many.b, g_memory, 1, 7, 21);
  check_matrix(many.d, g_memory + 3, 3, 1, 15);
}

void epilogues() {
  GemmEpilogueArgs args = {};
  args.a = tensor(g_memory, {3, 7}, {7, 1});
  args.b = tensor(g_memory + 1, {7, 10}, {10, 1});
  args.bias = tensor(g_memory + 4, {10}, {1});
  args.y = tensor(g_memory + 3, {3, 5}, {5, 1});
  args.act = EK_ACTIVATION_SILU;
  args.gated = true;
  args.out_scale = 0.5f;
  args.T = args.D = EK_DTYPE_F32;
  args.m = 3, args.n = 10, args.k = 7, args.n_out = 5;
  GemmCall call = gemm_epilogue_call(args);
  CHECK(call.gated && call.n == 10 && call.n_out == 5 && call.bias == g_memory + 4 && !call.plain());
  CHECK(call.beta == 0 && call.c.data == nullptr && call.alpha == 1 && call.out_scale == 0.5f);
  args.residual = args.y;
  call = gemm_epilogue_call(args);
  CHECK(call.beta == 1 && call.c.data == call.d.data);

  // y with a single column is not turned round: its columns are not those of b.
  args.y = tensor(g_memory + 3, {3, 1}, {1, 1});
  args.n = 2, args.n_out = 1;
  CHECK_EQ(gemm_epilogue_call(args).m, 3);
}

void mlps() {
  MlpArgs args = {};
  args.x = tensor(g_memory, {3, 7}, {7, 1});
  args.w1 = tensor(g_memory + 1, {7, 22}, {1, 7});
  args.b1 = tensor(g_memory + 4, {22}, {1});
  args.w2 = tensor(g_memory + 2, {11, 5}, {1, 11});
  args.b2 = tensor(g_memory + 5, {5}, {1});
  args.residual = tensor(g_memory + 6, {3, 5}, {5, 1});
  args.y = tensor(g_memory + 3, {3, 5}, {5, 1});
  args.act = EK_ACTIVATION_SILU;
  args.gated = true;
  args.constant_weights = true;
  args.T = EK_DTYPE_BF16;
  args.D = EK_DTYPE_F32;
  args.m = 3, args.k = 7, args.width = 22, args.inner = 11, args.n = 5;

  // Rows of the hidden layer begin on 16 bytes in every dtype.
  CHECK_EQ(mlp_hidden_pitch(args), 16);
  CHECK_EQ(mlp_hidden_bytes(args), 3u * 16 * 2);
  float hidden[1];
  const GemmCall first = mlp_first_call(args, hidden), second = mlp_second_call(args, hidden);
  CHECK(first.m == 3 && first.k == 7 && first.n == 22 && first.n_out == 11 && first.gated && first.constant_b);
  CHECK(first.act == EK_ACTIVATION_SILU && first.bias == g_memory + 4 && first.beta == 0 && !first.c.data);
  check_matrix(first.d, hidden, 16, 1);
  CHECK(first.in == EK_DTYPE_BF16 && first.out == EK_DTYPE_BF16);
  CHECK(second.in == EK_DTYPE_BF16 && second.out == EK_DTYPE_F32);
  CHECK(second.m == 3 && second.k == 11 && second.n == 5 && second.n_out == 5 && !second.gated && second.constant_b);
  CHECK(second.act == EK_ACTIVATION_NONE && second.bias == g_memory + 5 && second.beta == 1);
  check_matrix(second.a, hidden, 16, 1);
  check_matrix(second.b, g_memory + 2, 1, 11);
  check_matrix(second.c, g_memory + 6, 5, 1);
  check_matrix(second.d, g_memory + 3, 5, 1);
  args.constant_weights = false;
  CHECK(!mlp_first_call(args, hidden).constant_b && !mlp_second_call(args, hidden).constant_b);
}

// Parts of a product with more tiles than a grid holds: side by side they are the whole, and each has its own corner of
// every matrix.
void parts(int64_t m, int64_t n, bool gated, int expected) {
  GemmCall c;
  c.in = EK_DTYPE_BF16, c.out = EK_DTYPE_F32;
  c.m = m, c.n = n, c.n_out = gated ? n / 2 : n, c.k = 8, c.gated = gated;
  // Never read: pointers are offsets from here.
  char* const base = reinterpret_cast<char*>(uintptr_t{1} << 20);
  c.a = {base, 8, 1, 0};
  c.b = {base, 1, 8, 0};
  c.d = {base, c.n_out, 1, 0};
  c.bias = base;
  const auto offset = [&](const void* p) { return static_cast<const char*>(p) - base; };
  int count = 0;
  int64_t area = 0;
  const ek_status status = gemm_for_each_part(c, 32, 64, [&](const GemmCall& part) {
    ++count;
    area += part.m * part.n;
    CHECK(part.m > 0 && part.n > 0 && gemm_tiles(part, 32, 64) <= kGemmMaxBlocks);
    CHECK(part.n_out == (gated ? part.n / 2 : part.n) && !part.c.data);
    const int64_t row = offset(part.a.data) / 16, col = offset(part.b.data) / 16;
    CHECK(row % 32 == 0 && col % 64 == 0 && row + part.m <= m && col + part.n <= n);
    CHECK_EQ(offset(part.bias), 2 * col);
    CHECK_EQ(offset(part.d.data), 4 * (row * c.n_out + (gated ? col / 2 : col)));
    return EK_STATUS_OK;
  });
  CHECK(status == EK_STATUS_OK);
  CHECK_EQ(count, expected);
  CHECK_EQ(area, m * n);
}

}  // namespace

int main() {
  strides();
  products();
  epilogues();
  mlps();
  const int64_t most = 0x7fffffff;
  parts(100, 200, false, 1);
  parts(1, 64 * most, false, 1);
  parts(1, 64 * most + 1, false, 2);
  parts(33, 64 * most, false, 2);
  parts(32 * most + 5, 1, false, 2);
  parts(100, 64 * most + 2, true, 8);
  return check::report("gemm_call");
}
