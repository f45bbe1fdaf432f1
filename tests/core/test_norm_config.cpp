// SPDX-License-Identifier: Apache-2.0
// The launch configurations of the CUDA norms: every row length is covered, within the limits of a GPU, by a choice that
// does not look at the number of rows.
#include <cstdint>
#include <initializer_list>

#include "check.h"
#include "ops/norm/norm_config.h"

using namespace ek;

namespace {

// Every length up to a few thousand vectors, then the edges of powers of two.
template <class F>
void for_lengths(int64_t most, const F& f) {
  for (int64_t n = 1; n <= most && n <= 4100; ++n) f(n);
  for (int64_t n = 8192; n <= most; n *= 2)
    for (int64_t near : {n - 1, n, n + 1})
      if (near <= most) f(near);
}

// The threads hold the row, and no kernel is asked for more than a block can have.
void check_holds(const NormConfig& c, int64_t vectors) {
  CHECK(static_cast<int64_t>(c.threads) * c.vectors * c.cluster >= vectors);
  CHECK(c.threads * c.rows_per_block <= 1024);
  CHECK(c.vectors == 2 || c.vectors == 3 || c.vectors == 4 || c.vectors == 5 || c.vectors == 8);
  if (c.threads < 32)
    CHECK((c.threads & (c.threads - 1)) == 0);  // shuffles within a part of a warp
  else
    CHECK_EQ(c.threads % 32, 0);
  // Rows that share a block: whole warps in all, and at most 8 warps for a row (see BlockTeam).
  if (c.rows_per_block > 1) {
    CHECK_EQ(c.threads * c.rows_per_block % 32, 0);
    CHECK(c.threads <= 256);
  }
}

void forward() {
  for (NormKind kind : {NormKind::kLight, NormKind::kHeavy, NormKind::kTwoInputs}) {
    for (int max_vectors : {4, 8}) {
      if (kind == NormKind::kLight && max_vectors == 4) continue;  // rms_norm and l2_norm always have room for 8
      if (kind == NormKind::kTwoInputs && max_vectors == 8) continue;
      for_lengths(1024 * max_vectors, [&](int64_t n) {
        const NormConfig c = norm_vec_config(n, max_vectors, kind);
        check_holds(c, n);
        CHECK_EQ(c.cluster, 1);
        CHECK(c.vectors <= max_vectors);
        if (c.vectors == 2) CHECK(c.threads <= 512);  // the launch bounds of norm_rows.cuh
        if (c.threads <= 32 && kind != NormKind::kHeavy) CHECK_EQ(c.vectors, 2);
      });
      CHECK_EQ(norm_vec_config(1024 * max_vectors + 1, max_vectors, kind).threads, 0);

      // Clusters take what is large, or what no block holds, up to 8 blocks of 1024 threads.
      const int64_t widest = 8 * 1024 * max_vectors;
      for_lengths(widest, [&](int64_t n) {
        const NormConfig c = norm_cluster_config(n, max_vectors, kind);
        CHECK_EQ(c.threads != 0, n > kNormClusterFrom || norm_vec_config(n, max_vectors, kind).threads == 0);
        if (!c.threads) return;
        check_holds(c, n);
        CHECK_EQ(c.cluster, 8);
        CHECK_EQ(c.vectors, max_vectors);
      });
      CHECK_EQ(norm_cluster_config(widest + 1, max_vectors, kind).threads, 0);
    }
  }
  // Thirds are whole rows of whole warps.
  for_lengths(4096, [&](int64_t n) {
    const NormConfig c = norm_thirds_config(n);
    if (!c.threads) return;
    check_holds(c, n);
    CHECK_EQ(c.threads * 3, n);
    CHECK_EQ(c.threads % 32, 0);
    CHECK(c.threads <= 256);
  });
  CHECK_EQ(norm_thirds_config(5376 / 8).threads, 224);
  CHECK_EQ(norm_thirds_config(4096 / 8).threads, 0);
  // Lengths that no memory holds are too many threads, not a few by overflow.
  CHECK_EQ(norm_vec_config(int64_t{1} << 40, 8, NormKind::kLight).threads, 0);
  CHECK_EQ(norm_cluster_config(int64_t{1} << 40, 8, NormKind::kLight).threads, 0);
  // bf16 rows of 262144 elements fit a cluster, for the ops with two inputs too.
  CHECK(norm_cluster_config(262144 / 8, 4, NormKind::kTwoInputs).threads > 0);

  // The row that one asks for is a later one, and what lies between them is not more than begins while memory answers.
  for (int inputs : {1, 2})
    for_lengths(8192, [&](int64_t n) {
      const NormConfig c =
          norm_vec_config(n, inputs == 1 ? 8 : 4, inputs == 1 ? NormKind::kHeavy : NormKind::kTwoInputs);
      if (!c.threads) return;
      const int64_t ahead = norm_ahead(c, n, inputs);
      CHECK(ahead > 0);
      CHECK(ahead * n * 16 * inputs <= kNormAheadBytes && (ahead + 1) * n * 16 * inputs > kNormAheadBytes);
    });
  CHECK_EQ(norm_ahead(norm_cluster_config(131072 / 8, 8, NormKind::kLight), 131072 / 8, 1), kNormAheadClusters);

  // Blocks that stay have several rows each and fit on the SMs together; else there are none.
  for_lengths(8192, [](int64_t n) {
    const NormConfig c = norm_vec_config(n, 8, NormKind::kHeavy);
    for (int64_t rows : {0, 1, 100, 2639, 2640, 5280, 1 << 20}) {
      const unsigned blocks = norm_stay_blocks(c, rows, 132);
      if (!blocks) continue;
      CHECK_EQ(c.vectors, 4);
      CHECK(c.threads >= 32 && c.threads * c.rows_per_block <= kNormStayBlock);
      CHECK(blocks * c.threads * c.rows_per_block <= 132u * kNormStayThreads);
      CHECK(int64_t{blocks} * c.rows_per_block * kNormStayRows <= rows);
    }
  });
  const NormConfig stays = norm_vec_config(4096 / 8, 8, NormKind::kHeavy);
  CHECK_EQ(norm_stay_blocks(stays, 4096, 132), 660u);
  CHECK_EQ(norm_stay_blocks(stays, 2639, 132), 0u);
  CHECK_EQ(norm_stay_blocks(stays, 16384, 132), 0u);  // 70.3 us so, 67 by blocks that leave
  CHECK(norm_stay_blocks(norm_vec_config(2048 / 8, 8, NormKind::kHeavy), 16384, 132) > 0);
  CHECK_EQ(norm_stay_blocks(norm_vec_config(8192 / 8, 8, NormKind::kHeavy), 1 << 20, 132), 0u);
  // Sizes of models are whole rows: the threads of a light norm hold them exactly.
  for (int dim : {2048, 3584, 4096, 5120, 7168, 8192, 16384}) {
    const NormConfig c = norm_vec_config(dim / 8, 8, NormKind::kLight);
    CHECK_EQ(c.threads * c.vectors, dim / 8);
  }

  for (int64_t dim :
       {int64_t{0}, int64_t{1}, int64_t{7}, int64_t{512}, int64_t{513}, int64_t{4097}, int64_t{1} << 40}) {
    const NormConfig c = norm_any_config(dim);
    CHECK(c.threads > 0 && c.threads * c.rows_per_block <= 512);
    CHECK_EQ(c.threads * c.rows_per_block % 32, 0);
  }
}

void backward() {
  for_lengths(2048, [](int64_t n) {
    const NormConfig c = norm_backward_vec_config(n);
    check_holds(c, n);
    CHECK(c.threads * c.rows_per_block <= kNormBackwardThreads);
    CHECK(c.blocks_per_sm >= 1);
    // Several rows to a block leave their sums in shared memory, within what needs no permission.
    if (c.rows_per_block > 1) CHECK(c.rows_per_block * n * 8 * 4 <= 48 * 1024);
    // Sums of pairs, in the smallest shared memory of a GPU with clusters.
    CHECK(c.blocks_per_sm * (norm_backward_pair_bytes(c, 2) + 2048) <= 100 * 1024);
  });
  CHECK_EQ(norm_backward_vec_config(2049).threads, 0);

  Device h200;
  h200.target = 90;
  h200.smem_per_block = 227 * 1024;
  Device small = h200;
  small.smem_per_block = 99 * 1024;
  for (const Device* device : {&h200, &small}) {
    for (int bytes : {2, 4}) {
      for_lengths(4096, [&](int64_t n) {
        const NormConfig c = norm_backward_bulk_config(n, bytes, *device);
        if (!c.threads) return;
        check_holds(c, n);
        CHECK(c.threads <= kNormBackwardThreads);
        CHECK(c.vectors * (16 / bytes) <= (c.rows_per_block > 1 ? 40 : 32));  // sums of a thread
        CHECK(c.stages >= 2 && c.stages <= kNormBulkStages);
        CHECK(c.blocks_per_sm >= 1);
        CHECK(c.blocks_per_sm * (c.rows_per_block * c.stages * 32 * n + 2048) <= device->smem_per_block + 1024);
        const int64_t room = norm_backward_bulk_room(c, *device) + 1024;
        CHECK(c.blocks_per_sm * (room + 1024) <= device->smem_per_block + 1024);
        CHECK((c.blocks_per_sm + 1) * room > device->smem_per_block + 1024);
        // The sums of several rows go where the rows were.
        if (c.rows_per_block > 1) CHECK(n * (16 / bytes) * 4 <= c.stages * 32 * n);
        CHECK(norm_backward_pair_bytes(c, bytes) <= c.rows_per_block * c.stages * 32 * n);
      });
    }
  }
  for (int64_t dim : {1152, 4096, 8192, 16384}) CHECK(norm_backward_bulk_config(dim / 8, 2, h200).threads > 0);
  CHECK_EQ(norm_backward_bulk_config(1152 / 8, 2, h200).threads, 32);

  CHECK_EQ(norm_backward_slices(0), 0);
  CHECK_EQ(norm_backward_slices(1), 1);
  CHECK(norm_backward_slices(int64_t{1} << 40) <= 65535);  // a grid's y
}

// Shares and threads of a unit whose runs are `run` vectors.
void check_unit(const NormConfig& c, int64_t vectors, int64_t run) {
  check_holds(c, vectors);
  const int64_t share = group_norm_share(vectors, run, c.cluster);
  CHECK_EQ(share % run, 0);
  CHECK(share * c.cluster >= vectors);
  CHECK(static_cast<int64_t>(c.threads) * c.vectors >= share);
  CHECK_EQ(c.threads % run, 0);  // all vectors of a thread have the same place in a run
}

void group_norm() {
  for (int64_t run : {1, 2, 3, 4, 5, 8, 10, 16, 20, 32}) {
    // nchw (run = 1) has any number of vectors, nhwc whole runs.
    for_lengths(131072 / run, [&](int64_t rows) {
      const int64_t n = rows * run;
      const NormConfig block = group_norm_block_config(n, run);
      if (n <= 4096) CHECK(block.threads > 0);
      if (block.threads) check_unit(block, n, run);
      CHECK_EQ(block.cluster, 1);

      // Clusters have all their blocks, and take what is large, or what no block holds.
      const NormConfig cluster = group_norm_cluster_config(n, run);
      if (n <= kGroupNormClusterFrom) CHECK_EQ(cluster.threads != 0, block.threads == 0);
      if (n > kGroupNormClusterFrom && n <= 32768) CHECK(cluster.threads > 0);
      if (!cluster.threads) return;
      check_unit(cluster, n, run);
      CHECK_EQ(cluster.cluster, kMaxCluster);
      CHECK_EQ(cluster.vectors, 8);
      if (run == 1) CHECK(cluster.threads >= 128);
    });
  }
  for (int64_t vectors : {int64_t{8192}, int64_t{8193}, int64_t{1} << 40})
    CHECK_EQ(group_norm_block_config(vectors, 1).threads != 0, vectors <= 8192);
  for (int64_t vectors : {int64_t{65536}, int64_t{65537}, int64_t{1} << 40})
    CHECK_EQ(group_norm_cluster_config(vectors, 1).threads != 0, vectors <= 65536);
  CHECK_EQ(group_norm_cluster_config(kGroupNormClusterFrom, 1).threads, 0);
  CHECK_EQ(group_norm_cluster_config(kGroupNormClusterFrom + 1, 1).threads, 128);
  // Runs of 21 vectors: 672 threads of a block hold fewer than kGroupNormClusterFrom.
  CHECK_EQ(group_norm_block_config(21 * 280, 21).threads, 0);
  CHECK(group_norm_cluster_config(21 * 280, 21).threads > 0);
  check_unit(group_norm_cluster_config(21 * 280, 21), 21 * 280, 21);

  // What was best on an H200: docs/measured-facts.md.
  struct Best {
    int64_t vectors, run;
    int threads, cluster;
  };
  const Best best[] = {{2560, 1, 320, 1},  {5120, 5, 640, 1},  {8192, 1, 128, 8},
                       {16384, 1, 256, 8}, {32768, 1, 512, 8}, {32768, 8, 512, 8}};
  for (const Best& b : best) {
    NormConfig c = group_norm_cluster_config(b.vectors, b.run);
    if (!c.threads) c = group_norm_block_config(b.vectors, b.run);
    CHECK_EQ(c.threads, b.threads);
    CHECK_EQ(c.cluster, b.cluster);
    CHECK_EQ(c.vectors, 8);
  }

  // Groups of a unit: a line, of groups that lanes can tell apart, and a divisor of all groups.
  CHECK_EQ(group_norm_together(16, 2, 32), 4);
  CHECK_EQ(group_norm_together(16, 1, 32), 8);
  CHECK_EQ(group_norm_together(16, 8, 32), 1);
  CHECK_EQ(group_norm_together(16, 3, 32), 1);
  CHECK_EQ(group_norm_together(16, 1, 6), 2);
  CHECK_EQ(group_norm_together(16, 1, 5), 1);
  for (int64_t access : {2, 4, 8, 16})
    for (int64_t run = 1; run <= 40; ++run) {
      const int together = group_norm_together(access, run, 64);
      CHECK(together >= 1 && together <= kGroupNormLine);
      if (together > 1) CHECK(together * run <= 32 && 32 % (together * run) == 0);
    }

  for (int64_t n : {int64_t{1}, int64_t{2049}, int64_t{1} << 20, (int64_t{1} << 20) + 1, int64_t{1} << 40}) {
    CHECK(norm_ceil_div(n, group_norm_part(n)) <= kGroupNormMaxParts);
    CHECK_EQ(group_norm_part(n) % 32, 0);
  }
  // Whole parts are no more than the workspace has room for, and cut neither a run nor, in the second pass, a part of the first.
  for (int64_t run : {0x800, 0x1000, 0x1001, 0x3000, 0x2000, 1 << 20})
    for (int64_t runs : {1, 3, 16, 1000, 1 << 20}) {
      const int64_t n = run * runs, part = group_norm_whole_part(n, run);
      if (!part) continue;
      CHECK(norm_ceil_div(n, part) <= norm_ceil_div(n, group_norm_part(n)));
      CHECK(run % part == 0 && part % kGroupNormWholePart == 0);
    }
  CHECK_EQ(group_norm_whole_part(16 * 8192, 8192), 4096);
  CHECK_EQ(group_norm_whole_part(3 * 0x800, 0x800), 0);
}

}  // namespace

int main() {
  forward();
  backward();
  group_norm();
  return check::report("norm_config");
}
