// SPDX-License-Identifier: Apache-2.0
// The tiles of attention_cuda_tile, and their launch.
#include "ops/attention/attention_cuda_tile.cuh"

namespace ek {
namespace {

template <class Plan, int kTile>
ek_status tile_launch(const AttentionCall& c, const Launch& l) {
  constexpr Sm80Tile kInfo = kCudaTiles[kTile];
  static_assert(
      Plan::kD == kInfo.head_dim && Plan::kV == kInfo.v_dim && Plan::kM == kInfo.rows && Plan::kSmem == kInfo.smem, "");
  const int64_t blocks = sm80_blocks(c, kInfo);
  if (blocks == 0) return EK_STATUS_OK;
  const Grid grid = {static_cast<unsigned>(blocks), Plan::kThreads, Plan::kSmem};
  if (const ek_status status = allow_smem<attention_cuda_tile<Plan>, Plan::kSmem>(l)) return status;
  return launch(l, attention_cuda_tile<Plan>, grid, c, make_rows<3>(c.lead, {&c.q, &c.y, &c.lse}),
                cuda_tile_grid(c, kInfo, l.device));
}

}  // namespace

ek_status attention_cuda_tile_run(const AttentionCall& c, const Launch& l) {
  switch (cuda_tile(c, l.device)) {
    case 0: return tile_launch<CudaTilePlan<64, 64, 8, 2, 2>, 0>(c, l);
    case 1: return tile_launch<CudaTilePlan<64, 64, 4, 2, 3>, 1>(c, l);
    case 2: return tile_launch<CudaTilePlan<64, 64, 1, 2, 4>, 2>(c, l);
    case 3: return tile_launch<CudaTilePlan<128, 128, 8, 2, 2>, 3>(c, l);
    case 4: return tile_launch<CudaTilePlan<128, 128, 4, 2, 3>, 4>(c, l);
    case 5: return tile_launch<CudaTilePlan<128, 128, 4, 1, 3>, 5>(c, l);
    case 6: return tile_launch<CudaTilePlan<128, 128, 1, 2, 4>, 6>(c, l);
    case 7: return tile_launch<CudaTilePlan<192, 128, 4, 2, 2>, 7>(c, l);
    case 8: return tile_launch<CudaTilePlan<256, 256, 4, 2, 1>, 8>(c, l);
    default: return tile_launch<CudaTilePlan<256, 256, 1, 2, 2>, 9>(c, l);
  }
}

}  // namespace ek
