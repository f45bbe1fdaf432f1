// SPDX-License-Identifier: Apache-2.0
// Attention on the CPU. A task is kRows rows of one sequence and kv head; a row is a query of one of the heads that share
// the kv head, (query, head) in this order, so that keys and values are read once for all of them. Keys go by in tiles
// of kKeys from the sequence's first, converted to f32: scores, then an online softmax, then the sum of values, all f32.
// A row leaves out what it does not see, in whole tiles or parts of one. So its bits depend on its own keys alone, not on
// the other rows of the task, and a NaN that it does not see never reaches it.
#include "ops/attention/attention_cpu.h"

#include <cstdlib>

#include "cpu/convert.h"
#include "cpu/math.h"
#include "cpu/parallel.h"
#include "cpu/reduce.h"
#include "cpu/rows.h"

namespace ek::EK_CPU_NS {
namespace {

// A tile of K and V at head_dim 128 is 64 KiB, which L2 has; 32 rows use it before it goes.
constexpr int64_t kRows = 32, kKeys = 64;
constexpr int64_t kMostDim = 1024;  // head_dim and v_dim: the schema's limit
constexpr int64_t kTerms =
    16;  // that are added up by themselves: the error of a sum grows with the length of its chain
constexpr float kInfinity = __builtin_inff();

EK_INLINE int64_t round_up(int64_t n, int64_t to) { return ceil_div(n, to) * to; }

// n elements from `at` on to f32; dst has room for padded(n).
void load_any(ek_dtype dtype, const void* data, int64_t at, int64_t n, float* dst) {
  switch (dtype) {
    case EK_DTYPE_F32: return load(static_cast<const f32*>(data) + at, n, dst);
    case EK_DTYPE_F16: return load(static_cast<const f16*>(data) + at, n, dst);
    case EK_DTYPE_BF16: return load(static_cast<const bf16*>(data) + at, n, dst);
    case EK_DTYPE_E4M3: return load(static_cast<const e4m3*>(data) + at, n, dst);
    default: return load(static_cast<const i8*>(data) + at, n, dst);
  }
}

// One row of a task: a query and a head.
struct Row {
  int64_t token, head;  // of all tokens
  int64_t position;     // p of the mask rule
  KeyRange keys;
  float slope;
  float max, sum;  // of the scores so far, and of exp(score - max)
};

// What a task works in. Widths are rounded up to whole rounds of the sums below.
struct Scratch {
  float* q;    // [kRows][q_width]
  float* k;    // [head_dim][kKeys]: transposed, so that one q element meets a vector of keys
  float* v;    // [kKeys][v_width]
  float* acc;  // [kRows][v_width]
  float k_scale[kKeys], v_scale[kKeys];
  Row rows[kRows];
};

struct Task {
  const AttentionCall& call;
  const RowWalk<3>& walk;  // tokens of q, y, lse
  int64_t group, q_width, v_width;

  // ---- tiles -------------------------------------------------------------------------------------------------------

  // Keys [first, first + kKeys) that are in `need`; the others become 0 and are not read.
  void load_tile(int64_t sequence, int64_t kv_head, int64_t first, KeyRange need, Scratch& s) const {
    const AttentionCall& c = call;
    float line[kMostDim];
    for (int64_t j = 0; j < kKeys; ++j) {
      const int64_t t = first + j;
      float* v = s.v + j * v_width;
      s.k_scale[j] = s.v_scale[j] = 1.f;
      if (t < need.begin || t >= need.end) {
        for (int64_t d = 0; d < c.head_dim; ++d) s.k[d * kKeys + j] = 0.f;
        for (int64_t d = 0; d < v_width; ++d) v[d] = 0.f;
        continue;
      }
      const Sequences::Place at = c.seqs.place(sequence, t);
      load_any(c.K, c.k.data, at.page * c.k.page + at.slot * c.k.slot + kv_head * c.k.head, c.head_dim, line);
      for (int64_t d = 0; d < c.head_dim; ++d) s.k[d * kKeys + j] = line[d];
      load_any(c.K, c.v.data, at.page * c.v.page + at.slot * c.v.slot + kv_head * c.v.head, c.v_dim, v);
      for (int64_t d = padded(c.v_dim); d < v_width; ++d) v[d] = 0.f;
      if (c.k.scale) s.k_scale[j] = c.k.scale[scale_at(c.k, at, kv_head)];
      if (c.v.scale) s.v_scale[j] = c.v.scale[scale_at(c.v, at, kv_head)];
    }
  }
  static EK_INLINE int64_t scale_at(const KvCache& x, Sequences::Place at, int64_t head) {
    return at.page * x.scale_page + at.slot * x.scale_slot + head * x.scale_head;
  }

  // out[j] = q k for all keys of the tile.
  void dot_tile(const float* __restrict q, const float* __restrict k, float* __restrict out) const {
    for (int64_t j = 0; j < kKeys; j += kSums) {
      Vector sums[kVectors] = {};
      for (int64_t first = 0; first < call.head_dim; first += kTerms) {
        Vector part[kVectors] = {};
        for (int64_t d = first; d < min_of(first + kTerms, call.head_dim); ++d)
          for (int i = 0; i < kVectors; ++i) part[i] += q[d] * vector_at(k + d * kKeys + j + i * kVectorFloats);
        for (int i = 0; i < kVectors; ++i) sums[i] += part[i];
      }
      __builtin_memcpy(out + j, sums, sizeof sums);
    }
  }

  // acc = acc * keep + sum of p[j] v[j] for j in [begin, end).
  void add_values(const float* __restrict p, const float* __restrict v, int64_t begin, int64_t end, float keep,
                  float* __restrict acc) const {
    for (int64_t d = 0; d < v_width; d += kSums) {
      Vector before[kVectors], sums[kVectors] = {};
      __builtin_memcpy(before, acc + d, sizeof before);
      for (int64_t first = begin; first < end; first += kTerms) {
        Vector part[kVectors] = {};
        for (int64_t j = first; j < min_of(first + kTerms, end); ++j)
          for (int i = 0; i < kVectors; ++i) part[i] += p[j] * vector_at(v + j * v_width + d + i * kVectorFloats);
        for (int i = 0; i < kVectors; ++i) sums[i] += part[i];
      }
      for (int i = 0; i < kVectors; ++i) sums[i] += before[i] * keep;
      __builtin_memcpy(acc + d, sums, sizeof sums);
    }
  }

  // ---- one row and one tile ----------------------------------------------------------------------------------------

  void row_tile(Scratch& s, int64_t r, int64_t first) const {
    Row& row = s.rows[r];
    const int64_t begin = max_of<int64_t>(row.keys.begin - first, 0);
    const int64_t end = min_of<int64_t>(row.keys.end - first, kKeys);
    if (begin >= end) return;
    float p[kKeys];
    dot_tile(s.q + r * q_width, s.k, p);

    // Scores
    const float scale = call.scale, softcap = call.softcap;
    for (int64_t j = 0; j < kKeys; ++j) p[j] *= scale * s.k_scale[j];
    if (softcap > 0.f)
      for (int64_t j = 0; j < kKeys; ++j) p[j] = softcap * Math::tanh(p[j] / softcap);
    if (row.slope != 0.f) {
      const float away = static_cast<float>(row.position - first);
      for (int32_t j = 0; j < kKeys; ++j) p[j] -= row.slope * __builtin_fabsf(away - static_cast<float>(j));
    }
    for (int64_t j = 0; j < begin; ++j) p[j] = -kInfinity;
    for (int64_t j = end; j < kKeys; ++j) p[j] = -kInfinity;

    // Softmax so far. A maximum of -inf, of scores that all are, is taken as 0: inf - inf would be NaN.
    float most = row.max;
    for (int64_t j = 0; j < kKeys; ++j) most = p[j] > most ? p[j] : most;
    const float base = most == -kInfinity ? 0.f : most;
    const float keep = Math::exp(row.max - base);
    for (int64_t j = 0; j < kKeys; ++j) p[j] = Math::exp(p[j] - base);
    row.sum = row.sum * keep + sum(p, kKeys);
    row.max = most;

    if (call.v.scale)
      for (int64_t j = begin; j < end; ++j) p[j] *= s.v_scale[j];
    add_values(p, s.v, begin, end, keep, s.acc + r * v_width);
  }

  // ---- rows --------------------------------------------------------------------------------------------------------

  void start_row(Scratch& s, int64_t r, int64_t sequence, int64_t query, int64_t head) const {
    const int64_t q_len = call.seqs.q_count(sequence), kv_len = call.seqs.kv_count(sequence);
    Row& row = s.rows[r];
    row.token = call.seqs.q_begin(sequence) + query;
    row.head = head;
    row.position = query + kv_len - q_len;
    row.keys = visible(call.mask, query, q_len, kv_len, call.seqs.prefix(sequence));
    row.slope = call.alibi ? call.alibi[head] : 0.f;
    row.max = -kInfinity, row.sum = 0.f;
    int64_t at[3];
    walk.offsets(row.token, at);
    load_any(call.T, call.q.data, at[0] + head * call.q.stride[call.lead], call.head_dim, s.q + r * q_width);
    for (int64_t d = 0; d < v_width; ++d) s.acc[r * v_width + d] = 0.f;
  }

  void finish_row(Scratch& s, int64_t r) const {
    Row& row = s.rows[r];
    float* acc = s.acc + r * v_width;
    float factor = 1.f;
    if (call.sinks) {
      const float sink = call.sinks[row.head];
      const float most = sink > row.max ? sink : row.max, base = most == -kInfinity ? 0.f : most;
      factor = Math::exp(row.max - base);
      row.sum = row.sum * factor + Math::exp(sink - base);
      row.max = most;
    }
    factor = row.sum == 0.f ? 0.f : factor / row.sum;
    for (int64_t d = 0; d < v_width; ++d) acc[d] *= factor;
    int64_t at[3];
    walk.offsets(row.token, at);
    with_float(call.T, [&](auto type) {
      using T = typename decltype(type)::type;
      store(acc, call.v_dim, data_of<T>(call.y) + at[1] + row.head * call.y.stride[call.lead]);
    });
    if (call.lse) {
      const float lse = row.sum == 0.f ? -kInfinity : row.max + __builtin_logf(row.sum);
      data_of<float>(call.lse)[at[2] + row.head * call.lse.stride[call.lead]] = lse;
    }
  }

  // Rows [block * kRows, ...) of a sequence and kv head.
  void run(Scratch& s, int64_t sequence, int64_t kv_head, int64_t block) const {
    const int64_t all = call.seqs.q_count(sequence) * group;
    const int64_t begin = block * kRows, count = min_of(kRows, all - begin);
    if (count <= 0) return;
    KeyRange need = {INT64_MAX, 0};
    for (int64_t r = 0; r < count; ++r) {
      start_row(s, r, sequence, (begin + r) / group, kv_head * group + (begin + r) % group);
      if (s.rows[r].keys.begin == s.rows[r].keys.end) continue;
      need.begin = min_of(need.begin, s.rows[r].keys.begin);
      need.end = max_of(need.end, s.rows[r].keys.end);
    }
    for (int64_t first = need.begin / kKeys * kKeys; first < need.end; first += kKeys) {
      load_tile(sequence, kv_head, first, need, s);
      for (int64_t r = 0; r < count; ++r) row_tile(s, r, first);
    }
    for (int64_t r = 0; r < count; ++r) finish_row(s, r);
  }
};

}  // namespace

ek_status attention_run_cpu(const AttentionCall& call) {
  const int64_t group = call.heads / call.kv_heads;
  const int64_t q_width = round_up(call.head_dim, kSums), v_width = round_up(max_of<int64_t>(call.v_dim, 1), kSums);
  const Tensor* const tensors[3] = {&call.q, &call.y, &call.lse};
  const RowWalk<3> walk = rows_of(call.lead, tensors);
  const Task task = {call, walk, group, q_width, v_width};
  int64_t longest = 0;
  for (int64_t b = 0; b < call.batch; ++b) longest = max_of(longest, call.seqs.q_count(b));
  const int64_t blocks = ceil_div(longest * group, kRows), units = call.batch * call.kv_heads * blocks;
  bool failed = false;
  parallel_for(units, 1, [&](int64_t begin, int64_t end) {
    const int64_t floats = kRows * q_width + call.head_dim * kKeys + (kKeys + kRows) * v_width;
    // From the heap: too much for a stack, and no multiple of threads is known in advance for a workspace.
    char* memory = static_cast<char*>(std::malloc(sizeof(Scratch) + floats * sizeof(float)));
    if (!memory) return __atomic_store_n(&failed, true, __ATOMIC_RELAXED);
    Scratch& s = *reinterpret_cast<Scratch*>(memory);
    s.q = reinterpret_cast<float*>(memory + sizeof(Scratch));
    s.k = s.q + kRows * q_width;
    s.v = s.k + call.head_dim * kKeys;
    s.acc = s.v + kKeys * v_width;
    for (int64_t unit = begin; unit < end; ++unit)
      task.run(s, unit / blocks / call.kv_heads, unit / blocks % call.kv_heads, unit % blocks);
    std::free(memory);
  });
  return failed ? EK_STATUS_OUT_OF_MEMORY : EK_STATUS_OK;
}

const Kernel<AttentionArgs> kAttentionCpu[] = {
    {EK_CPU_ROW("attention_cpu"), kCpuTarget, nullptr, attention_row_cpu<AttentionArgs>},
    {},
};

}  // namespace ek::EK_CPU_NS
