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

__device__ __forceinline__ uint32_t cluster_size() {
  uint32_t size = 1;
  EK_CLUSTER_ASM("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
  return size;
}

// The two halves of the cluster's barrier. Nothing but the arrival itself counts: with a fence it would cost a microsecond.
__device__ __forceinline__ void cluster_arrive_relaxed() {
  EK_CLUSTER_ASM("barrier.cluster.arrive.relaxed.aligned;" :: : "memory");
}
__device__ __forceinline__ void cluster_wait() {
  EK_CLUSTER_ASM("barrier.cluster.wait.acquire.aligned;" :: : "memory");
}

// 16 bytes into the shared memory of block `rank`, where p points in this block's, counted by the mbarrier there: no fence
// and no barrier of the cluster.
__device__ __forceinline__ void cluster_store_async([[maybe_unused]] float4* p, [[maybe_unused]] uint64_t* barrier,
                                                    [[maybe_unused]] uint32_t rank, [[maybe_unused]] float4 x) {
  EK_CLUSTER_ASM(
      "{\n.reg .b32 to, counted;\n"
      "mapa.shared::cluster.u32 to, %0, %2;\n"
      "mapa.shared::cluster.u32 counted, %1, %2;\n"
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [to], {%3, %4, %5, %6}, [counted];\n}" ::"r"(
          static_cast<uint32_t>(__cvta_generic_to_shared(p))),
      "r"(static_cast<uint32_t>(__cvta_generic_to_shared(barrier))), "r"(rank), "f"(x.x), "f"(x.y), "f"(x.z),
      "f"(x.w) : "memory");
}

// The same for 8 bytes, and for 4.
__device__ __forceinline__ void cluster_store_async([[maybe_unused]] float2* p, [[maybe_unused]] uint64_t* barrier,
                                                    [[maybe_unused]] uint32_t rank, [[maybe_unused]] float2 x) {
  EK_CLUSTER_ASM(
      "{\n.reg .b32 to, counted;\n"
      "mapa.shared::cluster.u32 to, %0, %2;\n"
      "mapa.shared::cluster.u32 counted, %1, %2;\n"
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [to], {%3, %4}, [counted];\n}" ::"r"(
          static_cast<uint32_t>(__cvta_generic_to_shared(p))),
      "r"(static_cast<uint32_t>(__cvta_generic_to_shared(barrier))), "r"(rank), "f"(x.x), "f"(x.y) : "memory");
}

__device__ __forceinline__ void cluster_store_async([[maybe_unused]] float* p, [[maybe_unused]] uint64_t* barrier,
                                                    [[maybe_unused]] uint32_t rank, [[maybe_unused]] float x) {
  EK_CLUSTER_ASM(
      "{\n.reg .b32 to, counted;\n"
      "mapa.shared::cluster.u32 to, %0, %2;\n"
      "mapa.shared::cluster.u32 counted, %1, %2;\n"
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.f32 [to], %3, [counted];\n}" ::"r"(
          static_cast<uint32_t>(__cvta_generic_to_shared(p))),
      "r"(static_cast<uint32_t>(__cvta_generic_to_shared(barrier))), "r"(rank), "f"(x) : "memory");
}

#undef EK_CLUSTER_ASM

}  // namespace ek
