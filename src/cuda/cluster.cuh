// SPDX-License-Identifier: Apache-2.0
// Thread block clusters (sm_90 and newer): who am I, barriers, stores to the shared memory of another block.
// On older targets the functions compile to nothing, so that templates over them still build; nothing there calls them.
#pragma once

#include <cstdint>

namespace ek {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define EK_CLUSTER_ASM(...) asm volatile(__VA_ARGS__)
constexpr bool kHasClusters = true;
#else
#define EK_CLUSTER_ASM(...)
constexpr bool kHasClusters = false;
#endif

__device__ __forceinline__ uint32_t cluster_rank() {
  uint32_t rank = 0;
  EK_CLUSTER_ASM("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

// Number of this block's cluster; without clusters, of the block.
__device__ __forceinline__ uint32_t cluster_id() {
  uint32_t id = 0;
  EK_CLUSTER_ASM("mov.u32 %0, %%clusterid.x;" : "=r"(id));
  return id;
}

// The two halves of the cluster's barrier. Nothing but the arrival itself counts: with a fence it would cost a microsecond.
__device__ __forceinline__ void cluster_arrive_relaxed() {
  EK_CLUSTER_ASM("barrier.cluster.arrive.relaxed.aligned;" :: : "memory");
}
__device__ __forceinline__ void cluster_wait() {
  EK_CLUSTER_ASM("barrier.cluster.wait.acquire.aligned;" :: : "memory");
}

// Where block `rank` of the cluster has what p points at in this block's shared memory.
__device__ __forceinline__ uint32_t cluster_address(const void* p, [[maybe_unused]] uint32_t rank) {
  uint32_t address = static_cast<uint32_t>(__cvta_generic_to_shared(p));
  EK_CLUSTER_ASM("mapa.shared::cluster.u32 %0, %0, %1;" : "+r"(address) : "r"(rank));
  return address;
}

// x into the shared memory of block `rank`, where p points in this block's, counted by the mbarrier there: no fence and no
// barrier of the cluster.
__device__ __forceinline__ void cluster_store_async(float* p, uint64_t* barrier, uint32_t rank,
                                                    [[maybe_unused]] float x) {
  [[maybe_unused]] const uint32_t to = cluster_address(p, rank), counted = cluster_address(barrier, rank);
  EK_CLUSTER_ASM("st.async.shared::cluster.mbarrier::complete_tx::bytes.f32 [%0], %1, [%2];" ::"r"(to), "f"(x),
                 "r"(counted) : "memory");
}
__device__ __forceinline__ void cluster_store_async(float2* p, uint64_t* barrier, uint32_t rank,
                                                    [[maybe_unused]] float2 x) {
  [[maybe_unused]] const uint32_t to = cluster_address(p, rank), counted = cluster_address(barrier, rank);
  EK_CLUSTER_ASM("st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::"r"(to),
                 "f"(x.x), "f"(x.y), "r"(counted) : "memory");
}
__device__ __forceinline__ void cluster_store_async(float4* p, uint64_t* barrier, uint32_t rank,
                                                    [[maybe_unused]] float4 x) {
  [[maybe_unused]] const uint32_t to = cluster_address(p, rank), counted = cluster_address(barrier, rank);
  EK_CLUSTER_ASM("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(to),
                 "f"(x.x), "f"(x.y), "f"(x.z), "f"(x.w), "r"(counted) : "memory");
}

#undef EK_CLUSTER_ASM

}  // namespace ek
