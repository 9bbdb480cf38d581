// Descriptions of tensors for bulk copies, made on the host for every launch.
#pragma once

#include <cuda.h>

#include "cuda/support/hopper/boxes.cuh"
#include "cuda/support/hopper/device.hpp"

namespace mhla::cuda::hopper {

// How to cut the blocks of a call into boxes; false where they do not divide well, or tokens are not laid out in a
// grid.
bool find_boxes(const Shape& shape, Boxes& boxes);

// Heads next to each other, rows on 16-byte borders.
template <typename E>
bool fits(const TokenTensor<E>& x, int heads) {
  return x.vectors && x.token_stride > 0 && (heads == 1 || x.head_stride == x.dim) && x.batch_stride > 0;
}

inline bool is_plain(const Feature& feature) { return feature.map == FeatureMap::identity && feature.eps == 0; }

// Boxes of kBoxColumns columns of a token tensor, or of fewer: rows of 64 bytes are exchanged as narrow.cuh says.
template <typename E>
CUtensorMap token_map(const TokenTensor<E>& x, int heads, int batch, const Boxes& boxes, int box_columns = kBoxColumns);

// All tokens of a head as one box, block by block. Lines and grids of two axes whose batch rows follow each other
// without gaps; others give false.
template <typename E>
bool head_map(const TokenTensor<E>& x, int heads, int batch, const Boxes& boxes, CUtensorMap& map);

// Boxes of `box_rows` x kBoxColumns of a matrix with `columns` adjacent elements per row.
template <typename E>
CUtensorMap matrix_map(const E* data, std::int64_t rows, int columns, int box_rows);

// Boxes of `box_rows` x kBoxColumns of the matrices of a store: `units` groups of `rows` rows of `columns` adjacent
// elements. Rows past those of a unit are fetched as zeros and not stored.
template <typename E>
CUtensorMap store_map(const E* data, int units, int rows, int columns, int box_rows);

}  // namespace mhla::cuda::hopper
