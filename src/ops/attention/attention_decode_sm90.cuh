// SPDX-License-Identifier: Apache-2.0
// attention_decode_sm90: TMA and mma.sync. Blocks, several to an SM but for wide heads, of four or eight warps that multiply and
// one or two that load, across items and without a stop, into one ring. Each of the former has keys of every tile, of wide heads
// with the warps that share them.
//   full[stage]: one arrival of each loading lane when its copies are in, and the bytes of boxes
//   empty[stage]: one arrival of each multiplying lane
// Few items: a cluster of blocks, or several, for each, whose blocks merge through their shared memory.
// Every warp waits for every fill of a stage and the next fill waits for every warp, so nobody is ever a phase ahead of or
// behind a barrier, whose parity would then lie.
#pragma once

#include "cuda/tensor_map.h"
#include "cuda/wgmma.cuh"
#include "ops/attention/attention_decode_launch.cuh"
#include "ops/attention/attention_decode_mma.cuh"
#include "ops/attention/attention_decode_sm90.h"

namespace ek {

// Built for the one target that is sent here, sm_90a: other ones of a fat binary have empty kernels.
#if defined(__CUDA_ARCH__) && !EK_HAS_WGMMA
constexpr bool kDecodeSm90 = false;
#else
constexpr bool kDecodeSm90 = true;
#endif

struct DecodeMaps {
  CUtensorMap k, v;   // [page, head, slot, dim], in words of two bytes
  int32_t run_shift;  // a run: 2^run_shift keys of a tile that are in one page
  int32_t loaders;    // warps that load
  bool boxes;         // runs are copied as boxes; else rows are
  // K and V have full rows and the same strides: these, in 16 bytes, and no offset that 32 bits do not hold
  bool alike;
  uint32_t page, slot, head;
};

template <class Plan>
struct DecodeRing {
  char* stages;
  char* scales;  // [kStages, 2, kKeys]
  int* notes;    // [kStages, kNote]: of each loading warp four words and the page numbers of its keys, or of runs
  uint64_t *full, *empty;  // [kStages]
  uint64_t* arrived;       // one arrival and the bytes of states that other blocks of the cluster send
  static constexpr int kNote = Plan::kNoteBytes / 4;

  __device__ __forceinline__ explicit DecodeRing(char* smem)
      : stages(smem), scales(smem + Plan::kStages * Plan::kStageBytes) {
    notes = reinterpret_cast<int*>(scales + Plan::kStages * 2 * Plan::kScaleBytes);
    full = reinterpret_cast<uint64_t*>(notes + Plan::kStages * kNote), empty = full + Plan::kStages;
    arrived = empty + Plan::kStages;
  }
  __device__ __forceinline__ int* note(int stage, int warp) const {
    return notes + stage * kNote + warp * (4 + Plan::kKeys / Plan::kLoadWarps);
  }
};

// A loading warp. Tiles that all are visible come as boxes where pages allow it; others, and those of tiny pages, row by row,
// with zeros for what nobody sees. Where there are two, each goes through all tiles and has every other box, or half of the
// rows.
template <class Plan>
class DecodeProducer {
 public:
  __device__ __forceinline__ DecodeProducer(const DecodeParams& p, const DecodeMaps& maps, const DecodeRing<Plan>& ring)
      : p_(p), maps_(maps), ring_(ring) {}

  // The ring's barriers, by one thread.
  __device__ __forceinline__ void make_barriers() {
    for (int i = 0; i < Plan::kStages; ++i) {
      mbarrier_init(&ring_.full[i], 32 * maps_.loaders);
      mbarrier_init(&ring_.empty[i], Plan::kWarps * 32);
    }
    mbarrier_init(ring_.arrived, 1);
    mbarrier_fence();
    if (maps_.boxes) tma_prefetch_map(&maps_.k), tma_prefetch_map(&maps_.v);
  }
  // What needs no lengths: they are on their way meanwhile.
  __device__ __forceinline__ void prepare() {
    warp_ = warp_index() - Plan::kWarps;
    keys_ = maps_.loaders == 1 ? Plan::kKeys : Plan::kKeys / 2, first_ = warp_ * keys_;
    const int box = static_cast<int>(threadIdx.x) % 32 * maps_.loaders + warp_, panel = box / 2 % Plan::kPanels;
    box_map_ = box % 2 == 0 ? &maps_.k : &maps_.v;
    box_run_ = box / (2 * Plan::kPanels), box_column_ = panel * 64;
    box_place_ = box % 2 * Plan::kTileBytes + ((panel * Plan::kKeys) + (box_run_ << maps_.run_shift)) * Plan::kPitch;
    keep_ = p_.row_blocks == 1 ? l2_evict_first() : l2_evict_normal();  // else other items have the same keys
    copy_ = DecodeCopy<Plan, 32>(p_, threadIdx.x % 32);
  }

  __device__ __forceinline__ void run(const DecodeBlock<typename Plan::I>& block,
                                      const AttentionPieceOf<typename Plan::I>& piece) {
    constexpr int kStages = Plan::kStages;
    Walk walk(p_, block, piece, 0, 1);
    // Page numbers are on the way for kStages tiles before the first is needed, and then that far ahead of the copies.
    int known = look_first(walk);
#pragma unroll 1
    for (; known < kStages && walk.there(); ++known) look(walk, known);
    copy_commit();
    copy_wait<0>();
    __syncwarp();
    int stage = 0;
    uint32_t parity = 1;  // of the phase before the first: it counts as ended
#pragma unroll 1
    for (int n = 0; n < known; ++n) {
      mbarrier_wait(&ring_.empty[stage], parity);
      copy_wait<kStages - 1>();  // this tile's page numbers: their group is kStages back
      __syncwarp();
      issue(stage);
      __syncwarp();  // everyone has read the note
      if (walk.there()) look(walk, stage), ++known;
      copy_commit();
      if (++stage == kStages) stage = 0, parity ^= 1;
    }
    copy_wait<0>();
  }

 private:
  using K = typename Plan::K;
  using Walk = DecodeWalk<Plan>;
  static constexpr int kRows = Plan::kCopyRows;
  static constexpr int kKeysShift = Plan::kKeys == 32 ? 5 : Plan::kKeys == 64 ? 6 : 7;
  static_assert(1 << kKeysShift == Plan::kKeys, "keys of a tile: a power of two");
  struct Place {
    int64_t page, slot;
  };

  // What look does, for as many tiles at the beginning as have stages and are all visible, at once: the first copies wait for
  // it. Returns how many.
  __device__ __forceinline__ int look_first(Walk& walk) const {
    const int lane = threadIdx.x % 32, key = walk.key();
    int count = min(min(Plan::kStages, walk.left()), (walk.end() - key) / Plan::kKeys);
    if (key < walk.begin()) count = 0;
    if (lane < count)
      *reinterpret_cast<int4*>(ring_.note(lane, warp_)) =
          make_int4(key + lane * Plan::kKeys, Plan::kKeys << 16, walk.head(), walk.sequence());
    if (p_.c.seqs.page_table) {
      const int32_t* table = p_.c.seqs.page_table + walk.sequence() * p_.c.seqs.table_stride;
      const int run_shift = maps_.boxes ? maps_.run_shift : 0, first = maps_.boxes ? 0 : first_;
      const int shift = maps_.boxes ? kKeysShift - run_shift : kKeysShift - (maps_.loaders - 1);  // numbers of a tile
#pragma unroll 1
      for (int i = lane; i < count << shift; i += 32) {
        const int tile = i >> shift, number = i - (tile << shift);
        const int own = tile * Plan::kKeys + first + (number << run_shift);
        copy_async_word(smem_address(ring_.note(tile, warp_) + 4 + number),
                        table + p_.page_size.divide(static_cast<uint32_t>(key + own)), true);
      }
    }
    walk.next(count);
    return count;
  }

  // Notes what the walk's tile is, asks for its page numbers, and goes on to the next one.
  __device__ __forceinline__ void look(Walk& walk, int stage) const {
    const int lane = threadIdx.x % 32, key = walk.key();
    const int low = max(walk.begin() - key, 0), high = min(walk.end() - key, Plan::kKeys);
    int* note = ring_.note(stage, warp_);
    if (lane == 0) *reinterpret_cast<int4*>(note) = make_int4(key, low | high << 16, walk.head(), walk.sequence());
    if (p_.c.seqs.page_table) {  // a number for every run that is to be a box, else for each of this warp's keys
      const int32_t* table = p_.c.seqs.page_table + walk.sequence() * p_.c.seqs.table_stride;
      const auto ask = [&](int number, int own) {
        copy_async_word(smem_address(note + 4 + number), table + p_.page_size.divide(static_cast<uint32_t>(key + own)),
                        true);
      };
      if (boxes(low, high)) {
        if (lane << maps_.run_shift < Plan::kKeys) ask(lane, lane << maps_.run_shift);
      } else {
#pragma unroll 1
        for (int i = lane; i < keys_; i += 32)
          if (first_ + i >= low && first_ + i < high) ask(i, first_ + i);
      }
    }
    walk.next();
  }

  __device__ __forceinline__ bool boxes(int low, int high) const {
    return maps_.boxes && low == 0 && high == Plan::kKeys;
  }

  // A key of a noted tile, whose page number is the note's `number`th.
  __device__ __forceinline__ Place place(const int* note, const int4& tile, int own, int number) const {
    const int key = tile.x + own;
    if (!p_.c.seqs.page_table) return {tile.w, key};
    const int index = static_cast<int>(p_.page_size.divide(static_cast<uint32_t>(key)));
    return {note[4 + number], key - index * static_cast<int>(p_.page_size.divisor)};
  }

  __device__ __forceinline__ void issue(int stage) {
    const int* note = ring_.note(stage, warp_);
    const int4 tile = *reinterpret_cast<const int4*>(note);
    const int low = tile.y & 0xffff, high = tile.y >> 16;
    uint64_t* const full = &ring_.full[stage];
    const bool as_boxes = boxes(low, high);
    if (as_boxes) {
      if (rows_before_) fence_async();  // what the engine writes over, ordinary copies have written
      if (threadIdx.x % 32 == 0) mbarrier_expect_only(full, keys_ * 2 * Plan::kRowBytes);
      __syncwarp();
      if (box_run_ << maps_.run_shift < Plan::kKeys) {
        const Place at = place(note, tile, box_run_ << maps_.run_shift, box_run_);
        tma_load(ring_.stages + stage * Plan::kStageBytes + box_place_, box_map_, box_column_,
                 static_cast<int>(at.slot), tile.z, static_cast<int>(at.page), full, keep_);
      }
    } else {
      rows_before_ = true;
    }
    if (!as_boxes || (Plan::kNarrow && (p_.k_tokens || p_.v_tokens))) rows(stage, note, tile, low, high, !as_boxes);
    copy_arrive(full);
  }

  // Row by row: K and V if they are not on the way as boxes, and the scales of their keys.
  __device__ __forceinline__ void rows(int stage, const int* note, const int4& tile, int low, int high, bool data) {
    const KvCache &k = p_.c.k, &v = p_.c.v;
    const int64_t head = tile.z;
    const char *k_data = static_cast<const char*>(k.data), *v_data = static_cast<const char*>(v.data);
    const uint32_t tiles = smem_address(ring_.stages + stage * Plan::kStageBytes);
#pragma unroll 1
    for (int first = first_; first < first_ + keys_; first += kRows) {
      if (first >= high || first + kRows <= low) continue;  // no warp looks at keys of which none is visible
      const int own = first + static_cast<int>(threadIdx.x) % kRows;
      const bool there = own >= low && own < high;
      const Place at = there ? place(note, tile, own, data ? own - first_ : own >> maps_.run_shift) : Place{0, 0};
      if (data && maps_.alike && first >= low && first + kRows <= high) {
        const uint32_t page = static_cast<uint32_t>(at.page) * maps_.page, slot = static_cast<uint32_t>(at.slot);
        copy_.alike(tiles, first, k_data, v_data, page + slot * maps_.slot + static_cast<uint32_t>(tile.z) * maps_.head,
                    keep_);
      } else if (data) {
        const uint32_t rows = __ballot_sync(0xffffffffu, there);
        const char* k_row = k_data + (there ? (head * k.head + at.page * k.page + at.slot * k.slot) * sizeof(K) : 0);
        const char* v_row = v_data + (there ? (head * v.head + at.page * v.page + at.slot * v.slot) * sizeof(K) : 0);
        copy_.rows(tiles, first, k_row, v_row, rows);
      }
      if constexpr (Plan::kNarrow) {
        const uint32_t scales = smem_address(ring_.scales + stage * 2 * Plan::kScaleBytes + own * 4);
        const bool first_half = static_cast<int>(threadIdx.x) % 32 < kRows;  // the other one has the same keys
        if (p_.k_tokens && first_half)
          copy_async_word(scales, k.scale + at.page * k.scale_page + at.slot * k.scale_slot + head * k.scale_head,
                          there);
        if (p_.v_tokens && first_half)
          copy_async_word(scales + Plan::kScaleBytes,
                          v.scale + at.page * v.scale_page + at.slot * v.scale_slot + head * v.scale_head, there);
      }
    }
  }

  const DecodeParams& p_;
  const DecodeMaps& maps_;
  const DecodeRing<Plan>& ring_;
  DecodeCopy<Plan, 32> copy_;
  int warp_, first_, keys_;  // of those that load; its keys of every tile that comes row by row
  // This lane's box of every tile
  const CUtensorMap* box_map_;
  int box_run_, box_column_, box_place_;
  uint64_t keep_;  // how long L2 keeps it
  bool rows_before_ = false;
};

// The ring as a multiplying warp sees it.
template <class Plan>
class DecodeConsumer {
 public:
  __device__ __forceinline__ DecodeConsumer(const DecodeRing<Plan>& ring, int group)
      : ring_(ring), tiles_(smem_address(ring.stages)), scales_(smem_address(ring.scales) + group * Plan::kOwn * 4) {}
  __device__ __forceinline__ DecodeStage wait() const {
    mbarrier_wait(&ring_.full[stage_], parity_);
    return {tiles_ + stage_ * Plan::kStageBytes, scales_ + stage_ * 2 * Plan::kScaleBytes};
  }
  __device__ __forceinline__ void release() {
    mbarrier_arrive(&ring_.empty[stage_]);
    if (++stage_ == Plan::kStages) stage_ = 0, parity_ ^= 1;
  }

 private:
  const DecodeRing<Plan>& ring_;
  const uint32_t tiles_, scales_;
  int stage_ = 0;
  uint32_t parity_ = 0;
};

// A block among all that its item may have, whatever lengths are.
struct DecodeSeat {
  int item, rank, sequence;
  __device__ __forceinline__ explicit DecodeSeat(const DecodeParams& p)
      : item(static_cast<int>(p.parts.divide(blockIdx.x))),
        rank(static_cast<int>(blockIdx.x) - item * static_cast<int>(p.parts.divisor)),
        sequence(static_cast<int>(p.heads.divide(item))) {}
};

// The part of this block in its cluster's item, in place of a stretch. Short items are left to fewer clusters.
template <class I>
__device__ __forceinline__ AttentionPieceOf<I> decode_joined(const DecodeParams& p, const DecodeSeat& seat, int tiles,
                                                             DecodeBlock<I>& block, DecodeNotes& notes) {
  const int all = static_cast<int>(p.parts.divisor), cluster = static_cast<int>(p.cluster.divisor);
  const int item = seat.item, rank = seat.rank, sequence = seat.sequence;
  // Divisions by numbers that only the device knows are for short items.
  const bool full = tiles >= block.split.least * all;
  notes.teams = full ? p.teams : min(p.teams, split_teams(block.split, cluster, tiles));
  const int parts = notes.teams * cluster;
  notes.blocks = tiles < 2 || rank >= parts ? 0 : min(tiles, cluster);
  const int each = parts == all ? static_cast<int>(p.parts.divide(tiles)) : attention_detail::quotient(tiles, parts);
  const AttentionPieceOf<I> piece =
      split_joined<I>(parts, sequence, item - sequence * block.split.heads, rank, tiles, each);
  block.begin = 0, block.end = rank < parts ? piece.units : 0;
  return piece;
}

// The same for a loading warp, by itself, from the lengths of up to 32 sequences: it does not wait until the first warp has left
// them in shared memory. While they are on their way, what else the producer needs. False: there are more, or items are not
// joined.
// NOTE: lengths are clamped in 32 bits, as decode_counts allows. To 64 bits ptxas widens them in front of all that follows, and
// so waits for them there.
template <class Plan>
__device__ __forceinline__ bool decode_joined_alone(const DecodeParams& p, const DecodeMaps& maps,
                                                    DecodeProducer<Plan>& producer,
                                                    DecodeBlock<typename Plan::I>& block,
                                                    AttentionPieceOf<typename Plan::I>& piece, DecodeNotes& notes) {
  using I = typename Plan::I;
  const Sequences& seqs = p.c.seqs;
  const int lane = threadIdx.x % 32, batch = static_cast<int>(p.c.batch);
  int kv_len = 0;
  if (lane < batch) kv_len = seqs.kv_len[lane];
  producer.prepare();
  warps_sync(kDecodeLoaders, 32 + 32 * maps.loaders);  // the ring's barriers are there
  if (p.cluster.divisor == 1 || batch > 32) return false;
  const DecodeSeat seat(p);
  block.split = decode_split<Plan>(p), block.batch = batch;
  const KeyRangeOf<I> keys = decode_keys<I>(p, min(max(kv_len, 0), static_cast<I>(seqs.max_kv)));
  const I tiles = split_tiles(block.split, keys), units = split_units(block.split, tiles);
  const I longest = __reduce_max_sync(0xffffffffu, units);
  block.share = decode_share<Plan>(p, block.split, __reduce_add_sync(0xffffffffu, units), longest);
  if (!split_joins<I>(block.split, block.share, static_cast<int>(p.parts.divisor), longest)) return false;
  block.alone = true;
  block.own = {__shfl_sync(0xffffffffu, keys.begin, seat.sequence), __shfl_sync(0xffffffffu, keys.end, seat.sequence)};
  piece = decode_joined(p, seat, __shfl_sync(0xffffffffu, tiles, seat.sequence), block, notes);
  return true;
}

// At the cluster's barrier for warps that send no states: all of a cluster have to come, and they have done with the ring.
__device__ __forceinline__ void decode_pass_join() {
  __syncwarp();
  cluster_arrive_relaxed();
  cluster_wait();
}

// A block's stretch, from `piece` on.
template <class Plan>
__device__ __forceinline__ void decode_pieces(const DecodeParams& p, const DecodeSmem<Plan>& s,
                                              const DecodeRing<Plan>& ring, const DecodeBlock<typename Plan::I>& block,
                                              const AttentionPieceOf<typename Plan::I>& piece,
                                              DecodeProducer<Plan>& producer, const DecodeNotes& notes) {
  const int warp = threadIdx.x / 32;
  // For when the item ends.
  if (threadIdx.x == 0) {
    const int work = decode_item(p, piece.head).rows * static_cast<int>(p.columns.divisor);
    int shift = 0;
    while (notes.blocks << shift < work && notes.blocks > 0) ++shift;
    s.notes->blocks = notes.blocks, s.notes->teams = notes.teams, s.notes->shift = shift;
  }
  // In this order the compiler puts the loads first: of instructions, too, a start waits for each line.
  if (warp < Plan::kWarps) {
    const int group = warp / Plan::kSlices, slice = warp % Plan::kSlices;
    DecodeQuery<Plan> query(p, s);
    query.fetch(piece);
    query.store();
    decode_sync<Plan>();
    DecodeConsumer<Plan> tiles(ring, group);
    decode_items<Plan>(p, s, block, piece, query, tiles, group, Plan::kMostGroups, slice);
  } else {
    producer.run(block, piece);
    if (notes.blocks > 0) decode_pass_join();
  }
}

template <class Plan>
__device__ __forceinline__ void decode_block_sm90(const DecodeParams& p, const DecodeMaps& maps, char* smem) {
  using I = typename Plan::I;
  const int warp = threadIdx.x / 32;
  DecodeSmem<Plan> s = decode_smem<Plan>(smem, Plan::kMostGroups);
  const DecodeRing<Plan> ring(smem);
  s.arrived = ring.arrived;
  DecodeProducer<Plan> producer(p, maps, ring);
  DecodeBlock<I> block;
  AttentionPieceOf<I> piece;
  DecodeNotes notes = {};
  if (!Plan::kAlone && warp >= Plan::kWarps) producer.prepare();
  const bool alone =
      Plan::kAlone && warp >= Plan::kWarps && decode_joined_alone<Plan>(p, maps, producer, block, piece, notes);
  if (alone) {
    barrier_arrive(kDecodeAll, static_cast<int>(blockDim.x));
  } else {
    decode_schedule<Plan>(p, s);
    block = decode_stretch<Plan>(p, s);
  }
  const bool joins =
      alone || (p.cluster.divisor > 1 &&
                split_joins<I>(block.split, block.share, static_cast<int>(p.parts.divisor), s.notes->longest));
  if (joins && !alone) {
    const DecodeSeat seat(p);
    piece = decode_joined(p, seat, block.tiles(seat.sequence), block, notes);
  }
  if (block.begin >= block.end) {
    if (notes.blocks > 0) decode_pass_join();
  } else {
    if (!joins) piece = block.piece();
    decode_pieces<Plan>(p, s, ring, block, piece, producer, notes);
  }
  // At the end: a kernel that asks for what this needs in front of the loads would wait for it in every call.
  if (warp < Plan::kWarps) decode_empty(p, s);
}

template <class Plan>
__global__ void __launch_bounds__((Plan::kWarps + Plan::kLoadWarps) * 32, Plan::kBlocks)
    attention_decode_sm90(const __grid_constant__ DecodeParams p, const __grid_constant__ DecodeMaps maps) {
  extern __shared__ __align__(1024) char decode_sm90_smem[];  // the turns of boxes repeat every 1024 bytes
  if constexpr (kDecodeSm90) {
    const DecodeRing<Plan> ring(decode_sm90_smem);
    DecodeProducer<Plan> producer(p, maps, ring);
    if constexpr (Plan::kAlone) {  // by a warp that multiplies: those that load have lengths to read
      if (threadIdx.x / 32 == 1) {
        if (threadIdx.x == 32) producer.make_barriers();
        __syncwarp();
        barrier_arrive(kDecodeLoaders, 32 + 32 * maps.loaders);
      }
      if (threadIdx.x < Plan::kWarps * 32) decode_prefetch(p, Plan::kWarps * 32);
    } else {
      decode_prefetch(p, blockDim.x);
      if (threadIdx.x == Plan::kWarps * 32) producer.make_barriers();  // seen by all after decode_schedule's barrier
    }
    pdl_wait();
    if (!p.late) pdl_launch();
    decode_block_sm90<Plan>(p, maps, decode_sm90_smem);
  }
}

// Boxes of a call's caches, where pages have room for them and the driver takes the strides.
template <class Plan>
DecodeMaps decode_maps(const AttentionCall& c) {
  DecodeMaps maps = {};
  const int64_t size = c.seqs.page_size;
  int run = 1;  // the largest power of two that divides a page and a tile
  while (run < Plan::kKeys && (!c.seqs.page_table || size % (2 * run) == 0)) run *= 2, ++maps.run_shift;
  const auto map = [&](const KvCache& x, int64_t dim, CUtensorMap* map_out) {
    constexpr int kBytes = static_cast<int>(sizeof(typename Plan::K));
    return make_tensor_map({x.data, EK_DTYPE_F16, dim * kBytes / 2, size, c.kv_heads, x.slot * kBytes / 2,
                            x.head * kBytes / 2, Plan::kPitch / 2, run, c.pages, x.page * kBytes / 2, true},
                           map_out);
  };
  maps.boxes = run >= Plan::kLeastBox && size > 0 && size < 0x7fffffff && c.pages > 0 &&
               map(c.k, c.head_dim, &maps.k) && map(c.v, c.v_dim, &maps.v);
  const bool few = maps.boxes && 2 * Plan::kPanels * (Plan::kKeys / run) <= Plan::kFewBoxes;
  maps.loaders = few ? 1 : Plan::kLoadWarps;

  constexpr int64_t kWord = 16 / static_cast<int64_t>(sizeof(typename Plan::K));  // elements of 16 bytes
  const auto whole = [](int64_t stride) { return stride >= 0 && stride % kWord == 0; };
  const KvCache &k = c.k, &v = c.v;
  const int64_t last = (c.pages - 1) * k.page + (size - 1) * k.slot + (c.kv_heads - 1) * k.head;
  maps.alike = k.page == v.page && k.slot == v.slot && k.head == v.head && c.head_dim == Plan::kDim &&
               c.v_dim == Plan::kDim && whole(k.page) && whole(k.slot) && whole(k.head) &&
               last / kWord < int64_t{1} << 32;
  maps.page = static_cast<uint32_t>(k.page / kWord), maps.slot = static_cast<uint32_t>(k.slot / kWord);
  maps.head = static_cast<uint32_t>(k.head / kWord);
  return maps;
}

template <class Plan>
ek_status decode_launch_sm90(const AttentionCall& call, const Launch& l) {
  const DecodeSizes sizes = decode_sizes(call, decode_shape_sm90(call, l.device), l.flags & EK_FLAG_BATCH_INVARIANT);
  Grid grid;
  grid.blocks = dim3(static_cast<unsigned>(sizes.split.workers));
  grid.smem = Plan::kSmemBytes;
  grid.cluster = static_cast<int>(sizes.clusters.blocks);
  for (int64_t b = 0; b < call.batch; b += sizes.slab) {
    DecodeParams p = decode_params(call, sizes, b, l);
    constexpr int32_t kNoWindow = 1 << 30;  // as good as none, and sums stay below 2^31
    if (p.c.mask.window_left > kNoWindow) p.c.mask.window_left = kNoWindow;
    if (p.c.mask.window_right > kNoWindow) p.c.mask.window_right = kNoWindow;
    const DecodeMaps maps = decode_maps<Plan>(p.c);
    grid.threads = dim3(static_cast<unsigned>((Plan::kWarps + maps.loaders) * 32));
    if (const ek_status status = launch(l, attention_decode_sm90<Plan>, grid, p, maps)) return status;
  }
  return EK_STATUS_OK;
}

template <class M, class K, int kDim>
ek_status decode_run_dim_sm90(const AttentionCall& call, const Launch& l) {
  return call.heads / call.kv_heads * call.seqs.q_len <= 8 ? decode_launch_sm90<DecodePlan90<M, K, kDim, 8>>(call, l)
                                                           : decode_launch_sm90<DecodePlan90<M, K, kDim, 16>>(call, l);
}

template <class M, class K>
ek_status decode_run_sm90(const AttentionCall& call, const Launch& l) {
  switch (decode_dim(call)) {
    case 64: return decode_run_dim_sm90<M, K, 64>(call, l);
    case 128: return decode_run_dim_sm90<M, K, 128>(call, l);
    case 256: return decode_run_dim_sm90<M, K, 256>(call, l);
    default: return decode_run_dim_sm90<M, K, 512>(call, l);
  }
}

}  // namespace ek
