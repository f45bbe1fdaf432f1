// SPDX-License-Identifier: Apache-2.0
// gemm on Hopper: d = epilogue(a b), 16-bit inputs, f32 sums in registers. In each block two producer warps, one for
// each operand, fill a ring of tiles by TMA; two warpgroups multiply them (wgmma) and store. The pieces:
//   gemm_schedule.h        which worker computes which part of which tile
//   gemm_sm90.cuh          the ring and the main loop (here)
//   gemm_sm90_join.cuh     sums of a tile whose k is in several blocks
//   gemm_sm90_epilogue.cuh from the accumulators to d
// GemmGroups: the warpgroups share a tile, by rows or by columns, or each has its own (ping-pong) and stores it while the
// other one multiplies.
#pragma once

#include <type_traits>

#include "cuda/cluster.cuh"
#include "cuda/pdl.cuh"
#include "cuda/wgmma.cuh"
#include "ops/gemm/gemm_config.h"
#include "ops/gemm/gemm_store.cuh"

namespace ek {

// A tile of the kernel. `rows` and `cols` are those of d. Turned and swapped tiles compute the transpose of what the caller
// asked for: their rows, which wgmma takes in steps of 64, are the caller's n, and cols, in steps of 8, the caller's m.
template <class T_, int kWgRows_, int kWgCols_, GemmGroups kGroups_, GemmShare kShare_, bool kTransA_, bool kTransB_,
          GemmFinish kFinish_, bool kTurned_ = false>
struct GemmSm90Tile {
  using T = T_;
  static constexpr int kWgRows = kWgRows_, kWgCols = kWgCols_;  // of a warpgroup
  static constexpr GemmGroups kGroups = kGroups_;
  static constexpr bool kPingpong = kGroups == GemmGroups::kTurns;
  static constexpr bool kTransA = kTransA_, kTransB = kTransB_;  // contiguous along m or n instead of k
  static constexpr GemmFinish kFinish = kFinish_;
  static constexpr bool kPlain = kFinish == GemmFinish::kPlain, kTurned = kTurned_;
  static constexpr bool kFew = kTurned && kWgCols <= kGemmSwapMaxM;  // for few rows of the caller's a
  static constexpr bool kWhole = kPingpong && !kFew;                 // no tile in pieces
  static constexpr bool kBoxesOnly = kWgRows * kWgCols / 128 > kGemmMostSums;

  static constexpr int kRows = kGroups == GemmGroups::kRows ? 2 * kWgRows : kWgRows;
  static constexpr int kCols = kGroups == GemmGroups::kCols ? 2 * kWgCols : kWgCols;
  using Place = GemmPlace<gemm_share_rows(kShare_), gemm_share_cols(kShare_)>;
  static constexpr int kCluster = Place::kBlocks;  // not counting a split of k
  static constexpr int kABytes = kRows * kSwizzleBytes;
  static constexpr int kBBytes = kCols * kSwizzleBytes;
  static constexpr int kStageBytes = kABytes + kBBytes;
  // Each warpgroup stages its part of d: chunks as the TMA store reads them, two at least and as many more as there is room
  // for beside the ring, or one of sums in f32, whose rows are padded against bank conflicts.
  // Of 64 columns where a width has no whole chunks of 32 either, if they are even in number: the second overlaps the first.
  // Narrow turned ones in two: there a chunk is as many of the caller's rows as one likes.
  static constexpr bool kInTwo = kTurned && kGroups != GemmGroups::kCols && kWgCols < 160 && kWgCols % 32;
  static constexpr int kChunkCols = kInTwo ? (kWgCols / 2 + 15) / 16 * 16
                                    : kWgCols > 128 && kWgCols % 32 && (kWgCols + 63) / 64 % 2 == 0 && !kBoxesOnly
                                        ? 64
                                        : gemm_chunk_cols(kWgCols);
  static constexpr int kAcross = (kWgCols + kChunkCols - 1) / kChunkCols;
  static constexpr int kChunkBytes = 64 * kChunkCols * 2;
  static constexpr bool kBoxes = kWgCols >= kChunkCols;
  static constexpr int kChunks = kBoxes ? kWgRows / 64 * kAcross : 1;
  // 32 of 256 columns at a time: more did not fit while there was a fourth stage, and has not been timed since.
  static constexpr int kSumCols = kWgCols <= 64 ? kWgCols : kWgCols <= 240 ? kChunkCols : 32;
  static constexpr int kSumBytes = 4 * (kTurned ? kSumCols * (64 + 4) : 64 * (kSumCols + 4));
  static constexpr int kUnit = kBoxes ? 1024 : 128;  // the swizzle of boxes counts from multiples of 1024
  static constexpr int kLeastStaging = kPlain ? 2 * kChunkBytes : (kSumBytes + kUnit - 1) / kUnit * kUnit;
  static constexpr int kBiasBytes = kPlain || !kBoxes ? 0 : 2 * (kTurned ? kWgRows : kWgCols);  // of a warpgroup
  static constexpr int kBarrierBytes = 512;
  static constexpr int kFixedBytes = 2 * (kLeastStaging + kBiasBytes) + kBarrierBytes;
  static constexpr int kMaxStages = 16;
  static constexpr int kSmemLimit = 232448;  // of a block
  static constexpr int kFit = (kSmemLimit - kFixedBytes) / kStageBytes;
  // 128x256 has room for all chunks of c, or for a fourth stage.
  static constexpr bool kAllOfC = !kPlain && !kPingpong && !kFew && kWgCols == 256;
  static constexpr int kStages = kAllOfC ? 3 : kFit < kMaxStages ? kFit : kMaxStages;
  static constexpr int kRoom = kLeastStaging + (kSmemLimit - kFixedBytes - kStages * kStageBytes) / 2;
  static constexpr int kBuffers = kRoom / kChunkBytes < kChunks ? kRoom / kChunkBytes : kChunks;
  // Chunks that are stored together, in as few and as equal groups as the buffers allow; one by one where a warpgroup stores
  // beside the other's products, or has more than two to work on before; two by two where they overlap.
  static constexpr bool kOverlap = kBoxes && kWgCols % kChunkCols;
  static constexpr bool kSingly = !kBoxes || (kPlain ? kPingpong : kChunks > 2);
  static constexpr int kChunkGroups = kSingly ? kChunks : (kChunks + kBuffers - 1) / kBuffers;
  static constexpr int kGroup = kOverlap ? 2 : (kChunks + kChunkGroups - 1) / kChunkGroups;
  // k blocks before the end of a product when bias and c are asked for: 2000 cycles or more, which memory takes to answer. All
  // that comes into the SM earlier keeps a and b waiting. (Few rows: half way.)
  static constexpr int kAskAhead = kRows * kCols < 128 * 128 ? 4 * 128 * 128 / (kRows * kCols) : 4;
  // The last tile of a block can be ended by both warpgroups: the one that multiplied it gives half of its chunks away. Those
  // that overlap stay together, in one half of the rows.
  static constexpr bool kShares = kWhole && !kPlain && kChunks % 2 == 0 && (!kOverlap || kWgRows == 128);
  // k can be cut for the blocks of a cluster, each of which then ends some of the tile's chunks.
  static constexpr bool kSplits = gemm_splits(kGroups, kRows, kCols);
  static_assert(!kSplits || (!kOverlap && 2 * kChunks == gemm_split_chunks(kCols)), "the plan counts on these chunks");
  static constexpr int kStagingBytes = kBuffers * kChunkBytes < kLeastStaging ? kLeastStaging : kBuffers * kChunkBytes;
  static constexpr int kSmemBytes = kFixedBytes + 2 * (kStagingBytes - kLeastStaging) + kStages * kStageBytes;
  // c of a block's last tile: chunks that have no buffer go to the ring, which nobody fills any more.
  static constexpr int kRest = kPlain || kPingpong || kFew ? 0 : kChunks - kBuffers;  // of a warpgroup
  static_assert(2 * kRest * kChunkBytes <= kStages * kStageBytes, "");
  static_assert(kStages >= 3, "too little shared memory for a ring");
  static_assert(!kOverlap || kAcross % 2 == 0, "chunks that overlap are stored together");
  static_assert(kStages * kStageBytes >= (kTurned                                    ? kGemmSwapRingBytes
                                          : !kPingpong && kRows * kCols <= 128 * 128 ? kGemmRingBytes
                                                                                     : 0),
                "the plan counts on a larger ring for the sums of a split");
};

// The last box of an operand: where it begins, and its rows, in whole steps of the swizzle.
struct GemmEdge {
  int32_t at, rows;
};

struct GemmSm90Params {
  CUtensorMap a, b, c, d;      // c and d: of plain results and of boxes
  CUtensorMap a_edge, b_edge;  // the last boxes of a's rows and of b's columns
  GemmEdge a_last, b_last;     // where those are
  GemmSchedule schedule;
  GemmOut out;                        // in the caller's rows and columns
  float scale;                        // of plain results: alpha and out_scale
  bool boxes;                         // c and d come and go by TMA
  bool shares;                        // a block's last tile is ended by both warpgroups (kShares)
  int32_t a_batch, b_batch, c_batch;  // 1, or 0 where all batches share the matrix
  bool constant_b;
  bool late;        // the next kernel comes when this one has ended
  int32_t stages;   // of the ring of tiles with few rows
  Divider each;     // split: chunks of a tile that a block of the cluster ends
  int32_t sums;     // split: the first byte behind those, for the sums of other blocks; 0: they take the ring's place
  float* partials;  // two tiles of f32 for each block
  uint32_t* counters;  // two for each streamed tile and block of a cluster, zero before and after
};

// ---- device ------------------------------------------------------------------------------------------------------------

// Position in the ring. The parity of `phase` is what mbarrier_wait asks for.
template <class Tile>
struct RingAt {
  int stages;  // in use
  int stage = 0;
  uint32_t phase = 0;
  __device__ __forceinline__ explicit RingAt(const GemmSm90Params& p) : stages(Tile::kFew ? p.stages : Tile::kStages) {}
  __device__ __forceinline__ void next() {
    if (++stage == stages) stage = 0, phase ^= 1;
  }
  __device__ __forceinline__ void skip(int n) {
    stage += n;
    phase ^= stage / stages & 1;
    stage %= stages;
  }
};

// What a block loads of one operand for each stage: kExtent of m or n, 64 of k; of kParts of it one, for the blocks that share
// it. kOnce: no other block asks for it. Nothing past the operand's end, which the copy engine would fill with zeros at a fifth
// of its speed (docs/measured-facts/gemm.md): the last box is as high as what is there, and takes the place of those that would
// lie outside. What comes of rows that were not loaded, or loaded twice, is not stored.
template <int kExtent, bool kTrans, int kParts, bool kOnce>
struct GemmLoads {
  static constexpr int kPart = kExtent / kParts, kBox = kTrans ? 64 : kPart;
  static_assert(kExtent % kParts == 0 && kPart % kBox == 0 && kBox % 8 == 0 && kBox <= 256,
                "a box is a whole number of the swizzle's 8 rows, and at most 256 of them");
  const CUtensorMap* map;
  uint32_t bytes;  // of all parts
  int at, last;    // of m or n: this part's first, and where the last box begins

  // first: that of the tile.
  __device__ __forceinline__ void enter(const CUtensorMap* whole, const CUtensorMap* edge, const GemmEdge& e, int first,
                                        uint32_t part) {
    last = e.at;
    at = first + static_cast<int>(part) * kPart;
    if constexpr (kTrans) {
      map = whole, bytes = kExtent * kSwizzleBytes;
    } else {
      at = min(at, last);
      map = at == last && e.rows < kPart ? edge : whole;  // maps are fetched, too: one for all where that can be
      int rows = 0;
#pragma unroll
      for (int i = 0; i < kParts; ++i) rows += first + i * kPart >= last ? e.rows : kPart;
      bytes = rows * kSwizzleBytes;
    }
  }

  __device__ __forceinline__ void load(char* smem, int k, int batch, uint64_t* full, uint32_t part,
                                       uint16_t blocks) const {
    mbarrier_expect(full, bytes);
#pragma unroll
    for (int i = 0; i < kPart; i += kBox) {
      char* const to = smem + (part * kPart + i) * kSwizzleBytes;
      const int x = kTrans ? min(at + i, last) : k, y = kTrans ? k : at;
      if constexpr (kParts > 1)
        tma_load_multicast(to, map, x, y, batch, full, blocks);
      else if constexpr (kOnce)
        tma_load(to, map, x, y, batch, full, l2_evict_first());
      else
        tma_load(to, map, x, y, batch, full);
    }
  }
};

// Shared memory of a block.
template <class Tile>
struct GemmSmem {
  char* ring;         // kStages times a's tile, b's tile
  char* staging;      // one for each warpgroup
  uint64_t* full;     // a stage has been filled
  uint64_t* empty;    // all readers of a stage, in all blocks that share it, are done with it
  uint64_t* room;     // split: the rings of the other blocks are free, for sums
  uint64_t* arrived;  // split: the sums of the other blocks are in it, for each warpgroup
  uint32_t* told;     // pieces: whether this block is the last, for each warpgroup
  uint64_t* c_full;   // c is in a chunk's place, kChunks for each warpgroup
  char* bias;         // of a warpgroup's part of a tile, for each warpgroup
  __device__ explicit GemmSmem(char* raw) {
    ring = raw;
    staging = ring + Tile::kStages * Tile::kStageBytes;
    full = reinterpret_cast<uint64_t*>(staging + 2 * Tile::kStagingBytes);
    empty = full + Tile::kStages;
    room = empty + Tile::kStages;
    arrived = room + 1;
    told = reinterpret_cast<uint32_t*>(arrived + 2);
    c_full = arrived + 3;
    bias = reinterpret_cast<char*>(full) + Tile::kBarrierBytes;
    static_assert((2 * Tile::kMaxStages + 4 + 2 * Tile::kChunks) * 8 <= Tile::kBarrierBytes, "");
  }
};

// First row and column of the tile of this block.
template <class Tile>
struct GemmOrigin {
  int row, col, batch;
  __device__ __forceinline__ GemmOrigin(const GemmSchedule& s, int tile, const typename Tile::Place& place) {
    const GemmTile t = gemm_tile(s, tile);
    row = (t.row * Tile::Place::kRows + place.row) * Tile::kRows;
    col = (t.col * Tile::Place::kCols + place.col) * Tile::kCols;
    batch = t.batch;
  }
};

template <class Tile>
class GemmSm90Epilogue;

// Producer: a warp walks the work and keeps one operand's half of the ring full. Two of them, since what one thread does for
// a load takes about as long as the SM takes to bring it in. kRows: that of the tile's rows, else that of its columns.
template <class Tile, bool kRows>
class GemmProducer {
 public:
  __device__ __forceinline__ GemmProducer(const GemmSm90Params& p, const GemmSmem<Tile>& smem,
                                          const GemmWalk<Tile::kFew>& walk, const GemmWork& first, bool more,
                                          const typename Tile::Place& place)
      : p_(p),
        smem_(smem),
        walk_(walk),
        work_(first),
        at_(p.schedule, more ? first.tile : 0, place),
        ring_(p),
        more_(more),
        place_(place) {
    enter();
  }

  // The first stages: nobody has to be waited for but the kernels ahead of us, and they only for what is not constant.
  __device__ __forceinline__ void fill() {
    if (more_) done_ = min(ring_.stages, work_.k_count);
    if (kRows != Tile::kTurned || !p_.constant_b) pdl_wait();
    for (int i = 0; i < done_; ++i) load(i, i);
    ring_.skip(done_);
  }

  __device__ __forceinline__ void run() {
    [[maybe_unused]] bool rest = more_;
    while (more_) {
      GemmWork next;
      more_ = walk_.next(p_.schedule, &next);
      // The next kernel comes when what is left to load fits into the ring: before, its loads would slow ours down. Or when
      // we have ended.
      const int launch = more_ || p_.late ? work_.k_count : max(done_, work_.k_count - ring_.stages);
      for (int i = done_; i < work_.k_count; ++i, ring_.next()) {
        if (kRows && i == launch) pdl_launch();
        mbarrier_wait(&smem_.empty[ring_.stage], ring_.phase ^ 1);
        load(i, ring_.stage);
      }
      done_ = 0;
      if (!more_) break;
      work_ = Tile::kWhole ? next : gemm_slice(p_.schedule, next, place_.slice);
      at_ = GemmOrigin<Tile>(p_.schedule, work_.tile, place_);
      enter();
    }
    if (!p_.late) pdl_launch();  // where the ring took all of it
    // The others of the cluster still report here that they are done with what they got; this one must not end before. And
    // then the ring is free.
    if (Tile::kRest > 0) rest = rest && kRows && GemmSm90Epilogue<Tile>::rest_in_ring(p_, work_);
    if (Tile::kCluster > 1 || (Tile::kRest > 0 && rest))
      for (int i = 0; i < ring_.stages; ++i, ring_.next()) mbarrier_wait(&smem_.empty[ring_.stage], ring_.phase ^ 1);
    if constexpr (Tile::kRest > 0)
      if (rest) ask_rest();
  }

 private:
  // c's later chunks of the last tile.
  __device__ __forceinline__ void ask_rest() const {
    using Epilogue = GemmSm90Epilogue<Tile>;
#pragma unroll 1
    for (int i = 0; i < 2 * Tile::kRest; ++i) {
      const int wg = i % 2, chunk = Tile::kBuffers + i / 2;
      const int3 at = Epilogue::chunk_at(Epilogue::row_of(at_, wg), Epilogue::col_of(at_, wg), at_.batch, chunk);
      if (elect_one())
        Epilogue::ask(p_, &smem_.c_full[Tile::kChunks * wg + chunk], Epilogue::rest_at(smem_, wg, chunk), at);
    }
  }

  __device__ __forceinline__ void enter() {
    if constexpr (kRows)
      loads_.enter(&p_.a, &p_.a_edge, p_.a_last, at_.row, place_.col);
    else
      loads_.enter(&p_.b, &p_.b_edge, p_.b_last, at_.col, place_.row);
  }

  // The i-th k block of the piece.
  __device__ __forceinline__ void load(int i, int stage) {
    const int k = (work_.k_begin + i * work_.k_step) * kTileK;
    char* const to = smem_.ring + stage * Tile::kStageBytes;
    if (!elect_one()) return;
    if constexpr (kRows)
      loads_.load(to, k, at_.batch * p_.a_batch, &smem_.full[stage], place_.col, place_.sharing_a());
    else
      loads_.load(to + Tile::kABytes, k, at_.batch * p_.b_batch, &smem_.full[stage], place_.row, place_.sharing_b());
  }

  const GemmSm90Params& p_;
  const GemmSmem<Tile>& smem_;
  GemmWalk<Tile::kFew> walk_;
  GemmWork work_;
  GemmOrigin<Tile> at_;
  RingAt<Tile> ring_;
  bool more_;
  const typename Tile::Place place_;
  std::conditional_t<kRows, GemmLoads<Tile::kRows, Tile::kTransA, Tile::Place::kCols, Tile::kFew>,
                     GemmLoads<Tile::kCols, Tile::kTransB, Tile::Place::kRows, false>>
      loads_;
  int done_ = 0;  // k blocks of the piece that are on their way
};

// Consumer: one piece of a tile, from the ring into the accumulators.
// during() runs beside products, half way or late; issued() when only the wait for the last ones is left.
template <class Tile, class During, class Issued>
__device__ __forceinline__ void gemm_multiply(const GemmSmem<Tile>& smem, RingAt<Tile>* ring, int k_blocks, int wg,
                                              float (&acc)[Tile::kWgRows / 64][Tile::kWgCols / 2],
                                              const typename Tile::Place& place, During during, Issued issued) {
#if EK_HAS_WGMMA
  using Mma = Wgmma<typename Tile::T, Tile::kWgCols, Tile::kTransA, Tile::kTransB>;
  constexpr int kParts = Tile::kWgRows / 64;
  constexpr int kBlockBytes = 64 * kSwizzleBytes;  // 64 rows of m or n by 64 of k
  const bool signals = threadIdx.x % 128 == 0;
  static_assert(!Tile::kTransB || Tile::kGroups != GemmGroups::kCols || Tile::kWgCols % 64 == 0,
                "b along n comes in blocks of 64");
  const uint32_t first_a =
      smem_address(smem.ring) + (Tile::kGroups == GemmGroups::kRows ? wg * kParts * kBlockBytes : 0);
  const uint32_t first_b = smem_address(smem.ring) + Tile::kABytes +
                           (Tile::kGroups == GemmGroups::kCols ? wg * Tile::kWgCols * kSwizzleBytes : 0);
  // NOTE: as a maximum the compiler computes it anew for every k block.
  const int late = Tile::kFew || k_blocks <= 2 * Tile::kAskAhead ? k_blocks / 2 : k_blocks - Tile::kAskAhead;
  int previous = -1;

  for (int kb = 0; kb < k_blocks; ++kb, ring->next()) {
    mbarrier_wait(&smem.full[ring->stage], ring->phase);
    const uint64_t a = wgmma_descriptor(first_a + ring->stage * Tile::kStageBytes, kBlockBytes);
    const uint64_t b = wgmma_descriptor(first_b + ring->stage * Tile::kStageBytes, kBlockBytes);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < kTileK / 16; ++k)
#pragma unroll
      for (int i = 0; i < kParts; ++i)
        Mma::mma(acc[i], a + i * (kBlockBytes >> 4) + k * kWgmmaStepK<!Tile::kTransA>,
                 b + k * kWgmmaStepK<!Tile::kTransB>, kb > 0 || k > 0);
    wgmma_commit();
    // One stage behind: while these run, the ones before have ended and their stage is free.
    wgmma_wait<1>();
    if (previous >= 0 && signals) {
#pragma unroll
      for (int r = 0; r < Tile::Place::kReaders; ++r)
        Tile::kCluster == 1 ? mbarrier_arrive(&smem.empty[previous])
                            : mbarrier_arrive(&smem.empty[previous], place.loader(r));
    }
    previous = ring->stage;
    if (kb == late) during();
  }
  issued();
  wgmma_wait<0>();
#pragma unroll
  for (int i = 0; i < kParts; ++i)
#pragma unroll
    for (int j = 0; j < Tile::kWgCols / 2; ++j) wgmma_hold(acc[i][j]);
  if (signals) {
#pragma unroll
    for (int r = 0; r < Tile::Place::kReaders; ++r)
      Tile::kCluster == 1 ? mbarrier_arrive(&smem.empty[previous])
                          : mbarrier_arrive(&smem.empty[previous], place.loader(r));
  }
#endif
}

}  // namespace ek

#include "ops/gemm/gemm_sm90_epilogue.cuh"

namespace ek {

constexpr int kGemmSm90Threads = 384;

// All threads of the block, or of the cluster, are here.
template <class Tile>
__device__ __forceinline__ void gemm_begin(int split) {
  if (Tile::kCluster > 1 || split > 1)
    cluster_arrive_relaxed(), cluster_wait();
  else
    __syncthreads();
}

template <class Tile, bool kRows>
__device__ __forceinline__ void gemm_produce(GemmProducer<Tile, kRows> producer, int split) {
  // The first loads leave before anybody else is ready, unless they also go to a block that may not have begun.
  if (Tile::kCluster == 1) {
    barrier_sync(kFillBarrier, 64);  // the ring's barriers are set up
    producer.fill();
  }
  gemm_begin<Tile>(split);
  if (Tile::kCluster > 1) producer.fill();
  producer.run();
}

template <class Tile>
__global__ __launch_bounds__(kGemmSm90Threads, 1) void gemm_sm90(const __grid_constant__ GemmSm90Params p) {
#if EK_HAS_WGMMA
  extern __shared__ __align__(1024) char raw[];  // the swizzle counts from multiples of 1024
  const GemmSmem<Tile> smem(raw);
  const int warp = warp_index(), group = warp / 4;  // 0: producer, 1 and 2: consumers
  const int split = Tile::kWhole ? 1 : p.schedule.split;
  const uint32_t rank = Tile::kCluster > 1 || split > 1 ? cluster_rank() : 0;
  const auto place = Tile::Place::of(Tile::kWhole ? rank % Tile::kCluster : rank);
  const int worker = cluster_id();

  GemmWalk<Tile::kFew> walk(p.schedule, worker);
  GemmWork next;
  const bool any = walk.next(p.schedule, &next);
  if (any && !Tile::kWhole) next = gemm_slice(p.schedule, next, place.slice);
  if (warp == 0 && elect_one()) {
    for (int i = 0; i < Tile::kStages; ++i) {
      mbarrier_init(&smem.full[i], 2);
      mbarrier_init(&smem.empty[i], (Tile::kPingpong ? 1 : 2) * Tile::Place::kReaders);
    }
    mbarrier_init(smem.room, split > 1 ? 2 * (split - 1) : 1);
    mbarrier_init(&smem.arrived[0], 1);
    mbarrier_init(&smem.arrived[1], 1);
    for (int i = 0; i < 2 * Tile::kChunks && !Tile::kPlain; ++i) mbarrier_init(&smem.c_full[i], 1);
    mbarrier_fence();
  }
  __syncwarp();

  if (group == 0) {
    registers_give<56>();
    if (warp == 0)
      gemm_produce(GemmProducer<Tile, true>(p, smem, walk, next, any, place), split);
    else if (warp == 1)
      gemm_produce(GemmProducer<Tile, false>(p, smem, walk, next, any, place), split);
    else
      gemm_begin<Tile>(split);
  } else {
    gemm_begin<Tile>(split);
    registers_take<224>();
    const int wg = group - 1;
    GemmSm90Epilogue<Tile> epilogue(p, smem, wg, place, worker);
    RingAt<Tile> ring(p);
    pdl_wait();
    // Ping-pong: the warpgroups take turns with whole pieces, and with the matrix units. -1: nothing is left, which takes no
    // register that a bool would.
    if (!any) next.tile = -1;
    for (int turn = 0; next.tile >= 0; ++turn) {
      const GemmWork work = next;
      if (!walk.next(p.schedule, &next))
        next.tile = -1;
      else if (!Tile::kWhole)
        next = gemm_slice(p.schedule, next, place.slice);
      const bool more = next.tile >= 0;
      const int k_blocks = work.k_count;
      // The last one: who did not multiply it ends half of it.
      const bool shared = Tile::kShares && p.shares && !more, other = Tile::kPingpong && turn % 2 != wg;
      if (other && !shared) {
        ring.skip(k_blocks);
        continue;
      }
      float acc[Tile::kWgRows / 64][Tile::kWgCols / 2];
      epilogue.begin(work,
                     !shared ? GemmChunks::kAll
                     : other ? GemmChunks::kSecondHalf
                             : GemmChunks::kFirstHalf,
                     !more);
      if (other) {
        if constexpr (Tile::kShares) epilogue.take_half();
      } else {
        if (Tile::kPingpong && turn > 0) barrier_sync(kOrderBarrier + wg, 256);
        gemm_multiply<Tile>(
            smem, &ring, k_blocks, wg, acc, place, [&] { epilogue.during(); },
            [&] {
              if (Tile::kPingpong && more) barrier_arrive(kOrderBarrier + (wg ^ 1), 256);
            });
        if constexpr (Tile::kShares)
          if (shared) epilogue.give_half(acc);
      }
      if (Tile::kWhole || k_blocks == p.schedule.k_blocks || epilogue.join(work, acc)) epilogue.store(acc);
    }
    epilogue.end();
  }
#endif
}

}  // namespace ek
