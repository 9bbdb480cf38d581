// What the two passes of the dense form share. A head's tokens lie in shared memory block by block, 16 rows each, so
// that a warp's 16 rows and two neighbouring 8-column tiles always stand for one pair of blocks and have one weight.
#pragma once

#include "cuda/dense/dense_sm90.hpp"
#include "cuda/support/hopper/fragments.cuh"
#include "cuda/support/hopper/tensor_map.hpp"

namespace mhla::cuda::hopper {

inline constexpr int kDenseColumns = 64, kDenseBlock = 16, kDenseTokens = 256;

inline bool suits_dense(const Shape& shape, Boxes& boxes) {
  return shape.key_dim == kDenseColumns && shape.value_dim == kDenseColumns && shape.masking == Masking::none &&
         shape.capacity == kDenseBlock && shape.heads == shape.kv_heads && shape.packed == nullptr &&
         shape.uniform.tokens == static_cast<std::int64_t>(shape.uniform.blocks) * kDenseBlock &&
         shape.uniform.tokens % 64 == 0 && shape.uniform.tokens <= kDenseTokens && available() &&
         find_boxes(shape, boxes);
}

// All tokens of one head by one copy; see head_map().
__device__ inline void load_head(unsigned char* to, const CUtensorMap& map, const Boxes& boxes, int head, int batch,
                                 Barrier* barrier) {
  load_box(to, map, {head * kDenseColumns, 0, 0, 0, batch * (boxes.sizes[1] / boxes.extents[1])}, barrier);
}
// Four blocks of 16 rows of a head, by the lanes of one warp.
__device__ inline void store_blocks(const CUtensorMap& map, const Boxes& boxes, int first_block, int head, int batch,
                                    const unsigned char* head_tile) {
  const int block = first_block + lane_id();
  if (lane_id() >= 4) return;
  store_box(map, boxes.place(boxes.block(block), 0, head * kDenseColumns, batch),
            head_tile + block * kDenseBlock * kBoxRowBytes);
  commit_stores();
}

// Fragments of a warp's 16 rows, as A of products over the columns.
__device__ inline void load_rows(std::uint32_t (&a)[4][4], std::uint32_t tile, int row) {
  const int lane = lane_id();
#pragma unroll
  for (int k = 0; k < 4; ++k) load_matrices<false>(a[k], box_piece(tile, row + (lane & 15), k * 2 + (lane >> 4)));
}
// And back.
__device__ inline void store_rows(std::uint32_t tile, int row, const std::uint32_t (&a)[4][4]) {
  const int lane = lane_id();
#pragma unroll
  for (int k = 0; k < 4; ++k) store_matrices(box_piece(tile, row + (lane & 15), k * 2 + (lane >> 4)), a[k]);
}

// s = rows . others^T over 64 columns, for 64 others starting at row `other`.
template <typename E>
__device__ void multiply_rows(float (&s)[32], const std::uint32_t (&rows)[4][4], std::uint32_t others, int other) {
#pragma unroll
  for (int k = 0; k < 4; ++k)
    warpgroup_product<E, false>(
        s, rows[k], product_operand(others + static_cast<std::uint32_t>(other * kBoxRowBytes + k * 32), 16), k > 0);
}
// The same with the rows in shared memory.
template <typename E>
__device__ void multiply_rows(float (&s)[32], std::uint32_t rows, int row, std::uint32_t others, int other) {
#pragma unroll
  for (int k = 0; k < 4; ++k)
    warpgroup_product<E, false, false>(
        s, product_operand(rows + static_cast<std::uint32_t>(row * kBoxRowBytes + k * 32), 16),
        product_operand(others + static_cast<std::uint32_t>(other * kBoxRowBytes + k * 32), 16), k > 0);
}
// out (+)= pairs rest, for 64 rows of `rest` starting at `other`.
template <typename E>
__device__ void multiply_pairs(float (&out)[32], const std::uint32_t (&pairs)[4][4], std::uint32_t rest, int other,
                               bool add) {
#pragma unroll
  for (int k = 0; k < 4; ++k)
    warpgroup_product<E, true>(out, pairs[k],
                               product_operand(rest + static_cast<std::uint32_t>((other + k * 16) * kBoxRowBytes), 16),
                               add || k > 0);
}
// Accumulators of 64 columns as fragments of the next product.
template <typename E>
__device__ void round_pairs(std::uint32_t (&pairs)[4][4], const float (&s)[32]) {
#pragma unroll
  for (int k = 0; k < 4; ++k)
#pragma unroll
    for (int i = 0; i < 4; ++i) pairs[k][i] = pack<E>(s[k * 8 + i * 2], s[k * 8 + i * 2 + 1]);
}

}  // namespace mhla::cuda::hopper
