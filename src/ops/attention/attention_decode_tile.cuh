// SPDX-License-Identifier: Apache-2.0
// One warp's softmax and sum of values, tile by tile, for 16 rows (queries times the heads of a group). All of it in mma
// fragments: lane l has rows l / 4 and l / 4 + 8, columns 2 (l % 4), + 1 of every eight. Scores are exponents of 2.
// 8-bit caches: four bytes of a chunk lie side by side in a lane, so q is stored in the order that makes them columns
// 2 c, 2 c + 1, 2 c + 8, 2 c + 9 of a product; values are turned in pairs of bytes, so that even and odd columns of 16 are
// a product each, and a lane has four neighbours of y.
#pragma once

#include <cuda_fp8.h>

#include "cuda/math.cuh"
#include "cuda/vec.cuh"
#include "ops/attention/attention_decode_load.cuh"

namespace ek {

// What masks and scores need of a row.
struct DecodeRow {
  float factor;  // of a product of q and k, to a power of two's exponent (softcap: to the tanh's argument)
  float slope;   // ALiBi, for exponents of 2
  int position, begin, end;
};

constexpr float kLog2e = 1.4426950408889634f;

// 0 in place of -inf, of which inf - inf would make NaN.
__device__ __forceinline__ float decode_base(float most) { return most == -INFINITY ? 0.f : most; }

// Four bytes to two pairs of f16: (0, 1) and (2, 3). Exact.
template <class K>
__device__ __forceinline__ void widen(uint32_t bytes, uint32_t& low, uint32_t& high) {
  if constexpr (std::is_same_v<K, e4m3>) {
    const __half2_raw a = __nv_cvt_fp8x2_to_halfraw2(static_cast<__nv_fp8x2_storage_t>(bytes & 0xffff), __NV_E4M3);
    const __half2_raw b = __nv_cvt_fp8x2_to_halfraw2(static_cast<__nv_fp8x2_storage_t>(bytes >> 16), __NV_E4M3);
    low = a.x | static_cast<uint32_t>(a.y) << 16, high = b.x | static_cast<uint32_t>(b.y) << 16;
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

template <class M>
__device__ __forceinline__ uint32_t pack_pair(float a, float b) {
  if constexpr (std::is_same_v<M, half>) {
    const __half2 pair = __floats2half2_rn(a, b);
    return *reinterpret_cast<const uint32_t*>(&pair);
  } else {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(a, b);
    return *reinterpret_cast<const uint32_t*>(&pair);
  }
}

template <class Plan>
class DecodeTile {
 public:
  using M = typename Plan::M;
  using K = typename Plan::K;
  static constexpr int kSteps = Plan::kDim / 16, kBlocks = Plan::kKeys / 8, kColumns = Plan::kSlice / 8;

  float o[kColumns][4];
  float most[2], total[2];  // of the lane's two rows; total: of the lane's own columns until finish()

  // q: [16, kDim] in shared memory.
  __device__ __forceinline__ void begin(uint32_t q, const DecodeRow* rows, int slice) {
    const int lane = threadIdx.x % 32;
    slice_ = slice, rows_ = rows;
    q_ = q + decode_chunk<Plan::kDim / 8>(lane % 16, lane / 16);
    // Lanes' rows: of K in 16 bits, two chunks of 8 keys, then of the next 8; else 16 keys of one chunk, then of the next
    k_ = Plan::kNarrow ? decode_chunk<Plan::kChunks>(lane % 16, lane / 16)
                       : decode_chunk<Plan::kChunks>(lane % 8 + lane / 16 * 8, lane / 8 % 2);
    v_ = decode_chunk<Plan::kChunks>(lane % 16, lane / 16) + slice * Plan::kSlice * static_cast<int>(sizeof(K));
    if constexpr (Plan::kKeepQ)
#pragma unroll
      for (int i = 0; i < kSteps; ++i) load_q(i, q_kept_[i]);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      factor_[r] = rows[lane / 4 + 8 * r].factor, slope_[r] = rows[lane / 4 + 8 * r].slope;
      most[r] = -INFINITY, total[r] = 0.f;
    }
#pragma unroll
    for (int i = 0; i < kColumns; ++i)
#pragma unroll
      for (int e = 0; e < 4; ++e) o[i][e] = 0.f;
  }

  // The tile at `stage`, whose first key is `key`. masked: not every row sees every key.
  __device__ __forceinline__ void step(const DecodeParams& p, uint32_t stage, int key, bool masked) {
    float s[kBlocks][4];
    scores(stage, s);
    const uint32_t scales = stage + 2 * Plan::kTileBytes;
    finish_scores(p, scales, key, masked, s);
    weights(p, scales + Plan::kScaleBytes, s);
    values(stage + Plan::kTileBytes, s);
  }

  // Totals of whole rows.
  __device__ __forceinline__ void finish() {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      total[r] += __shfl_xor_sync(0xffffffffu, total[r], 1);
      total[r] += __shfl_xor_sync(0xffffffffu, total[r], 2);
    }
  }

  // The columns of y of this lane's row l / 4 + 8 * half as f32 to a line in shared memory.
  __device__ __forceinline__ void store(float* line, int half) const {
    const int c = threadIdx.x % 4;
    line += slice_ * Plan::kSlice;
    if constexpr (Plan::kNarrow) {
#pragma unroll
      for (int i = 0; i < kColumns; i += 2)
        *reinterpret_cast<float4*>(line + i * 8 + c * 4) =
            make_float4(o[i][2 * half], o[i + 1][2 * half], o[i][2 * half + 1], o[i + 1][2 * half + 1]);
    } else {
#pragma unroll
      for (int i = 0; i < kColumns; ++i)
        *reinterpret_cast<float2*>(line + i * 8 + c * 2) =
            make_float2(o[i][2 * half], o[i][2 * half + 1]);
    }
  }

 private:
  __device__ __forceinline__ void load_q(int step, uint32_t (&a)[4]) const {
    ldmatrix<false>(a, decode_chunk_on<Plan::kDim / 8>(q_, 2 * step));
  }

  // s = q k
  __device__ __forceinline__ void scores(uint32_t tile, float (&s)[kBlocks][4]) const {
#pragma unroll
    for (int i = 0; i < kBlocks; ++i)
#pragma unroll
      for (int e = 0; e < 4; ++e) s[i][e] = 0.f;
    constexpr int kAtOnce = Plan::kNarrow ? 2 : 1;  // products along head_dim that a load of K serves
    float odd[kBlocks][4] = {};  // sums of every other step: half as long a chain of products
#pragma unroll
    for (int step = 0; step < kSteps; step += kAtOnce) {
      uint32_t a[kAtOnce][4];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if constexpr (Plan::kKeepQ) {
#pragma unroll
          for (int e = 0; e < 4; ++e) a[i][e] = q_kept_[step + i][e];
        } else {
          load_q(step + i, a[i]);
        }
      }
#pragma unroll
      for (int block = 0; block < kBlocks; block += 2) {
        uint32_t b[4];
        if constexpr (Plan::kNarrow) {
          // (keys 0-7, 8-15) of a chunk, then of the next one: each is a product's 16 columns
          ldmatrix<false>(b, decode_chunk_on<Plan::kChunks>(tile + k_, step) + block * 8 * Plan::kRowBytes);
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            uint32_t low, high;
            widen<K>(b[i], low, high);
            mma<M>(i / 2 ? odd[block + i % 2] : s[block + i % 2], a[i / 2], low, high);
          }
        } else {
          ldmatrix<false>(b, decode_chunk_on<Plan::kChunks>(tile + k_, 2 * step) + block * 8 * Plan::kRowBytes);
          mma<M>(step % 2 ? odd[block] : s[block], a[0], b[0], b[1]);
          mma<M>(step % 2 ? odd[block + 1] : s[block + 1], a[0], b[2], b[3]);
        }
      }
    }
#pragma unroll
    for (int i = 0; i < kBlocks; ++i)
#pragma unroll
      for (int e = 0; e < 4; ++e) s[i][e] += odd[i][e];
  }

  // Scales, softcap, ALiBi, and -inf for what a row does not see.
  __device__ __forceinline__ void finish_scores(const DecodeParams& p, [[maybe_unused]] uint32_t k_scales, int key,
                                                bool masked, float (&s)[kBlocks][4]) const {
    const int lane = threadIdx.x % 32, c = lane % 4 * 2;
    if constexpr (Plan::kNarrow) {
      if (p.k_tokens)
#pragma unroll
        for (int i = 0; i < kBlocks; ++i)
#pragma unroll
          for (int j = 0; j < 2; ++j) {
            const float scale = __uint_as_float(load_smem_word(k_scales + (i * 8 + c + j) * 4));
            s[i][j] *= scale, s[i][j + 2] *= scale;
          }
    }
#pragma unroll
    for (int i = 0; i < kBlocks; ++i)
#pragma unroll
      for (int e = 0; e < 4; ++e) s[i][e] *= factor_[e / 2];
    if (p.c.softcap > 0.f)
#pragma unroll
      for (int i = 0; i < kBlocks; ++i)
#pragma unroll
        for (int e = 0; e < 4; ++e) s[i][e] = p.c.softcap * kLog2e * CudaMathFast::tanh(s[i][e]);
    if (!masked && !p.c.alibi) return;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const DecodeRow row = rows_[lane / 4 + 8 * r];
#pragma unroll
      for (int i = 0; i < kBlocks; ++i)
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          const int at = key + i * 8 + c + j;
          float& x = s[i][2 * r + j];
          x -= slope_[r] * fabsf(static_cast<float>(row.position - at));
          if (at < row.begin || at >= row.end) x = -INFINITY;
        }
    }
  }

  // Softmax so far: s becomes weights, times the scales of values that each token has. The base is then the largest of
  // weight times scale, so that no product exceeds 1 and the largest keep all digits in f16.
  __device__ __forceinline__ void weights(const DecodeParams& p, [[maybe_unused]] uint32_t v_scales,
                                          float (&s)[kBlocks][4]) {
    const int c = threadIdx.x % 4 * 2;
    float scale[kBlocks][2], size[kBlocks][2];
    const bool scaled = Plan::kNarrow && p.v_tokens;
    if constexpr (Plan::kNarrow) {
#pragma unroll
      for (int i = 0; i < kBlocks; ++i)
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          scale[i][j] = scaled ? __uint_as_float(load_smem_word(v_scales + (i * 8 + c + j) * 4)) : 1.f;
          size[i][j] = scaled ? __log2f(fmaxf(fabsf(scale[i][j]), 0x1p-40f)) : 0.f;
        }
    }
    float keep[2];
    bool moved = false;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float now = most[r];
#pragma unroll
      for (int i = 0; i < kBlocks; ++i)
#pragma unroll
        for (int j = 0; j < 2; ++j) now = fmaxf(now, Plan::kNarrow ? s[i][2 * r + j] + size[i][j] : s[i][2 * r + j]);
      now = fmaxf(now, __shfl_xor_sync(0xffffffffu, now, 1));
      now = fmaxf(now, __shfl_xor_sync(0xffffffffu, now, 2));
      const float base = decode_base(now);
      keep[r] = CudaMathFast::exp2(most[r] - base);
      moved |= now != most[r];
      most[r] = now;
      total[r] *= keep[r];
#pragma unroll
      for (int i = 0; i < kBlocks; ++i)
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          float& x = s[i][2 * r + j];
          x = CudaMathFast::exp2(x - base);
          total[r] += x;
          if constexpr (Plan::kNarrow) x *= scale[i][j];
        }
    }
    if (__any_sync(0xffffffffu, moved))
#pragma unroll
      for (int i = 0; i < kColumns; ++i)
#pragma unroll
        for (int e = 0; e < 4; ++e) o[i][e] *= keep[e / 2];
  }

  // o += s v
  __device__ __forceinline__ void values(uint32_t tile, const float (&s)[kBlocks][4]) {
#pragma unroll
    for (int block = 0; block < kBlocks; block += 2) {
      const uint32_t a[4] = {pack_pair<M>(s[block][0], s[block][1]), pack_pair<M>(s[block][2], s[block][3]),
                             pack_pair<M>(s[block + 1][0], s[block + 1][1]),
                             pack_pair<M>(s[block + 1][2], s[block + 1][3])};
      constexpr int kAtOnce = Plan::kNarrow ? 4 : 2;  // products of eight columns that a load of V serves
#pragma unroll
      for (int column = 0; column < kColumns; column += kAtOnce) {
        constexpr int kPerChunk = Plan::kNarrow ? 2 : 1;
        uint32_t b[4];
        ldmatrix<true>(
            b, decode_chunk_on<Plan::kChunks>(tile + v_, column / kPerChunk) + block * 8 * Plan::kRowBytes);
        if constexpr (Plan::kNarrow) {
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            uint32_t even[2], odd[2];
#pragma unroll
            for (int half = 0; half < 2; ++half)
              widen<K>(__byte_perm(b[2 * i + half], 0, 0x3120), even[half], odd[half]);
            mma<M>(o[column + 2 * i], a, even[0], even[1]);
            mma<M>(o[column + 2 * i + 1], a, odd[0], odd[1]);
          }
        } else {
          mma<M>(o[column], a, b[0], b[1]);
          mma<M>(o[column + 1], a, b[2], b[3]);
        }
      }
    }
  }

  uint32_t q_, k_, v_;  // where this lane's rows begin: q in shared memory, K and V in a tile
  const DecodeRow* rows_;
  int slice_;
  float factor_[2], slope_[2];
  uint32_t q_kept_[Plan::kKeepQ ? kSteps : 1][4];
};

}  // namespace ek
