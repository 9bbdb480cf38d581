// Fragments out of boxes, and the way of accumulators into them.
#pragma once

#include "cuda/support/hopper/instructions.cuh"
#include "cuda/support/pair_feature.cuh"
#include "cuda/support/shape.cuh"

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

// Four lanes have four adjacent bytes each of four vectors of 16 bytes, pieces[l] of vector l: they exchange them, so
// that lane l of the four has vector l as a whole, and stores it to device memory.
__device__ inline void put_in_quad(void* to, std::uint32_t (&pieces)[4]) {
  const int lane = lane_id();
#pragma unroll
  for (int bit = 1; bit <= 2; bit *= 2)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if ((i & bit) == 0) {
        const bool upper = (lane & bit) != 0;
        const std::uint32_t other = __shfl_xor_sync(0xffffffffu, upper ? pieces[i] : pieces[i | bit], bit);
        (upper ? pieces[i] : pieces[i | bit]) = other;
      }
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(pieces[0]), "r"(pieces[1]), "r"(pieces[2]),
               "r"(pieces[3])
               : "memory");
}

// The warp's 16 rows of a 64-row accumulator, rounded, to device memory: 16-byte pieces of rows from (row, column) on.
template <typename E, int kCount>
__device__ void put_rows(const HeadView<E>& to, int row, int column, const float (&acc)[kCount]) {
  const int lane = lane_id();
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    E* const first = to.row(row + half * 8 + (lane >> 2)) + column + (lane & 3) * 8;
#pragma unroll
    for (int j = 0; j < kCount / 16; ++j) {
      std::uint32_t pieces[4];
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        const int at = j * 16 + n * 4 + half * 2;
        pieces[n] = pack<E>(acc[at], acc[at + 1]);
      }
      put_in_quad(first + j * 32, pieces);
    }
  }
}

}  // namespace mhla::cuda::hopper
