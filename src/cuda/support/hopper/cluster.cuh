// Thread blocks of a cluster: fetching for one another, and arriving at each other's barriers. What lies at an address
// of shared memory in one of them lies there in all.
#pragma once

#include "cuda/support/hopper/instructions.cuh"

// Of a kernel; chips before Hopper have no clusters, and their compilers refuse the word.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#define MHLA_CLUSTER(size)
#else
#define MHLA_CLUSTER(size) __cluster_dims__(size, 1, 1)
#endif

namespace mhla::cuda::hopper {

__device__ inline int cluster_rank() {
  int rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
// All threads of all its thread blocks.
__device__ inline void sync_cluster() {
  asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}
// At the barrier of thread block `rank`, to say that something has been read: what was written here does not become
// visible there by it.
__device__ inline void arrive_at(Barrier* barrier, int rank) {
  asm volatile(
      "{\n"
      ".reg .b32 there;\n"
      "mapa.shared::cluster.u32 there, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [there];\n"
      "}\n" ::"r"(shared_address(barrier)),
      "r"(rank)
      : "memory");
}
// To the same place in every thread block of `mask`; each of them counts the bytes at its own barrier.
__device__ inline void load_box_for(int mask, void* to, const CUtensorMap& map, const BoxPlace& at, Barrier* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
      "[%0], [%1, {%3, %4, %5, %6, %7}], [%2], %8;" ::"r"(shared_address(to)),
      "l"(&map), "r"(shared_address(barrier)), "r"(at.column), "r"(at.w), "r"(at.h), "r"(at.f), "r"(at.batch),
      "h"(static_cast<std::uint16_t>(mask))
      : "memory");
}

// Asks for a box ahead of time, as far as the L2 cache.
__device__ inline void prefetch_box(const CUtensorMap& map, const BoxPlace& at) {
  asm volatile("cp.async.bulk.prefetch.tensor.5d.L2.global [%0, {%1, %2, %3, %4, %5}];" ::"l"(&map), "r"(at.column),
               "r"(at.w), "r"(at.h), "r"(at.f), "r"(at.batch)
               : "memory");
}

}  // namespace mhla::cuda::hopper
