// SPDX-License-Identifier: Apache-2.0
// One warp's softmax and sum of values, tile by tile, for 8 or 16 rows (queries times the heads of a group). Keys and
// columns of V are the 16 rows of an mma, the rows of q its 8 columns: so few queries waste nothing. Lane l has keys, or
// columns, l / 4 and l / 4 + 8, and rows 2 (l % 4), + 1 of every eight. Scores are exponents of 2.
// 8-bit caches: four bytes of a chunk lie side by side in a lane, so q is stored in the order that makes them columns
// 2 c, 2 c + 1, 2 c + 8, 2 c + 9 of a product; values are turned in pairs of bytes, so that the even columns of 16 are the
// first 8 of an mma and the odd ones the others.
#pragma once

#include <cuda_fp8.h>

#include "cuda/math.cuh"
#include "cuda/vec.cuh"
#include "ops/attention/attention_decode_load.cuh"

namespace ek {

constexpr int kDecodeGroup = 2;     // named barriers: among the warps of a group, one for each
constexpr int kDecodeAll = 14;      // of all threads, when units are known
constexpr int kDecodeLoaders = 15;  // of warps that load, and of the one that has made the ring's barriers

// What masks and scores need of a row.
struct DecodeRow {
  float factor;  // of a product of q and k, to a power of two's exponent (softcap: to the tanh's argument)
  float slope;   // ALiBi, for exponents of 2
  int position, begin, end;
};

// Four bytes to two pairs of f16: (0, 1) and (2, 3). Exact.
template <class K>
__device__ __forceinline__ void widen(uint32_t bytes, uint32_t& low, uint32_t& high) {
  if constexpr (std::is_same_v<K, e4m3>) {
    widen_e4m3(bytes, low, high);
  } else {
    // 1024 + (x + 128) is 0x6400 with the byte x ^ 0x80 in its low bits.
    const uint32_t shifted = bytes ^ 0x80808080u, offset = 0x64806480u;
    const uint32_t a = __byte_perm(shifted, 0x64646464u, 0x4140), b = __byte_perm(shifted, 0x64646464u, 0x4342);
    const __half2 zero = *reinterpret_cast<const __half2*>(&offset);
    const __half2 x = __hsub2(*reinterpret_cast<const __half2*>(&a), zero);
    const __half2 y = __hsub2(*reinterpret_cast<const __half2*>(&b), zero);
    low = *reinterpret_cast<const uint32_t*>(&x), high = *reinterpret_cast<const uint32_t*>(&y);
  }
}

template <class Plan>
class DecodeTile {
 public:
  using M = typename Plan::M;
  using K = typename Plan::K;
  static constexpr int kSteps = (Plan::kSlicedScores ? Plan::kSlice : Plan::kDim) / 16;
  static constexpr int kBlocks = Plan::kOwn / 16, kColumns = Plan::kSlice / 16;
  static constexpr int kEights = Plan::kRows / 8;  // of rows
  // Weights in f16 are powers of two up to 2^15, not to 1: what is lost below its range is then 2^-40 of the largest.
  static constexpr float kLift = std::is_same_v<M, half> ? 15.f : 0.f;

  // q: [kRows, kDim] in shared memory. first: this warp's first key of every tile. scores: room for those of two tiles, in
  // shared memory.
  __device__ __forceinline__ void begin(uint32_t q, const DecodeRow* rows, int first, int slice,
                                        [[maybe_unused]] float* scores) {
    const int lane = threadIdx.x % 32;
    slice_ = slice, rows_ = rows;
    q_ = q + decode_chunk<Plan::kDim / 8, Plan::kRows>(lane % 8, lane / 8);
    k_ = decode_chunk<Plan::kChunks, Plan::kKeys>(first + lane % 16, lane / 16);
    v_ = k_;
    if constexpr (!Plan::kNarrow)
      v_ = decode_chunk<Plan::kChunks, Plan::kKeys>(first + lane % 8 + lane / 16 * 8, lane / 8 % 2);
    const int part = slice * Plan::kSlice * static_cast<int>(sizeof(K)) * Plan::kKeys;
    v_ += part;
    if constexpr (Plan::kSlicedScores) {
      k_ += part, q_ += slice * Plan::kSlice * 2 * Plan::kRows;
      group_ = first / Plan::kOwn;
      shared_ = reinterpret_cast<float4*>(scores) + group_ * 2 * Plan::kSlices * kBlocks * kEights * 32 + lane;
    }
    if constexpr (Plan::kKeepQ)
#pragma unroll
      for (int n = 0; n < kEights; ++n)
#pragma unroll
        for (int i = 0; i < kSteps; i += 2) load_q(n, i, q_kept_[n][i / 2]);
#pragma unroll
    for (int n = 0; n < kEights; ++n) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        factor_[n][r] = rows[row(n, r)].factor;
        most_[n][r] = -INFINITY, total_[n][r] = 0.f;
      }
#pragma unroll
      for (int i = 0; i < kColumns; ++i)
#pragma unroll
        for (int e = 0; e < 4; ++e) o_[i][n][e] = 0.f;
    }
  }

  // This warp's keys of the tile, from `key` on. masked: not every row sees every key.
  __device__ __forceinline__ void step(const DecodeParams& p, const DecodeStage& stage, int key, bool masked) {
    float s[kBlocks][kEights][4];
    scores(stage.tiles, s);
    if constexpr (Plan::kSlicedScores) add_scores(s);
    finish_scores(p, stage.scales, key, masked, s);
    weights(p, stage.scales + Plan::kScaleBytes, s);
    values(stage.tiles + Plan::kTileBytes, s);
  }

  // A tile of which these warps see nothing: they go through as many barriers as the others.
  __device__ __forceinline__ void pass() const {
    if constexpr (Plan::kSlicedScores) warps_sync(kDecodeGroup + group_, 32 * Plan::kSlices);
  }

  // What weights are powers of two above, and totals, of all rows, to bases[row].
  __device__ __forceinline__ void store_bases(float2* bases) {
#pragma unroll
    for (int n = 0; n < kEights; ++n)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        float total = total_[n][r];
#pragma unroll
        for (int d = 4; d < 32; d *= 2) total += __shfl_xor_sync(0xffffffffu, total, d);
        if (threadIdx.x % 32 < 4 && slice_ == 0) bases[row(n, r)] = make_float2(most_[n][r] - kLift, total);
      }
  }
  // The sums of values of rows [from, from + rows) as f32 lines in shared memory.
  __device__ __forceinline__ void store_sums(float* lines, int from, int rows) const {
    const int j = threadIdx.x % 32 / 4;
#pragma unroll
    for (int n = 0; n < kEights; ++n)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int line = row(n, r) - from;
        if (line < 0 || line >= rows) continue;
        float* to = lines + line * Plan::kMergeStride + slice_ * Plan::kSlice;
#pragma unroll
        for (int i = 0; i < kColumns; ++i) {
          if constexpr (Plan::kNarrow)
            *reinterpret_cast<float2*>(to + i * 16 + j * 2) = make_float2(o_[i][n][r], o_[i][n][r + 2]);
          else
            to[i * 16 + j] = o_[i][n][r], to[i * 16 + j + 8] = o_[i][n][r + 2];
        }
      }
  }

 private:
  static __device__ __forceinline__ int row(int n, int r) { return n * 8 + threadIdx.x % 4 * 2 + r; }

  // The turned place first, then the tile: so the turns are the same for all tiles.
  static __device__ __forceinline__ uint32_t chunk_on(uint32_t at, int chunk) {
    return decode_chunk_on<Plan::kChunks, Plan::kKeys>(at, chunk);
  }

  // Two steps of q's product.
  __device__ __forceinline__ void load_q(int n, int step, uint32_t (&b)[4]) const {
    ldmatrix<false>(b, decode_chunk_on<Plan::kDim / 8, Plan::kRows>(q_, 2 * step) + n * 8 * 128);
  }

  // s = k q
  __device__ __forceinline__ void scores(uint32_t tile, float (&s)[kBlocks][kEights][4]) const {
    // Sums of every other step, where there are few products side by side: half as long a chain of them
    constexpr bool kTwoChains = kEights == 1;
    float odd[kBlocks][kEights][4] = {};
#pragma unroll
    for (int i = 0; i < kBlocks; ++i)
#pragma unroll
      for (int n = 0; n < kEights; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) s[i][n][e] = 0.f;
#pragma unroll
    for (int step = 0; step < kSteps; step += 2) {
      uint32_t q[kEights][4];
#pragma unroll
      for (int n = 0; n < kEights; ++n) {
        if constexpr (Plan::kKeepQ) {
#pragma unroll
          for (int e = 0; e < 4; ++e) q[n][e] = q_kept_[n][step / 2][e];
        } else {
          load_q(n, step, q[n]);
        }
      }
#pragma unroll
      for (int i = 0; i < kBlocks; ++i) {
        const uint32_t at = tile + i * 16 * Plan::kPitch;
        uint32_t a[2][4];
        if constexpr (Plan::kNarrow) {
          uint32_t bytes[4];  // keys 0-7, 8-15 of a chunk, then of the next one: each is a product's 16 columns
          ldmatrix<false>(bytes, at + chunk_on(k_, step));
#pragma unroll
          for (int e = 0; e < 4; ++e) widen<K>(bytes[e], a[e / 2][e % 2], a[e / 2][e % 2 + 2]);
        } else {
          ldmatrix<false>(a[0], at + chunk_on(k_, 2 * step));
          ldmatrix<false>(a[1], at + chunk_on(k_, 2 * step + 2));
        }
#pragma unroll
        for (int n = 0; n < kEights; ++n) {
          mma<M>(s[i][n], a[0], q[n][0], q[n][1]);
          mma<M>(kTwoChains ? odd[i][n] : s[i][n], a[1], q[n][2], q[n][3]);
        }
      }
    }
    if constexpr (kTwoChains)
#pragma unroll
      for (int i = 0; i < kBlocks; ++i)
#pragma unroll
        for (int e = 0; e < 4; ++e) s[i][0][e] += odd[i][0][e];
  }

  // The sums of all slices, in their order. Two places, in turn: nobody writes what another one may still be reading.
  __device__ __forceinline__ void add_scores(float (&s)[kBlocks][kEights][4]) {
    constexpr int kVectors = kBlocks * kEights;
    float4* const all = shared_ + turn_ * Plan::kSlices * kVectors * 32;
    turn_ ^= 1;
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      const float* x = s[i / kEights][i % kEights];
      all[(slice_ * kVectors + i) * 32] = make_float4(x[0], x[1], x[2], x[3]);
    }
    warps_sync(kDecodeGroup + group_, 32 * Plan::kSlices);
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      float* x = s[i / kEights][i % kEights];
      float4 y[Plan::kSlices];
#pragma unroll
      for (int j = 0; j < Plan::kSlices; ++j) y[j] = all[(j * kVectors + i) * 32];
      x[0] = y[0].x, x[1] = y[0].y, x[2] = y[0].z, x[3] = y[0].w;
#pragma unroll
      for (int j = 1; j < Plan::kSlices; ++j) x[0] += y[j].x, x[1] += y[j].y, x[2] += y[j].z, x[3] += y[j].w;
    }
  }

  // Scales, softcap, ALiBi, and -inf for what a row does not see.
  __device__ __forceinline__ void finish_scores(const DecodeParams& p, [[maybe_unused]] uint32_t k_scales, int key,
                                                bool masked, float (&s)[kBlocks][kEights][4]) const {
    const int j = threadIdx.x % 32 / 4;
    if constexpr (Plan::kNarrow) {
      if (p.k_tokens)
#pragma unroll
        for (int i = 0; i < kBlocks * 2; ++i) {
          const float scale = __uint_as_float(load_smem_word(k_scales + (i * 8 + j) * 4));
#pragma unroll
          for (int n = 0; n < kEights; ++n) s[i / 2][n][i % 2 * 2] *= scale, s[i / 2][n][i % 2 * 2 + 1] *= scale;
        }
    }
#pragma unroll
    for (int i = 0; i < kBlocks; ++i)
#pragma unroll
      for (int n = 0; n < kEights; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) s[i][n][e] *= factor_[n][e % 2];
    if (!masked && !p.special) return;
    if (p.c.softcap > 0.f)
#pragma unroll
      for (int i = 0; i < kBlocks; ++i)
#pragma unroll
        for (int n = 0; n < kEights; ++n)
#pragma unroll
          for (int e = 0; e < 4; ++e) s[i][n][e] = p.c.softcap * kLog2e * CudaMathFast::tanh(s[i][n][e]);
    if (!masked && !p.c.alibi) return;
#pragma unroll
    for (int n = 0; n < kEights; ++n)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const DecodeRow at = rows_[row(n, r)];
#pragma unroll
        for (int i = 0; i < kBlocks * 2; ++i) {
          const int k = key + i * 8 + j;
          float& x = s[i / 2][n][i % 2 * 2 + r];
          x -= at.slope * fabsf(static_cast<float>(at.position - k));
          if (k < at.begin || k >= at.end) x = -INFINITY;
        }
      }
  }

  // Softmax so far: s becomes weights, times the scales of values that each token has. The base is then the largest of
  // weight times scale, so that no product exceeds 2^kLift and the largest keep all digits in f16.
  __device__ __forceinline__ void weights(const DecodeParams& p, [[maybe_unused]] uint32_t v_scales,
                                          float (&s)[kBlocks][kEights][4]) {
    const int j = threadIdx.x % 32 / 4;
    const bool scaled = Plan::kNarrow && p.v_tokens;
    float scale[kBlocks * 2], size[kBlocks * 2];
    if (scaled)
#pragma unroll
      for (int i = 0; i < kBlocks * 2; ++i) {
        scale[i] = __uint_as_float(load_smem_word(v_scales + (i * 8 + j) * 4));
        size[i] = __log2f(fmaxf(fabsf(scale[i]), 0x1p-40f));
      }
    float keep[kEights][2];
    bool moved = false;
#pragma unroll
    for (int n = 0; n < kEights; ++n)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        float now = most_[n][r];
#pragma unroll
        for (int i = 0; i < kBlocks * 2; ++i) {
          const float x = s[i / 2][n][i % 2 * 2 + r];
          now = fmaxf(now, scaled ? x + size[i] : x);
        }
#pragma unroll
        for (int d = 4; d < 32; d *= 2) now = fmaxf(now, __shfl_xor_sync(0xffffffffu, now, d));
        const float zero = finite_base(now), base = zero - kLift;
        keep[n][r] = CudaMathFast::exp2(most_[n][r] - zero);
        moved |= now != most_[n][r];
        most_[n][r] = now;
        float sum = 0.f;
#pragma unroll
        for (int i = 0; i < kBlocks * 2; ++i) {
          float& x = s[i / 2][n][i % 2 * 2 + r];
          x = CudaMathFast::exp2(x - base);
          sum += x;
          if (scaled) x *= scale[i];
        }
        total_[n][r] = fmaf(total_[n][r], keep[n][r], sum);
      }
    if (__any_sync(0xffffffffu, moved))
#pragma unroll
      for (int i = 0; i < kColumns; ++i)
#pragma unroll
        for (int n = 0; n < kEights; ++n)
#pragma unroll
          for (int e = 0; e < 4; ++e) o_[i][n][e] *= keep[n][e % 2];
  }

  // o += v s
  __device__ __forceinline__ void values(uint32_t tile, const float (&s)[kBlocks][kEights][4]) {
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
      const uint32_t at = tile + block * 16 * Plan::kPitch;
      uint32_t b[kEights][2];
#pragma unroll
      for (int n = 0; n < kEights; ++n)
#pragma unroll
        for (int half = 0; half < 2; ++half)
          b[n][half] = transpose_matrix(pack_pair<M>(s[block][n][2 * half], s[block][n][2 * half + 1]));
#pragma unroll
      for (int i = 0; i < kColumns; i += Plan::kNarrow ? 2 : 1) {
        uint32_t v[4];
        if constexpr (Plan::kNarrow) {
          ldmatrix<true>(v, at + chunk_on(v_, i));  // keys 0-7, 8-15 of a chunk, then of the next one
#pragma unroll
          for (int c = 0; c < 2; ++c) {
            uint32_t a[4];
#pragma unroll
            for (int half = 0; half < 2; ++half)
              widen<K>(__byte_perm(v[2 * c + half], 0, 0x3120), a[2 * half], a[2 * half + 1]);
#pragma unroll
            for (int n = 0; n < kEights; ++n) mma<M>(o_[i + c][n], a, b[n][0], b[n][1]);
          }
        } else {
          ldmatrix<true>(v, at + chunk_on(v_, 2 * i));
#pragma unroll
          for (int n = 0; n < kEights; ++n) mma<M>(o_[i][n], v, b[n][0], b[n][1]);
        }
      }
    }
  }

  uint32_t q_, k_, v_;  // where this lane's rows begin: q in shared memory, K and V in a tile
  const DecodeRow* rows_;
  int slice_, group_, turn_ = 0;
  float4* shared_;  // scores of this group, this lane's: [turn, slice, kBlocks, kEights, lane]
  float factor_[kEights][2], most_[kEights][2], total_[kEights][2];  // total: of this lane's keys
  float o_[kColumns][kEights][4];
  uint32_t q_kept_[kEights][Plan::kKeepQ ? kSteps / 2 : 1][4];
};

}  // namespace ek
