// SPDX-License-Identifier: Apache-2.0
// The tiles of attention_sm80 for one dtype, and their launch.
#pragma once

#include "ops/attention/attention_sm80.cuh"

namespace ek {

template <class Plan, int kTile>
ek_status sm80_launch(const AttentionCall& c, const Launch& l) {
  constexpr Sm80Tile kInfo = kSm80Tiles[kTile];
  static_assert(
      Plan::kD == kInfo.head_dim && Plan::kV == kInfo.v_dim && Plan::kM == kInfo.rows && Plan::kSmem == kInfo.smem, "");
  const int64_t blocks = sm80_blocks(c, kInfo);
  if (blocks == 0) return EK_STATUS_OK;
  return launch(l, attention_sm80<Plan>, {static_cast<unsigned>(blocks), Plan::kThreads, Plan::kSmem}, c,
                make_rows<3>(c.lead, {&c.q, &c.y, &c.lse}), sm80_grid(c, kInfo, l.device));
}

template <class T>
ek_status attention_sm80_run(const AttentionCall& c, const Launch& l) {
  switch (sm80_tile(c, l.device)) {
    case 0: return sm80_launch<Sm80Plan<T, 64, 64, 4, 2, 64, 3, 3>, 0>(c, l);
    case 1: return sm80_launch<Sm80Plan<T, 128, 128, 4, 2, 64, 3, 2>, 1>(c, l);
    case 2: return sm80_launch<Sm80Plan<T, 128, 128, 4, 1, 64, 3, 3>, 2>(c, l);
    case 3: return sm80_launch<Sm80Plan<T, 192, 128, 4, 2, 64, 2, 2>, 3>(c, l);
    case 4: return sm80_launch<Sm80Plan<T, 256, 256, 4, 1, 64, 2, 2>, 4>(c, l);
    case 5: return sm80_launch<Sm80Plan<T, 512, 256, 8, 1, 32, 2, 1>, 5>(c, l);
    default: return sm80_launch<Sm80Plan<T, 512, 256, 4, 1, 16, 2, 2>, 6>(c, l);
  }
}

}  // namespace ek
