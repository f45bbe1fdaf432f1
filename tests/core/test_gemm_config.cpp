// SPDX-License-Identifier: Apache-2.0
// Plans and schedules of the Hopper products: every k block of every tile is computed exactly once, pieces find each other,
// blocks of a cluster serve each other, and no plan asks for more than the device has.
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "check.h"
#include "gemm_calls.h"
#include "ops/gemm/gemm_config.h"
#include "ops/gemm/gemm_sm90_narrow_config.h"
#include "ops/gemm/gemm_sm90_skinny_config.h"

using namespace ek;

namespace {

void every_block_once(GemmSchedule s) {
  s.divide_by_hand();
  std::vector<int> seen(static_cast<size_t>(s.tiles()) * s.k_blocks);
  std::vector<int> pieces(s.tiles());
  std::vector<int> slots(2 * s.workers, -1);
  for (int worker = 0; worker < s.workers; ++worker)
    for (int rank = 0; rank < s.split; ++rank) {
      GemmWalk<true> walk(s, worker);
      GemmWork work;
      while (walk.next(s, &work)) {
        work = gemm_slice(s, work, rank);
        CHECK(work.k_count > 0);
        for (int i = 0; i < work.k_count; ++i)
          ++seen[static_cast<size_t>(work.tile) * s.k_blocks + work.k_begin + i * work.k_step];
        if (s.split > 1 || work.k_count == s.k_blocks) continue;
        ++pieces[work.tile];
        const GemmPieces p = gemm_pieces(s, work.tile);
        CHECK(p.first <= worker && worker <= p.last);
        const int slot = gemm_piece_slot(s, work.tile, worker);
        CHECK(slot / 2 == worker && slots[slot] == -1);
        slots[slot] = work.tile;
      }
    }
  for (int n : seen) CHECK_EQ(n, 1);
  for (int tile = 0; tile < s.tiles(); ++tile)
    if (pieces[tile]) {
      const GemmPieces p = gemm_pieces(s, tile);
      CHECK_EQ(pieces[tile], p.last - p.first + 1);
    }
}

void every_tile_once(GemmSchedule s) {
  s.divide_by_hand();
  std::vector<int> seen(s.tiles());
  for (int i = 0; i < s.tiles(); ++i) {
    const GemmTile t = gemm_tile(s, i);
    CHECK(t.row >= 0 && t.row < s.rows && t.col >= 0 && t.col < s.cols && t.batch >= 0 && t.batch < s.batch);
    ++seen[(t.batch * s.rows + t.row) * s.cols + t.col];
  }
  for (int n : seen) CHECK_EQ(n, 1);
}

void schedules() {
  for (int rows : {1, 3, 8, 17})
    for (int cols : {1, 2, 9})
      for (int k_blocks : {1, 5, 16, 67})
        for (int workers : {1, 4, 7, 66}) {
          GemmSchedule s(rows, cols, 2, k_blocks);
          s.workers = workers;
          every_tile_once(s);
          GemmSchedule turned = s;
          turned.walk_across();
          every_tile_once(turned);
          every_block_once(s);
          for (int streamed : {1, s.tiles() / 2, s.tiles()}) {
            s.streamed = streamed;
            if (streamed > 0 && s.streamed_blocks() >= workers) every_block_once(s);
          }
          s.streamed = 0;
          for (int split = 2; split <= 8 && split <= k_blocks; ++split) {
            s.split = split;
            every_block_once(s);
          }
        }
}

// Every block gets each part of its operands once, and reports to those who loaded them, once each.
template <int kRows, int kCols>
void places() {
  using Place = GemmPlace<kRows, kCols>;
  for (uint32_t rank = 0; rank < 8; ++rank) {
    const Place place = Place::of(rank);
    CHECK_EQ(place.rank(), rank);
    uint32_t loaders = 0, a_from = 0, b_from = 0, a_parts = 0, b_parts = 0;
    for (int i = 0; i < Place::kReaders; ++i) {
      CHECK(!(loaders >> place.loader(i) & 1));
      loaders |= 1u << place.loader(i);
    }
    for (uint32_t from = 0; from < 8; ++from) {
      const Place other = Place::of(from);
      if (other.sharing_a() >> rank & 1) {
        CHECK(other.slice == place.slice && other.row == place.row && !(a_parts >> other.col & 1));
        a_from |= 1u << from;
        a_parts |= 1u << other.col;
      }
      if (other.sharing_b() >> rank & 1) {
        CHECK(other.slice == place.slice && other.col == place.col && !(b_parts >> other.row & 1));
        b_from |= 1u << from;
        b_parts |= 1u << other.row;
      }
    }
    CHECK_EQ(a_parts, (1u << Place::kCols) - 1);
    CHECK_EQ(b_parts, (1u << Place::kRows) - 1);
    CHECK_EQ(loaders, a_from | b_from);
  }
}

void check_plan(const GemmPlan& plan, const Device& device, int rows, int cols, int cluster,
                int ring = kGemmRingBytes) {
  const GemmSchedule& s = plan.schedule;
  CHECK(s.workers >= 1 && s.split >= 1 && s.split <= 8);
  CHECK(s.workers * cluster * s.split <= device.processors);
  CHECK(s.split <= s.k_blocks);
  CHECK(s.streamed <= s.tiles());
  if (s.streamed) CHECK(s.streamed_blocks() >= s.workers && s.streamed * cluster * 2 <= kCounters);
  if (s.split > 1) CHECK(rows == 128 && gemm_split_bytes(cols, s.split) <= ring);
  CHECK(!s.streamed || s.split == 1);
  CHECK(!plan.late || (!s.streamed && cluster == 1));
}

void plans() {
  const Device device = h200();
  for (int64_t m : {1, 7, 16, 64, 65, 128, 129, 729, 2048, 9477})
    for (int64_t n : {8, 64, 1000, 1152, 4096, 4304, 28672})
      for (int64_t k : {8, 64, 520, 1152, 4096, 28672}) {
        const GemmCall c = linear(m, n, k);
        CHECK(!gemm_not_tma(c));
        const GemmPlan plan = gemm_sm90_plan(c, device);
        CHECK(plan.tile >= 0 && plan.schedule.split == 1 && plan.schedule.streamed == 0);
        const GemmTileInfo& t = kGemmTiles[plan.tile];
        check_plan(plan, device, t.rows, t.cols, gemm_sharing(t.share));
        const GemmPlan split = gemm_sm90_split_plan(c, device);
        if (split.tile >= 0) {
          const GemmTileInfo& u = kGemmTiles[split.tile];
          CHECK(split.schedule.split > 1 && split.schedule.streamed == 0);
          check_plan(split, device, u.rows, u.cols, gemm_sharing(u.share));
          const int blocks = split.schedule.split * gemm_sharing(u.share);
          CHECK(split.schedule.tiles() <= gemm_clusters_at_once(device.processors, blocks));
        }
        for (const bool constant : {false, true}) {
          if (m > 64) continue;
          GemmCall few = c;
          few.constant_b = constant;
          const GemmPlan swap = gemm_sm90_swap_plan(few, device);
          const GemmSwapTile& v = kGemmSwapTiles[swap.tile];
          CHECK(v.m() >= m && gemm_swap_tile_built(swap.tile, false, gemm_swap_finish(c)));
          CHECK(swap.schedule.split == 1 || v.rows == 128);
          check_plan(swap, device, v.rows, v.cols, gemm_sharing(v.share), kGemmSwapRingBytes);
        }
      }
}

// Shapes whose answer is known from measurements.
void choices() {
  const Device device = h200();
  CHECK(kGemmTiles[gemm_sm90_plan(linear(8192, 8192, 8192), device).tile].cols >= 128);
  CHECK(gemm_sm90_plan(linear(1024, 1024, 1024), device).schedule.workers >= 64);
  CHECK(gemm_sm90_split_plan(linear(128, 4096, 4096), device).schedule.split > 1);
  CHECK(gemm_sm90_splits(linear(128, 256, 8192), device));
  // In 33 clusters of three; 22 of six do not run at once.
  CHECK(gemm_sm90_splits(linear(128, 2112, 7168), device));
  CHECK_EQ(gemm_sm90_split_plan(linear(128, 2112, 7168), device).schedule.split, 3);
  // Memory is the limit: whole tiles are as fast or faster.
  for (const int64_t n : {7168, 8192}) CHECK(!gemm_sm90_splits(linear(128, n, 16384), device));
  for (int blocks = 1; blocks <= 8; ++blocks) CHECK(gemm_clusters_at_once(132, blocks) * blocks <= 132);
  CHECK_EQ(gemm_clusters_at_once(132, 2), 66);
  CHECK_EQ(gemm_clusters_at_once(132, 4), 28);
  constexpr int kSeen[] = {132, 66, 39, 30, 22, 17, 15, 15};  // at once on an H200
  for (int blocks = 1; blocks <= 8; ++blocks) CHECK(gemm_clusters_at_once(132, blocks) <= kSeen[blocks - 1]);
  CHECK_EQ(gemm_sm90_swap_plan(linear(16, 4096, 4096), device).schedule.split, 3);
  const auto tile = [&](int64_t m, int64_t n, int64_t k) {
    return kGemmTiles[gemm_sm90_plan(linear(m, n, k), device).tile].name;
  };
  CHECK_TEXT(tile(1024, 1024, 1024), "64x128, one group");
  CHECK_TEXT(tile(128, 6144, 4096), "64x96, one group");
  CHECK_TEXT(tile(128, 8192, 8192), "64x128, one group");
  CHECK_TEXT(tile(128, 10240, 8192), "64x160, one group");
  CHECK_TEXT(tile(512, 10240, 8192), "128x160");
  CHECK_TEXT(tile(729, 4304, 1152), "128x208");
  CHECK_TEXT(tile(2048, 2112, 7168), "64x176, one group");
  CHECK_TEXT(tile(2048, 4096, 4096), "128x256");
  CHECK_TEXT(tile(8192, 10240, 8192), "128x128 ping-pong");
  for (const int64_t n : {6144, 8192}) CHECK_TEXT(tile(8192, n, n == 6144 ? 4096 : 8192), "128x176 ping-pong");
  CHECK_TEXT(tile(2187, 1152, 1152), "turned 128x160");
  CHECK_TEXT(tile(9477, 1152, 1152), "turned 128x216");
  // Rows that begin off L2's lines: what asks for little wins. All clusters of eight that fit are taken.
  CHECK_TEXT(tile(729, 1152, 4304), "turned 64x128, eights");
  CHECK_TEXT(tile(650, 1152, 2120), "turned 64x128, eights");  // of TILES: half of the last cluster is outside
  CHECK_EQ(gemm_sm90_plan(linear(729, 1152, 4304), device).schedule.workers, 15);
  CHECK_TEXT(tile(2187, 1152, 4304), "turned 128x160");
  CHECK_TEXT(tile(4374, 1152, 4304), "turned 192x208");
  CHECK_TEXT(tile(9477, 1152, 4304), "turned 128x216");
  // Ping-pong: who ends the last tile.
  const auto shares = [&](int64_t m, int64_t k, bool with_c, int32_t act) {
    GemmCall c = linear(m, 2048, k);
    c.c.data = with_c ? c.d.data : nullptr;
    c.act = act;
    const GemmPlan plan = gemm_plan_tile(c, device, 4);
    CHECK(kGemmTiles[plan.tile].groups == GemmGroups::kTurns);
    return plan.shares;
  };
  CHECK(shares(2048, 2048, true, EK_ACTIVATION_NONE) && shares(2048, 2048, false, EK_ACTIVATION_SILU));
  CHECK(!shares(2048, 2048, false, EK_ACTIVATION_NONE));
  CHECK(!shares(2048, 512, true, EK_ACTIVATION_NONE) && shares(1024, 512, true, EK_ACTIVATION_NONE));
  // Few rows. k cut where that fits; else one wave of tiles as high as that takes, or a stream.
  for (const bool constant : {false, true}) {
    const auto plan = [&](int64_t m, int64_t n, int64_t k) {
      GemmCall c = linear(m, n, k);
      c.constant_b = constant;
      return gemm_sm90_swap_plan(c, device);
    };
    const auto height = [&](int64_t m, int64_t n, int64_t k) { return kGemmSwapTiles[plan(m, n, k).tile].rows; };
    CHECK_EQ(plan(8, 1024, 2048).schedule.split, 8);
    CHECK_EQ(plan(16, 3584, 4096).schedule.split, 4);
    CHECK_EQ(plan(16, 8192, 8192).schedule.split, 2);
    CHECK_EQ(height(16, 24576, 1536), 192);
    CHECK_EQ(height(16, 16384, 2048), 128);
    CHECK_EQ(plan(16, 16384, 2048).schedule.streamed, 0);
    CHECK_EQ(height(32, 28672, 4096), constant ? 128 : 256);
    CHECK_EQ(height(64, 28672, 4096), 256);
    CHECK(plan(64, 28672, 4096).late && !plan(64, 24576, 1536).late);
    CHECK_EQ(height(32, 10240, 8192), constant ? 128 : 192);
    CHECK_EQ(plan(32, 10240, 8192).schedule.streamed, constant ? 80 : 0);
    CHECK_EQ(plan(32, 57344, 8192).schedule.streamed, 448);
    CHECK(kGemmSwapTiles[plan(64, 4096, 4096).tile].share == GemmShare::kA);
    CHECK_EQ(height(64, 4096, 1024), 64);
    // With SMs left over the next kernel comes late, if b is large; larger still, and they get a part of it.
    CHECK(!plan(16, 7168, 2048).late && !plan(16, 3584, 14336).late && !plan(16, 1024, 3072).late);
    CHECK_EQ(plan(16, 6144, 4096).late, !constant);
    CHECK_EQ(plan(16, 2112, 7168).late, !constant);
    CHECK_EQ(plan(16, 4096, 14336).late, !constant);
    CHECK(plan(16, 7168, 16384).late && plan(16, 2048, 16384).late);
    CHECK_EQ(plan(16, 7168, 16384).stages, kGemmSplitStages);
    CHECK_EQ(plan(16, 5120, 25600).late, !constant);
    CHECK_EQ(plan(16, 5120, 25600).schedule.streamed, constant ? 40 : 0);
    // Tiles alone, of which some ask for the same, are to begin together; others need not.
    GemmCall c = linear(160, 7168, 16384);
    c.constant_b = constant;
    CHECK(gemm_sm90_plan(c, device).late && !gemm_plan_tile(c, device, 4).late);
    c.m = 128;
    CHECK(!gemm_plan_tile(c, device, kGemmAnyTile).late);
    c.n = c.k = 1024;
    CHECK(!gemm_sm90_plan(c, device).late);
  }
}

// Of gemm_sm90_skinny, by its blocks of an SM: those of one wave with the next kernel late or not, more than fit, those that go on to
// further columns (all that fit, or one to an SM), and rings that are filled again.
enum { kLate, kEarly, kMoreThanFit, kGoesOn, kOneToAnSm, kGoesRound, kSkinnyKinds };
void see_skinny(const GemmCall& c, const Device& device, bool (&seen)[4][kSkinnyKinds]) {
  if (c.m > kGemmSm90SkinnyMaxM) return;
  const GemmSm90SkinnyPlan plan = gemm_sm90_skinny_plan(c, device);
  const int64_t sets = gemm_ceil(c.n, 16), room = int64_t{device.processors} * plan.resident;
  bool (&kinds)[kSkinnyKinds] = seen[plan.resident];
  if (plan.blocks == sets)
    kinds[sets > room ? kMoreThanFit : plan.late ? kLate : kEarly] = true;
  else
    kinds[plan.blocks == room ? kGoesOn : kOneToAnSm] = true;
  const int warps = plan.resident == 2 ? 16 : 8, stages = plan.resident == 2 ? 3 : 4;
  kinds[kGoesRound] |= gemm_ceil(sets, plan.blocks) * gemm_ceil(gemm_ceil(c.k, 64), warps) > stages;
}

// Of gemm_sm90_narrow, by its rows of a and whether b is constant: k whole or cut, and rings that are filled again. And of all of them: every number of parts and
// of blocks an SM, parts of different lengths, an odd number of blocks of k, a block that ends nothing, boxes of a lower than what is
// multiplied, and more blocks than fit.
struct NarrowSeen {
  bool rows[65][2][2][2] = {}, halves[65][2] = {}, a_alone = false, split[kGemmMaxSplit + 1] = {},
       resident[kGemmNarrowResident + 1] = {};
  bool cols[kGemmNarrowCols + 1][2] = {}, fewer[65][2][2] = {}, fewer_halves = false;
  bool uneven = false, odd = false, idle = false, late = false, low = false, waves = false;

  void see(const GemmCall& c, const Device& device) {
    if (c.m > (c.n > kGemmNarrowTwiceCols ? kGemmNarrowMaxM : kGemmNarrowTwiceM) || c.k % 64) return;
    const GemmNarrowPlan p = gemm_narrow_plan(c, device);
    const int64_t steps = gemm_ceil(c.k, kGemmNarrowK), tiles = gemm_ceil(c.n, p.cols);
    const bool cut = p.split > 1;
    const bool again = steps / p.split > p.stages;
    rows[p.rows][c.constant_b][cut][0] = split[p.split] = resident[p.resident] = true;
    if (p.row_tiles == 2) halves[p.rows][0] = true, halves[p.rows][1] |= again;
    a_alone |= !again && steps / p.split > p.a_stages;
    rows[p.rows][c.constant_b][cut][1] |= again && steps / p.split > p.a_stages;
    uneven |= steps % p.split != 0;
    odd |= c.k % kGemmNarrowK != 0;
    idle |= p.each * (p.split - 1) >= p.rows / 8;
    late |= p.late;
    low |= p.a_rows < p.rows;
    cols[p.cols][cut] = true;
    if (p.cols < kGemmNarrowCols) fewer[p.rows][c.constant_b][cut] |= again, fewer_halves |= p.row_tiles == 2;
    waves |= tiles * p.row_tiles > gemm_narrow_room(device.processors, p.split, p.resident);
  }
  void check() const {
    for (const int r : {8, 16, 32, 64})
      for (const bool constant : {false, true})
        for (const bool cut : {false, true}) CHECK(rows[r][constant][cut][0] && rows[r][constant][cut][1]);
    CHECK(halves[16][0] && halves[32][0] && halves[64][0] && halves[64][1] && a_alone);
    for (int s = 1; s <= kGemmMaxSplit; ++s) CHECK(split[s]);
    for (int r = 1; r <= kGemmNarrowResident; ++r) CHECK(resident[r]);
    for (int n = 40; n <= kGemmNarrowCols; n += 8) CHECK(cols[n][0] && cols[n][1]);
    CHECK(cols[kGemmNarrowLeastCols][1]);
    for (const int r : {8, 16, 32, 64}) CHECK(fewer[r][true][0] && fewer[r][true][1]);
    CHECK(fewer[8][false][0] && fewer[8][false][1] && fewer_halves);
    CHECK(uneven && odd && idle && late && low && waves);
  }
};

// The sizes that the tests of gemm and gemm_epilogue take for this (TILES in tests/harness/matrix.py) reach every tile.
void every_tile_tested() {
  constexpr int64_t kSizes[][3] = {
      {72, 72, 5128},     {5, 12288, 64},    {13, 4104, 64},     {13, 12288, 136},  {30, 4104, 64},
      {60, 4104, 64},     {60, 4104, 1096},  {30, 18000, 64},    {5, 32000, 64},    {13, 32000, 64},
      {60, 18000, 64},    {30, 28672, 64},   {60, 28672, 64},    {60, 34000, 64},   {1160, 2112, 520},
      {2056, 2112, 520},  {392, 4104, 200},  {1024, 4096, 4104}, {5, 34000, 520},   {1160, 1560, 136},
      {60, 1032, 2056},   {13, 8712, 3080},  {328, 5712, 4104},  {650, 1152, 2120}, {648, 4680, 72},
      {200, 9624, 72},    {72, 12792, 64},   {72, 10680, 64},    {392, 11424, 72},  {392, 7248, 72},
      {264, 7776, 72},    {200, 11736, 72},  {904, 3600, 72},    {152, 9912, 72},   {328, 8568, 72},
      {72, 6456, 72},     {392, 1152, 5128}, {136, 4304, 520},   {392, 1032, 1032}, {520, 3584, 520},
      {392, 1544, 2056},  {2056, 1544, 520}, {72, 28000, 520},   {520, 4304, 1032}, {152, 3912, 3176},
      {136, 2120, 10248}, {840, 840, 10248}, {72, 3672, 10248},  {72, 2664, 5128},  {136, 888, 6152},
      {1160, 120, 10248}, {136, 648, 3592},  {72, 72, 2568},     {72, 72, 7176},    {72, 72, 10248},
      {136, 936, 7176},   {136, 744, 6152},  {1160, 72, 3080},   {776, 72, 6152},   {5, 1024, 4096},
      {13, 1024, 4096},   {30, 1024, 4096},  {152, 7776, 72},    {264, 8472, 72},   {264, 11280, 72},
      {1288, 1296, 72},   {1544, 1560, 72},  {584, 3384, 72},    {3, 1032, 4104},   {4, 6136, 1608},
      {7, 12600, 200},    {8, 8184, 1608},   {3, 10232, 1608},   {3, 18952, 1032},  {7, 4120, 2056},
      {3, 6808, 1608},    {7, 264, 520},     {5, 104, 832},      {5, 104, 64},      {13, 104, 448},
      {30, 104, 960},     {20, 104, 960},    {13, 104, 64},      {30, 104, 64},     {60, 104, 448},
      {60, 104, 64},      {100, 104, 448},   {5, 104, 1088},     {5, 104, 1344},    {5, 104, 1600},
      {5, 104, 1856},     {5, 104, 2112},    {5, 9192, 832},     {5, 2664, 3776},   {5, 15080, 576},
      {5, 1384, 4544},    {13, 9192, 704},   {13, 6248, 1472},   {13, 13608, 448},  {13, 1384, 4544},
      {30, 9192, 704},    {30, 744, 6336},   {30, 13608, 448},   {60, 1704, 1216},  {60, 4776, 1088},
      {60, 424, 8128},    {100, 104, 8256},  {5, 520, 8256},     {5, 25384, 64},    {5, 6248, 5824},
      {5, 1040, 12992},   {5, 7280, 1856},   {5, 10088, 1344},   {5, 6032, 2240},   {5, 1872, 7232},
      {13, 1872, 7232},   {13, 3640, 3712},  {13, 7592, 1792},   {13, 21112, 640},  {30, 8840, 1536},
      {30, 3640, 3712},   {30, 7280, 1856},  {60, 3640, 3712},   {60, 2184, 6208},  {60, 10088, 1344},
      {60, 1976, 6848},   {100, 1040, 12992}};
  const Device device = h200();
  for (const bool full : {false, true}) {
    bool seen[kGemmTileCount] = {}, split[kGemmTileCount] = {}, swapped[kGemmSwapCount] = {}, cut = false, tail = false;
    bool few = false, skinny[4][kSkinnyKinds] = {};
    NarrowSeen narrow;
    const auto see = [&](const int64_t* size, bool constant) {
      GemmCall c = linear(size[0], size[1], size[2]);
      if (full) c.act = EK_ACTIVATION_SILU;
      c.constant_b = constant;
      const GemmTileInfo& t = kGemmTiles[gemm_sm90_plan(c, device).tile];
      seen[&t - kGemmTiles] = true;
      // An epilogue whose chunks are outside of n in turn: two next to each other, and two below them.
      tail |= t.groups == GemmGroups::kTurns && t.rows == 128 && t.cols == 128 && c.n % 128 > 0 && c.n % 128 <= 64;
      if (gemm_sm90_splits(c, device)) {
        const int tile = gemm_sm90_split_plan(c, device).tile;
        seen[tile] = split[tile] = true;
      }
      see_skinny(c, device, skinny);
      narrow.see(c, device);
      if (c.m > kGemmSwapMaxM) return;
      const GemmPlan plan = gemm_sm90_swap_plan(c, device);
      swapped[plan.tile] = true;
      // Streamed tiles with so many k blocks that some begin in one block of the grid and end in the next.
      const GemmSchedule& s = plan.schedule;
      cut |= s.streamed && s.k_blocks > 1 && int64_t{s.rows} * s.cols * s.batch % s.workers;
      few |= s.streamed && s.streamed < s.workers;
    };
    // Both in `tiles` of the tests of gemm and gemm_epilogue.
    for (const auto& size : kSizes) see(size, false), see(size, true);
    CHECK(cut);
    CHECK(few);
    for (int kind = 0; kind < kSkinnyKinds; ++kind) CHECK(skinny[2][kind] && (skinny[3][kind] || kind == kOneToAnSm));
    narrow.check();
    CHECK(tail || !full);
    for (int tile = 0; tile < kGemmTileCount; ++tile) {
      if (!gemm_tile_built(tile, true, full ? GemmFinish::kFull : GemmFinish::kPlain)) continue;
      check::that(seen[tile], kGemmTiles[tile].name, __FILE__, __LINE__);
      if (gemm_tile_splits(kGemmTiles[tile])) check::that(split[tile], kGemmTiles[tile].name, __FILE__, __LINE__);
    }
    for (int tile = 0; tile < kGemmSwapCount; ++tile)
      if (gemm_swap_tile_built(tile, false, full ? GemmFinish::kFull : GemmFinish::kPlain)) CHECK(swapped[tile]);
  }
  // Those that are run in place because their chunks overlap (OVERLAPPING) do, and are all.
  constexpr int64_t kOverlapping[][3] = {{904, 3592, 72},   {840, 3600, 72},  {1928, 2312, 72}, {1928, 1560, 72},
                                         {328, 5712, 4104}, {136, 6120, 72},  {200, 6408, 72},  {392, 4248, 72},
                                         {584, 3384, 72},   {1288, 1296, 72}, {152, 9912, 72},  {264, 8472, 72}};
  bool in_place[kGemmTileCount] = {};
  for (const auto& size : kOverlapping) {
    GemmCall c = linear(size[0], size[1], size[2]);
    c.c = c.d, c.beta = 1;
    in_place[gemm_sm90_plan(c, device).tile] = true;
  }
  for (int tile = 0; tile < kGemmTileCount; ++tile) {
    const GemmTileInfo& t = kGemmTiles[tile];
    const bool overlap = t.cols / (t.groups == GemmGroups::kCols ? 2 : 1) % 32 != 0;
    if (gemm_tile_built(tile, true, GemmFinish::kFull))
      check::that(in_place[tile] == overlap, t.name, __FILE__, __LINE__);
  }
  constexpr int64_t kOthers[][3] = {{392, 1152, 264}, {392, 4104, 200}, {392, 4232, 72}};
  bool seen[kGemmTileCount] = {};
  for (const auto& size : kOthers) {
    GemmCall c = linear(size[0], size[1], size[2]);
    c.b = {g_memory, size[1], 1, 0};
    seen[gemm_sm90_plan(c, device).tile] = true;
  }
  for (int tile = 0; tile < kGemmTileCount; ++tile)
    if (kGemmTiles[tile].every_layout) check::that(seen[tile], kGemmTiles[tile].name, __FILE__, __LINE__);
}

// Sizes at which blocks go on to a second tile (WAVES there), with nothing fused, c, and an activation.
void waves() {
  constexpr int64_t kWaves[][3] = {{2312, 1656, 264}, {456, 12792, 72}, {2568, 2736, 72}, {2056, 4808, 72},
                                   {1160, 6408, 72},  {264, 17808, 72}, {264, 13608, 72}, {392, 17064, 2056}};
  const char* tiles[] = {"128x128 ping-pong", "128x208",       "turned 128x216", "turned 192x208",
                         "128x256",           "turned 192x72", "turned 128x136", "128x176 ping-pong"};
  const char* plain[] = {"turned 192x72", "128x128 ping-pong"};  // 3 and 4 with nothing fused, where turns are faster
  const Device device = h200();
  for (int i = 0; i < 8; ++i)
    for (int kind = 0; kind < 3; ++kind) {
      GemmCall c = linear(kWaves[i][0], kWaves[i][1], kWaves[i][2]);
      if (kind == 1) c.c = c.d, c.beta = 1;
      if (kind == 2) c.act = EK_ACTIVATION_SILU;
      const GemmPlan plan = gemm_sm90_plan(c, device);
      CHECK_TEXT(kGemmTiles[plan.tile].name, kind == 0 && (i == 3 || i == 4) ? plain[i - 3] : tiles[i]);
      CHECK(plan.schedule.tiles() > (i == 7 ? 2 : 1) * plan.schedule.workers);
    }
}

// What leaves by the copy engine with c beside it (BOXES there): tiles whose last one both warpgroups end, and others.
void boxes() {
  struct Box {
    int64_t m, n, k;
    bool act, constant;
    const char* tile;
    int waves;
    bool shares;
  };
  constexpr Box kBoxes[] = {
      {2632, 648, 136, true, false, "128x128 ping-pong", 1, true},
      {904, 3848, 1544, false, false, "128x128 ping-pong", 2, true},
      {72, 6408, 64, true, false, "64x128, one group", 1, true},
      {72, 6408, 72, true, true, "64x128, pairs", 1, true},
      {200, 3592, 200, true, false, "turned 64x128, eights", 1, true},
      {328, 5640, 2056, false, false, "128x176 ping-pong", 1, true},
      {648, 5384, 72, true, false, "128x256", 1, false},
      {200, 6408, 64, true, false, "turned 128x104", 1, false},
      {456, 6664, 64, true, false, "128x208", 1, false},
      {648, 5384, 2056, true, false, "128x128 ping-pong", 2, true},
      {648, 7176, 2056, true, false, "128x128 ping-pong", 3, true},
      {72, 13832, 1288, true, true, "64x128, pairs", 2, true},
      {328, 7176, 1288, true, true, "64x128, pairs", 3, true},
      {648, 7176, 2056, false, false, "128x176 ping-pong", 2, true},
      {776, 8456, 2056, false, false, "128x176 ping-pong", 3, true},
      {72, 2824, 136, true, true, "64x64, pairs", 1, true},
      {72, 4360, 72, true, true, "64x96, pairs", 1, true},
      {72, 8456, 72, true, true, "64x160, pairs", 1, true},
  };
  const Device device = h200();
  for (const Box& box : kBoxes) {
    GemmCall c = linear(box.m, box.n, box.k);
    c.bias = g_memory;
    c.c = c.d, c.beta = 1;
    c.constant_b = box.constant;
    if (box.act) c.act = EK_ACTIVATION_GELU_TANH;
    CHECK(gemm_takes_boxes(c));
    const GemmPlan plan = gemm_sm90_plan(c, device);
    CHECK_TEXT(kGemmTiles[plan.tile].name, box.tile);
    CHECK_EQ(gemm_ceil(plan.schedule.tiles(), plan.schedule.workers), box.waves);
    CHECK_EQ(plan.shares, box.shares);
  }
}

// Those that the sanitizers see (SOME_TILES there): every way to divide a tile and to share operands, and all that few rows
// do.
void some_tiles() {
  constexpr int64_t kSome[][3] = {
      {72, 72, 200},   {72, 72, 5128},   {1160, 72, 3080}, {1160, 1560, 136}, {72, 10840, 64},  {392, 11424, 72},
      {392, 4248, 72}, {1288, 1296, 72}, {200, 3808, 136}, {328, 5712, 4104}, {8, 72, 520},     {5, 16904, 64},
      {13, 8456, 64},  {30, 16904, 64},  {60, 8456, 64},   {60, 1032, 1032},  {40, 3144, 1032}, {3, 72, 4104},
      {7, 18952, 520}, {5, 104, 832},    {30, 104, 64},    {20, 104, 960},    {100, 104, 448},  {13, 72, 24576},
      {5, 7280, 1856}, {13, 1872, 7232}, {60, 3640, 3712}};
  const Device device = h200();
  for (const bool full : {false, true}) {
    bool groups[3] = {}, share[50] = {}, turned[3] = {}, split = false, wide = false, overlap = false;
    bool width[65] = {}, cut = false, streamed = false, turns = false, pairs = false;
    bool skinny[4][kSkinnyKinds] = {};
    NarrowSeen narrow;
    for (const auto& size : kSome) {
      GemmCall c = linear(size[0], size[1], size[2]);
      if (full) c.act = EK_ACTIVATION_SILU;
      c.constant_b = true;
      const GemmTileInfo& t = kGemmTiles[gemm_sm90_plan(c, device).tile];
      groups[static_cast<int>(t.groups)] = share[static_cast<int>(t.share)] = true;
      turned[static_cast<int>(t.groups)] |= t.turned;
      wide |= gemm_boxes_only(t);
      overlap |= t.share == GemmShare::kNone && t.cols % 32;
      split |= gemm_sm90_splits(c, device);
      see_skinny(c, device, skinny);
      narrow.see(c, device);
      if (c.m > kGemmSwapMaxM) continue;
      const GemmPlan plan = gemm_sm90_swap_plan(c, device);
      const GemmSwapTile& u = kGemmSwapTiles[plan.tile];
      width[u.m()] = true;
      cut |= plan.schedule.split > 1;
      streamed |= plan.schedule.streamed > 0;
      turns |= u.groups == GemmGroups::kTurns;
      pairs |= u.share == GemmShare::kA;
    }
    CHECK(groups[0] && groups[1] && groups[2] && wide && overlap && (split || full));
    CHECK(turned[0] && turned[1] && turned[2]);
    CHECK(share[11] && share[21] && share[12] && share[42]);
    CHECK(skinny[2][kGoesRound] && skinny[3][kGoesRound] && skinny[3][kGoesOn]);
    CHECK(narrow.rows[8][1][true][0] && narrow.rows[32][1][false][0] && narrow.rows[16][1][true][1] &&
          narrow.rows[64][1][true][0] && narrow.odd && narrow.idle && narrow.low);
    CHECK(narrow.fewer[8][true][0] && narrow.fewer[16][true][1] && narrow.fewer[64][true][0]);
    CHECK(width[8] && width[16] && width[32] && width[64] && cut && streamed && turns && pairs);
  }
}

void refusals() {
  GemmCall c = linear(64, 64, 64);
  c.a.data = g_memory + 2;
  CHECK(gemm_not_tma(c));
  c = linear(64, 64, 60);
  c.a.row = 60;
  CHECK(gemm_not_tma(c));
  c = linear(64, 64, 64);
  c.a.row = 0;
  CHECK(gemm_not_tma(c));
  // Nothing to plan, and nothing to divide by.
  CHECK(gemm_not_tma(linear(64, 64, 0)));
  CHECK(gemm_not_tma(linear(64, 0, 64)));
  CHECK(gemm_not_tma(linear(0, 64, 64)));
  CHECK(gemm_not_tma(linear(64, int64_t{1} << 31, 64)));
  c = linear(65, 1, 64);
  c.batch = (int64_t{1} << 30) + 1;  // two tiles each
  CHECK(gemm_not_tma(c));
  c = linear(64, 64, 64);
  c.batch = int64_t{1} << 31;
  CHECK(gemm_not_tma(c));
  // Strides beyond what a tensor map holds; d is then stored without one.
  c = linear(64, 64, 64);
  c.batch = 2, c.a.batch = int64_t{1} << 39;
  CHECK(gemm_not_tma(c));
  c.a.batch -= 8;
  CHECK(!gemm_not_tma(c) && gemm_finish(c) == GemmFinish::kPlain);
  c.d.batch = int64_t{1} << 39;
  CHECK(!gemm_not_tma(c) && gemm_finish(c) == GemmFinish::kFull && !gemm_takes_boxes(c));
  c = linear(64, 64, 64);
  c.d.row = 66;
  CHECK(!gemm_not_tma(c) && gemm_finish(c) == GemmFinish::kFull);
}

}  // namespace

int main() {
  schedules();
  places<1, 1>();
  places<2, 1>();
  places<1, 2>();
  places<2, 2>();
  places<4, 2>();
  places<2, 4>();
  plans();
  choices();
  every_tile_tested();
  waves();
  boxes();
  some_tiles();
  refusals();
  return check::report("gemm_config");
}
