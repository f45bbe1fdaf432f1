// SPDX-License-Identifier: Apache-2.0
// A warp of attention_decode_cuda_split: its keys, step by step, to one state. Each lane copies its columns of K and V into slots
// of its own in shared memory, kRing steps ahead: that takes no registers, and nobody has to be waited for.
//   kLanes lanes share a key, kVec columns each. Products of kAtOnce keys and kRows rows are added up over the lanes of a group
//   by halves, which leaves each lane with one score, or two: mask, softmax and scales are its own affair. The weights then go
//   to all lanes of the group. Groups have maxima and sums of their own until the end. f32 throughout.
#pragma once

#include "cuda/mma.cuh"
#include "ops/attention/attention_decode_cuda_split.h"
#include "ops/attention/attention_decode_merge.cuh"

namespace ek {

// K or V.
struct DecodeCoreCache {
  const char* data;
  const float* scale;
  int32_t page, slot, head;   // strides in bytes: in 32 bits an address is two multiplications
  bool has_head, has_tokens;  // scales: one for all tokens of a head, or for each
  int64_t scale_page, scale_slot, scale_head;
};

// Small, and about in the order of use: a launch finds its parameters in no cache.
struct DecodeCoreParams {
  int32_t parts_shift;  // 2^parts_shift blocks of a cluster
  int32_t max_kv, q_len, group, rows, head_dim, v_dim;
  int32_t pages;  // 0: nothing is prefetched
  Divider page_size;
  int32_t minus_size;                               // -page_size
  const int32_t *page_table, *kv_len, *prefix_len;  // page_table, prefix_len: or null
  int32_t table_stride, q_stride[3];                // bytes
  const char* q;
  const float* alibi;
  Mask mask;              // its windows are kCoreNoWindow where they are off
  float factor, softcap;  // factor: of q times k, to a power of two's exponent (softcap: to the tanh's argument)
  DecodeCoreCache k, v;
  DecodeOut out;
};

// p + i * stride, both in 32 bits.
template <class T>
__device__ __forceinline__ T* core_at(T* p, int i, int stride) {
  return reinterpret_cast<T*>(reinterpret_cast<uintptr_t>(p) + static_cast<int64_t>(i) * stride);
}

// A warp's part of one item.
template <class Plan>
class DecodeCore {
 public:
  static constexpr int kRows = Plan::kRows, kVec = Plan::kVec, kLanes = Plan::kLanes, kGroups = Plan::kGroups;
  static constexpr int kAtOnce = Plan::kAtOnce, kDim = Plan::kDim;
  // Scores of a group's step, and of them those of a lane, or of lanes that have the same: score = key * kRows + row.
  static constexpr int kScores = kAtOnce * kRows;
  static constexpr int kMine = kScores > kLanes ? kScores / kLanes : 1, kSame = kScores < kLanes ? kLanes / kScores : 1;
  static constexpr int kOwnRows = kRows > kGroups ? kRows / kGroups : 1;  // that a group of the first warp loads
  static constexpr int kKeyLanes = kLanes / kAtOnce;                      // from one key to the next
  static_assert(kMine <= kRows && kKeyLanes >= 1, "a lane's scores are of one key");
  static_assert(Plan::kKeys <= 32, "prefetch() takes a key a lane");

  // ring: Plan::kRingBytes of shared memory.
  __device__ __forceinline__ DecodeCore(const DecodeCoreParams& p, int sequence, int kv_head, char* ring)
      : p_(p), sequence_(sequence), kv_head_(kv_head) {
    const int lane = threadIdx.x % 32, chunk = lane % kLanes, score = chunk / kSame * kMine;
    ring_ = smem_address(ring) + lane * int{sizeof(Word)};
    table_ = opaque(core_at(p.page_table, sequence, p.table_stride));
    column_ = chunk * kVec, group_ = lane / kLanes, own_key_ = score / kRows * kGroups + group_, row_ = score % kRows;
#pragma unroll
    for (int m = 0; m < kMine; ++m) most_[m] = -INFINITY, total_[m] = 0.f;
#pragma unroll
    for (int i = 0; i < kRows * kVec; ++i) sums_[i] = 0.f;
  }

  // The query and head of a row.
  __device__ __forceinline__ DecodePlace place(int row) const {
    const int query = kRows > 1 && p_.q_len > 1 ? row / p_.group : 0;
    return {query, kv_head_ * p_.group + row - query * p_.group};
  }

  // To L2 while the kernel before this one ends: K and V of the warp's first 32 keys, one a lane; more would only be in the way
  // of what that kernel loads. It may still write lengths and page numbers: what is read here is a guess of where they are.
  __device__ __forceinline__ void prefetch(int first, int step) const {
    const int lane = threadIdx.x % 32, key = first + lane / Plan::kKeys * step + lane % Plan::kKeys;
    if (p_.out.sinks && static_cast<int>(threadIdx.x) < p_.rows) prefetch_l2(p_.out.sinks + place(threadIdx.x).head);
    if (key >= length(load_early(p_.kv_len + sequence_))) return;
    const uint32_t index = p_.page_size.divide(static_cast<uint32_t>(key));
    const int slot = key + static_cast<int>(index) * p_.minus_size;
    const int page = p_.page_table ? load_early(core_at(table_, static_cast<int>(index), 4)) : sequence_;
    if (static_cast<uint32_t>(page) >= static_cast<uint32_t>(p_.pages)) return;
    const auto fetch = [&](const DecodeCoreCache& x, int dim) {
      bulk_prefetch(core_at(core_at(core_at(x.data, kv_head_, x.head), slot, x.slot), page, x.page),
                    dim * int{sizeof(K)});
    };
    fetch(p_.k, p_.head_dim), fetch(p_.v, p_.v_dim);
  }
  // Where this lane's keys of a step are. Without a page table a sequence is its own page.
  struct Places {
    int page[kAtOnce], slot[kAtOnce];
  };
  // Asks for the page numbers of a step's keys, of those below `end`.
  __device__ __forceinline__ void look(Places& at, int first, int end) const {
    const int last = p_.page_table ? end : 0;
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      const int key = first + u * kGroups + group_;
      const uint32_t index = p_.page_size.divide(static_cast<uint32_t>(key));
      at.slot[u] = key + static_cast<int>(index) * p_.minus_size, at.page[u] = sequence_;
      load_word(at.page[u], core_at(table_, static_cast<int>(index), 4), key < last);
    }
  }

  // The first warp asks for q, its groups for a row each in turn, and all for the scales of the head.
  __device__ __forceinline__ void fetch_query() {
#pragma unroll
    for (int j = 0; j < kOwnRows; ++j)
#pragma unroll
      for (int i = 0; i < kVec; i += 8) {
        const int row = j * kGroups + group_;
        raw_[j][i / 8] = uint4{};
        load_once(raw_[j][i / 8], query(row) + i * 2, threadIdx.x < 32 && row < p_.rows && column_ + i < p_.head_dim);
      }
    if constexpr (Plan::kNarrow) {
      if (p_.k.has_head) k_scale_ = p_.k.scale[kv_head_ * p_.k.scale_head];
      if (p_.v.has_head) v_scale_ = p_.v.scale[kv_head_ * p_.v.scale_head];
    }
  }
  // And gives it to all, as f32: q [kRows, kDim].
  __device__ __forceinline__ void share_query(float* q) const {
    const bool f16 = Plan::kNarrow ? p_.out.dtype == EK_DTYPE_F16 : std::is_same_v<K, half>;
#pragma unroll
    for (int j = 0; j < kOwnRows; ++j)
#pragma unroll
      for (int i = 0; i < kVec; i += 2) {
        const uint32_t pair = reinterpret_cast<const uint32_t*>(raw_[j])[i / 2];
        const float2 x = f16 ? unpack_pair<half>(pair) : unpack_pair<bf16>(pair);
        const int row = j * kGroups + group_;
        if (threadIdx.x < 32 && row < kRows)
          *reinterpret_cast<float2*>(q + row * kDim + column_ + i) = make_float2(x.x * p_.factor, x.y * p_.factor);
      }
  }

  // The keys that are seen, by any row and by this lane's. stored: the length as it stands in memory.
  __device__ __forceinline__ KeyRangeOf<int> see(int stored, int prefix) {
    const int kv_len = length(stored);
    const KeyRangeOf<int> all = visible<int>(p_.mask, 0, p_.q_len - 1, p_.q_len, kv_len, prefix);
    end_ = all.end;
#pragma unroll
    for (int m = 0; m < kMine && kRows > 1; ++m) {
      own_[m] = row_ + m < p_.rows ? all : KeyRangeOf<int>{0, 0};
      if (p_.q_len > 1 && row_ + m < p_.rows)
        own_[m] = visible<int>(p_.mask, place(row_ + m).query, p_.q_len, kv_len, prefix);
    }
    return all;
  }

  // Asks for K and V of a step, and for the scales of its tokens, all at once; zeros where nobody sees them.
  __device__ __forceinline__ void fetch(int stage, const Places& at, int first, int end) const {
    copy(p_.k, p_.head_dim, at, first, end, k_slot(stage, 0));
    copy(p_.v, p_.v_dim, at, first, end, v_slot(stage, 0));
    if constexpr (Plan::kNarrow) {
      if (!p_.k.has_tokens && !p_.v.has_tokens) return;
      int page = 0, slot = 0;
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u) {
        const int mine = own_key_ / kGroups == u ? -1 : 0;
        page |= at.page[u] & mine, slot |= at.slot[u] & mine;
      }
      const auto load = [&](const DecodeCoreCache& x, int which) {
        const float* from = x.scale + (page * x.scale_page + slot * x.scale_slot + kv_head_ * x.scale_head);
        if (x.has_tokens) copy_once<4>(scale_slot(stage, which), from, first + own_key_ < end);
      };
      load(p_.k, 0), load(p_.v, 1);
    }
  }

  // Scores of a step; this lane's are s[0 .. kMine - 1].
  __device__ __forceinline__ void scores(int stage, const float* q, float (&s)[kScores]) {
    if constexpr (Plan::kNarrow) {
      if (p_.k.has_tokens) k_scale_ = __uint_as_float(load_smem_word(scale_slot(stage, 0)));
      if (p_.v.has_tokens) v_scale_ = __uint_as_float(load_smem_word(scale_slot(stage, 1)));
    }
    Word words[kAtOnce];
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) load_smem(words[u], k_slot(stage, u));
#pragma unroll
    for (int i = 0; i < kScores; ++i) s[i] = 0.f;
#pragma unroll
    for (int i = 0; i < kVec; i += 4) {
      float k[kAtOnce][4];
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u) four(words[u], i, k[u]);
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const Vec<float, 4> x = load_vec<float, 4>(q + r * kDim + column_ + i);
#pragma unroll
        for (int j = 0; j < kScores / kRows * 4; ++j)  // the four columns of all keys
          s[j / 4 * kRows + r] = fmaf(x.v[j % 4], k[j / 4][j % 4], s[j / 4 * kRows + r]);
      }
    }
    fold_lanes<kLanes / 2, 1, kScores>(s);
  }

  // Softmax so far: this lane's scores become weights.
  __device__ __forceinline__ void weights(int first, float (&s)[kScores]) {
    const int key = first + own_key_;
    float keep[kMine];
    bool moved = false;
#pragma unroll
    for (int m = 0; m < kMine; ++m) {
      float x = s[m];
      if (Plan::kNarrow) x *= k_scale_;
      if (p_.softcap > 0.f) x = p_.softcap * kLog2e * CudaMathFast::tanh(x);
      if (p_.alibi && row_ + m < p_.rows) {
        const DecodePlace at = place(row_ + m);
        const int position = at.query + length(p_.kv_len[sequence_]) - p_.q_len;
        x -= p_.alibi[at.head] * kLog2e * fabsf(static_cast<float>(position - key));
      }
      if (kRows == 1 ? key >= end_ : key < own_[m].begin || key >= own_[m].end) x = -INFINITY;
      float now = fmaxf(most_[m], x);
#pragma unroll
      for (int d = kKeyLanes; d < kLanes; d *= 2) now = fmaxf(now, __shfl_xor_sync(0xffffffffu, now, d));
      const float zero = finite_base(now);
      keep[m] = CudaMathFast::exp2(most_[m] - zero);
      moved |= now != most_[m];
      most_[m] = now;
      x = CudaMathFast::exp2(x - zero);
      total_[m] = fmaf(total_[m], keep[m], x);
      s[m] = Plan::kNarrow ? x * v_scale_ : x;
    }
    if (__any_sync(0xffffffffu, moved)) scale_sums(keep);
  }

  // Sums of values. What nobody sees is 0, and so is its weight.
  __device__ __forceinline__ void values(int stage, const float (&s)[kScores]) {
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      Word word;
      load_smem(word, v_slot(stage, u));
      float weight[kRows];
#pragma unroll
      for (int r = 0; r < kRows; ++r) weight[r] = of_group(s, u * kRows + r);
#pragma unroll
      for (int i = 0; i < kVec; i += 4) {
        float v[4];
        four(word, i, v);
#pragma unroll
        for (int r = 0; r < kRows; ++r)
#pragma unroll
          for (int e = 0; e < 4; ++e) sums_[r * kVec + i + e] = fmaf(weight[r], v[e], sums_[r * kVec + i + e]);
      }
    }
  }

  // The groups' states become one, in shared memory: sums [kRows, kDim], bases [kRows].
  __device__ __forceinline__ void finish(float* sums, float2* bases) {
    float keep[kMine];
#pragma unroll
    for (int m = 0; m < kMine; ++m) {
      float now = most_[m];
#pragma unroll
      for (int d = kLanes; d < 32; d *= 2) now = fmaxf(now, __shfl_xor_sync(0xffffffffu, now, d));
      keep[m] = CudaMathFast::exp2(most_[m] - finite_base(now));
      float total = total_[m] * keep[m];
#pragma unroll
      for (int d = kKeyLanes; d < 32; d *= 2) total += __shfl_xor_sync(0xffffffffu, total, d);
      if (threadIdx.x % 32 < kKeyLanes) bases[row_ + m] = make_float2(now, total);
    }
    scale_sums(keep);
    fold_lanes<16, kLanes, kRows * kVec>(sums_);
    constexpr int kLeft = kRows * kVec / kGroups, kStore = kLeft < 4 ? kLeft : 4;
#pragma unroll
    for (int i = 0; i < kLeft; i += kStore) {
      const int at = group_ * kLeft + i;
      Vec<float, kStore> x;
#pragma unroll
      for (int j = 0; j < kStore; ++j) x.v[j] = sums_[i + j];
      store_vec(sums + at / kVec * kDim + column_ + at % kVec, x);
    }
  }

 private:
  using K = typename Plan::K;
  using Word = std::conditional_t<Plan::kWordBytes == 16, uint4, uint2>;  // a lane's columns of a key

  __device__ __forceinline__ int length(int stored) const { return min(max(stored, 0), p_.max_kv); }
  // This lane's columns of a row of q.
  __device__ __forceinline__ const char* query(int row) const {
    const DecodePlace at = place(row);
    const char* q = core_at(core_at(p_.q + column_ * 2, sequence_, p_.q_stride[0]), at.head, p_.q_stride[2]);
    return kRows > 1 ? core_at(q, at.query, p_.q_stride[1]) : q;
  }

  // This lane's slots: K of the u-th key of a step, its V, and the scales of the key whose score this lane has.
  __device__ __forceinline__ uint32_t k_slot(int stage, int u) const {
    return ring_ + stage * Plan::kStageBytes + u * (32 * int{sizeof(Word)});
  }
  __device__ __forceinline__ uint32_t v_slot(int stage, int u) const { return k_slot(stage, kAtOnce + u); }
  __device__ __forceinline__ uint32_t scale_slot(int stage, int which) const {
    return k_slot(stage, 2 * kAtOnce) - threadIdx.x % 32 * (int{sizeof(Word)} - 4) + which * 128;
  }

  __device__ __forceinline__ void copy(const DecodeCoreCache& cache, int dim, const Places& at, int first, int end,
                                       uint32_t slot) const {
    const char* base = opaque(core_at(cache.data + column_ * int{sizeof(K)}, kv_head_, cache.head));
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u)
      copy_once<sizeof(Word)>(slot + u * (32 * int{sizeof(Word)}),
                              core_at(core_at(base, at.slot[u], cache.slot), at.page[u], cache.page),
                              first + u * kGroups + group_ < (column_ < dim ? end : 0));
  }

  // Columns i .. i + 3 of a lane's.
  static __device__ __forceinline__ void four(const Word& x, int i, float (&f)[4]) {
    if constexpr (Plan::kNarrow) {
      uint32_t low, high;
      widen<K>(reinterpret_cast<const uint32_t*>(&x)[i / 4], low, high);
      const float2 a = unpack_pair<half>(low), b = unpack_pair<half>(high);
      f[0] = a.x, f[1] = a.y, f[2] = b.x, f[3] = b.y;
    } else {
      unpack(reinterpret_cast<const Vec<K, 4>*>(&x)[i / 4], f);
    }
  }
  // What the lane of this group that has the score keeps of it.
  template <int N>
  static __device__ __forceinline__ float of_group(const float (&x)[N], int score) {
    return __shfl_sync(0xffffffffu, x[score % kMine], score / kMine * kSame, kLanes);
  }
  __device__ __forceinline__ void scale_sums(const float (&factor)[kMine]) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const float f = of_group(factor, r);
#pragma unroll
      for (int i = 0; i < kVec; ++i) sums_[r * kVec + i] *= f;
    }
  }

  const DecodeCoreParams& p_;
  const int sequence_, kv_head_;
  int column_, group_;          // this lane's first column; its group
  int own_key_, row_;           // of this lane's scores: the key in its step, and the first row
  int end_ = 0;                 // of the keys that any row sees
  KeyRangeOf<int> own_[kMine];  // that this lane's rows see, where there are several
  float k_scale_ = 1.f, v_scale_ = 1.f;
  const int32_t* table_;              // this sequence's line of the page table
  uint32_t ring_;                     // this lane's first slot
  uint4 raw_[kOwnRows][kVec / 8];     // q
  float most_[kMine], total_[kMine];  // total: of this lane's keys
  float sums_[kRows * kVec];
};

}  // namespace ek
