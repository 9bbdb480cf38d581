// A ring of 64 x 64 tiles in shared memory. One thread fetches tiles in the order of their use; tile number n lies at
// place n % kPlaces. The warps that a tile is for release it one by one.
#pragma once

#include "cuda/support/hopper/instructions.cuh"

namespace mhla::cuda::hopper {

inline constexpr int kTileBytes = 64 * kBoxRowBytes;

template <int kPlaces>
struct Ring {
  struct Barriers {
    Barrier full[kPlaces], empty[kPlaces];
  };
  static constexpr int kCount = kPlaces, kBytes = kPlaces * kTileBytes;
  unsigned char* tiles;
  Barriers* barriers;

  __device__ static int place(unsigned n) { return static_cast<int>(n % kPlaces); }
  __device__ static int parity(unsigned n) { return static_cast<int>(n / kPlaces & 1); }

  // By one thread.
  __device__ void prepare(int releases) const {
    for (int n = 0; n < kPlaces; ++n) {
      init_barrier(barriers->full + n, 1);
      init_barrier(barriers->empty + n, releases);
    }
    fence_barrier_init();
  }

  __device__ unsigned char* tile(unsigned n) const { return tiles + place(n) * kTileBytes; }
  __device__ std::uint32_t address(unsigned n) const { return shared_address(tile(n)); }

  // Fetching: waits for room, then load(place in memory, barrier) asks for the tile.
  template <typename Load>
  __device__ void fetch(unsigned n, Load&& load) const {
    Barrier* const full = barriers->full + place(n);
    wait(barriers->empty + place(n), parity(n) ^ 1);
    arrive_expecting(full, kTileBytes);
    load(tile(n), full);
  }

  // Consuming, by whole warps.
  __device__ void wait_for(unsigned n) const {
    wait_in_turn(barriers->full + place(n), barriers->empty + place(n), parity(n));
  }
  __device__ void release(unsigned n, int times = 1) const {
    __syncwarp();
    if (lane_id() == 0) arrive(barriers->empty + place(n), times);
  }
};

}  // namespace mhla::cuda::hopper
