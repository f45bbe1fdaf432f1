// SPDX-License-Identifier: Apache-2.0
// attention_decode_sm80: cp.async and mma.sync. One block to an SM; the tiles of its stretch go round over its groups of
// warps, each with a ring of its own that it fills itself, so that nobody waits for another until an item ends.
#pragma once

#include "ops/attention/attention_decode_launch.cuh"
#include "ops/attention/attention_decode_mma.cuh"

namespace ek {

// The ring of one group: kStages - 1 tiles are on the way before the first is needed.
template <class Plan>
class DecodeOwnRing {
 public:
  __device__ __forceinline__ DecodeOwnRing(char* ring, const DecodeParams& p,
                                           const DecodeBlock<typename Plan::I>& block,
                                           const AttentionPieceOf<typename Plan::I>& piece, int group, int groups,
                                           int slice)
      : ring_(smem_address(ring + group * Plan::kStages * Plan::kStageBytes)),
        group_(group),
        loader_(p, block, piece, group, groups, slice) {
#pragma unroll 1
    for (int i = 0; i < Plan::kStages - 1; ++i) loader_.issue(ring_ + i * Plan::kStageBytes);
  }
  __device__ __forceinline__ DecodeStage wait() {
    // The tile is there, and everyone has left the stage that is filled next
    copy_wait<Plan::kStages - 2>();
    if constexpr (Plan::kSlices > 1)
      warps_sync(1 + group_, 32 * Plan::kSlices);
    else
      __syncwarp();
    loader_.issue(ring_ + fill_ * Plan::kStageBytes);
    const uint32_t tiles = ring_ + stage_ * Plan::kStageBytes;
    return {tiles, tiles + 2 * Plan::kTileBytes};
  }
  // A round of tiles without one for this group.
  __device__ __forceinline__ void pass() {
    if constexpr (Plan::kSlices > 1) warps_sync(1 + group_, 32 * Plan::kSlices);
  }
  __device__ __forceinline__ void release() {
    stage_ = stage_ + 1 == Plan::kStages ? 0 : stage_ + 1;
    fill_ = fill_ + 1 == Plan::kStages ? 0 : fill_ + 1;
  }

 private:
  const uint32_t ring_;
  const int group_;
  DecodeLoader<Plan> loader_;
  int stage_ = 0, fill_ = Plan::kStages - 1;
};

template <class Plan>
__device__ __forceinline__ void decode_block(const DecodeParams& p, char* smem) {
  const int warp = threadIdx.x / 32, groups = blockDim.x / (32 * Plan::kSlices), group = warp / Plan::kSlices;
  const int slice = warp % Plan::kSlices;
  const DecodeSmem<Plan> s = decode_smem<Plan>(smem, groups);
  decode_schedule<Plan>(p, s);
  const DecodeBlock<typename Plan::I> block = decode_stretch<Plan>(p, s);
  decode_empty(p, s);
  if (block.begin >= block.end) return;
  const AttentionPieceOf<typename Plan::I> piece = block.piece();
  DecodeQuery<Plan> query(p, s);
  query.fetch(piece);
  DecodeOwnRing<Plan> ring(s.ring, p, block, piece, group, groups, slice);
  query.store();
  __syncthreads();
  decode_items<Plan>(p, s, block, piece, query, ring, group, groups, slice);
  copy_wait<0>();
}

template <class Plan>
__global__ void __launch_bounds__(Plan::kWarps * 32, 1) decode_mma(const __grid_constant__ DecodeParams p) {
  extern __shared__ __align__(128) char smem[];
  decode_prefetch(p, blockDim.x);
  pdl_wait();
  pdl_launch();
  if constexpr (kHasAsyncCopy) decode_block<Plan>(p, smem);
}

template <class Plan>
ek_status decode_launch(const AttentionCall& call, const Launch& l) {
  const DecodeShape shape = decode_shape_sm80(call, l.device);
  const DecodeSizes sizes = decode_sizes(call, shape, l.flags & EK_FLAG_BATCH_INVARIANT);
  Grid grid;
  grid.blocks = dim3(static_cast<unsigned>(sizes.split.workers));
  grid.threads = dim3(static_cast<unsigned>(shape.groups * Plan::kSlices * 32));
  grid.smem = shape.groups * Plan::kGroupBytes + Plan::kBlockBytes;
  for (int64_t b = 0; b < call.batch; b += sizes.slab)
    if (const ek_status status = launch(l, decode_mma<Plan>, grid, decode_params(call, sizes, b, l))) return status;
  return EK_STATUS_OK;
}

template <class M, class K, int kDim>
ek_status decode_run_dim(const AttentionCall& call, const Launch& l) {
  return call.heads / call.kv_heads * call.seqs.q_len <= 8 ? decode_launch<DecodePlan<M, K, kDim, 8>>(call, l)
                                                           : decode_launch<DecodePlan<M, K, kDim, 16>>(call, l);
}

template <class M, class K>
ek_status decode_run(const AttentionCall& call, const Launch& l) {
  switch (decode_dim(call)) {
    case 64: return decode_run_dim<M, K, 64>(call, l);
    case 128: return decode_run_dim<M, K, 128>(call, l);
    case 256: return decode_run_dim<M, K, 256>(call, l);
    default: return decode_run_dim<M, K, 512>(call, l);
  }
}

}  // namespace ek
