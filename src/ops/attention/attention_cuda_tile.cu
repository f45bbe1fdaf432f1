// SPDX-License-Identifier: Apache-2.0
// The tiles of attention_cuda_tile, and their launch.
#include "ops/attention/attention_cuda_tile.cuh"

namespace ek {
namespace {

// kSlots: 1 where keys and values take turns at one place
template <int kTile, int kSlots = 2>
ek_status tile_launch(const AttentionCall& c, const Launch& l) {
  constexpr CudaTile kInfo = kCudaTiles[kTile];
  using Plan = CudaTilePlan<kInfo.head_dim, kInfo.v_dim, kInfo.rows / 16, kSlots, kInfo.blocks>;
  static_assert(Plan::kM == kInfo.rows && Plan::kSmem == kInfo.smem, "");
  const int64_t blocks = sm80_blocks(c, kInfo);
  if (blocks == 0) return EK_STATUS_OK;
  const Grid grid = {static_cast<unsigned>(blocks), Plan::kThreads, Plan::kSmem};
  return launch(l, attention_cuda_tile<Plan>, grid, c, make_rows<3>(c.lead, {&c.q, &c.y, &c.lse}),
                cuda_tile_grid(c, kInfo, l.device));
}

}  // namespace

ek_status attention_cuda_tile_run(const AttentionCall& c, const Launch& l) {
  switch (cuda_tile(c, l.device)) {
    case 0: return tile_launch<0>(c, l);
    case 1: return tile_launch<1>(c, l);
    case 2: return tile_launch<2>(c, l);
    case 3: return tile_launch<3>(c, l);
    case 4: return tile_launch<4>(c, l);
    case 5: return tile_launch<5, 1>(c, l);
    case 6: return tile_launch<6>(c, l);
    case 7: return tile_launch<7>(c, l);
    case 8: return tile_launch<8>(c, l);
    default: return tile_launch<9>(c, l);
  }
}

}  // namespace ek
