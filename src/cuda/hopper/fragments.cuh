// Fragments out of boxes, and the way of accumulators into them.
#pragma once

#include "cuda/hopper/instructions.cuh"
#include "cuda/support/pair_feature.cuh"

namespace mhla::cuda::hopper {

// Rows of a 64-row box that belong to this warp of a warpgroup, columns 16 k to 16 k + 15: A of a product over columns,
// element by element in the places of accumulators.
__device__ inline void load_rows(std::uint32_t (&a)[4], std::uint32_t box, int warp, int k) {
  const int lane = lane_id();
  load_matrices<false>(a, box_piece(box, warp * 16 + (lane & 15), k * 2 + (lane >> 4)));
}

// The warp's 16 rows of a 64-row accumulator, rounded, into boxes of `box_rows` rows side by side.
template <typename E, int kCount>
__device__ void put_boxes(std::uint32_t boxes, int box_rows, int row, const float (&acc)[kCount]) {
  const int lane = lane_id();
  const int r = row + (lane & 15);
#pragma unroll
  for (int j = 0; j < kCount / 4; j += 2) {
    const std::uint32_t fragment[4] = {pack<E>(acc[j * 4], acc[j * 4 + 1]), pack<E>(acc[j * 4 + 2], acc[j * 4 + 3]),
                                       pack<E>(acc[j * 4 + 4], acc[j * 4 + 5]),
                                       pack<E>(acc[j * 4 + 6], acc[j * 4 + 7])};
    store_matrices(box_piece(boxes + j / 8 * box_rows * kBoxRowBytes, r, j % 8 + (lane >> 4)), fragment);
  }
}

}  // namespace mhla::cuda::hopper
