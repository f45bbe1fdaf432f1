// SPDX-License-Identifier: Apache-2.0
// group_norm by persistent blocks or clusters: bulk copies bring units to come to a ring in shared memory while this one,
// in registers, is summed, normalised and stored; so the SM has loads in flight all the time. sm_90.
#pragma once

#include "ops/norm/group_norm.cuh"

namespace ek {

constexpr int kGroupNormBulkVectors = 8;  // of a thread: 32 of its 64 registers

template <class T>
struct GroupNormBulkParams : GroupNormHeldParams<T> {
  uint32_t clusters;  // of the grid
  int slots;          // of the ring, blockDim.x vectors each
  // nhwc: boxes of so many positions of the unit's channels; 0 (nchw): the unit is one run of memory.
  int box_rows, box_x;  // box_x: what the map has in x from one unit to the next
};

// Dynamic shared memory: [slots][blockDim.x] vectors.
// A chunk is a vector for each thread of the block. Chunks, numbered through all units of the block, go through the slots
// one after the other.
template <class T>
__global__ void __launch_bounds__(1024, 1)
    group_norm_bulk(const GroupNormBulkParams<T> p, const __grid_constant__ CUtensorMap map) {
  if constexpr (kHasTma) {
    constexpr int V = kVec<T>, K = kGroupNormBulkVectors;
    extern __shared__ __align__(128) uint4 group_norm_ring[];  // boxes are to begin at multiples of 128 bytes
    __shared__ GroupNormScratch scratch;
    __shared__ uint64_t full[kGroupNormMaxSlots];
    GroupNormTeam<T> team(p, scratch);
    if (threadIdx.x == 0) {
      for (int s = 0; s < p.slots; ++s) mbarrier_init(&full[s], 1);
      mbarrier_fence();
    }
    __syncthreads();
    pdl_wait();

    const uint32_t threads = blockDim.x, size = team.end > team.begin ? team.end - team.begin : 0;
    const uint32_t chunks = (size + threads - 1) / threads;  // of each unit
    const auto unit_of = [&](uint32_t turn) { return team.first() + turn * p.clusters; };

    // One thread asks for `many` chunks from number `chunk` on, into the slots from `slot` on. Others wait for its warp, so
    // what a unit's chunks have in common is computed once.
    const auto fetch = [&](uint32_t chunk, uint32_t many, int slot) {
      if (warp_index() != static_cast<int>(threads / 32) - 1 || !elect_one() || chunks == 0) return;
      uint32_t unit = unit_of(chunk / chunks);
      chunk %= chunks;
      for (; many > 0 && unit < p.count; unit += p.clusters, chunk = 0) {
        const uint32_t image = p.per_image.divide(unit), of_image = unit - image * p.per_image.divisor;
        uint32_t from = team.begin + chunk * threads;
        const T* x = p.x + image * p.x_image + of_image * p.x_unit + static_cast<int64_t>(from) * V;
        for (; many > 0 && from < team.end; --many, from += threads, x += threads * V) {
          const uint32_t here = min(threads, team.end - from);
          uint4* to = group_norm_ring + slot * threads;
          if (p.box_rows == 0) {
            mbarrier_expect(&full[slot], here * 16);
            bulk_load(to, x, here * 16, &full[slot]);
          } else {
            const uint32_t box = p.box_rows * p.run.divisor;
            const int row = static_cast<int>(p.run.divide(from)), end = row + static_cast<int>(p.run.divide(here));
            mbarrier_expect(&full[slot], (here + box - 1) / box * box * 16);
            for (int r = row; r < end; r += p.box_rows, to += box)
              tma_load(to, &map, of_image * p.box_x, r, image, &full[slot]);
          }
          if (++slot == p.slots) slot = 0;
        }
      }
    };
    fetch(0, p.slots, 0);

    int slot = 0, phase = 0;
    for (uint32_t unit = unit_of(0); unit < p.count; unit = unit_of(team.turn)) {
      const int first_slot = slot;
      GroupNormWords held[K];
      GroupSums sums = {};
#pragma unroll
      for (int k = 0; k < K; ++k) {
        if (k * threads >= size) break;
        mbarrier_wait(&full[slot], phase);
        held[k] = *reinterpret_cast<const GroupNormWords*>(group_norm_ring + slot * threads + threadIdx.x);
        if (++slot == p.slots) slot = 0, phase ^= 1;
        float f[V];
        group_norm_unpack<T>(held[k], f);
        if (threadIdx.x + k * threads < size) sums.add(f, k == 0);
      }
      // By then all of the unit is in registers, and its slots are free.
      const float4 statistics = team.statistics(sums, [&] { fetch(team.turn * chunks + p.slots, chunks, first_slot); });
      team.template store<true>(held, statistics, unit);
    }
    pdl_launch();
  }
}

}  // namespace ek
