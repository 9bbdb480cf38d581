#include "cuda/dense/dense.hpp"
#include "cuda/readout/readout.hpp"
#include "cuda/support/launch.hpp"
#include "cuda/support/math.cuh"

namespace mhla::cuda {
namespace {

__global__ void order_kernel(const __grid_constant__ Shape shape, int* order, int capacity) {
  const int row = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (row >= shape.uniform.blocks * capacity) return;
  const BlockTokens tokens(shape, shape.sequence(0), row / capacity);
  const int n = row % capacity;
  order[row] = n < tokens.count() ? static_cast<int>(tokens[n]) : -1;
}

}  // namespace

void write_order(const Shape& shape, int* order, cudaStream_t stream) {
  launch("order of tokens", order_kernel, dim3(static_cast<unsigned>((dense_rows(shape) + 127) / 128)), 128, 0, stream,
         shape, order, dense_capacity(shape));
}

int dense_column_tiles(DType dtype, int columns, int depth) { return readout_column_tiles(dtype, columns, depth); }

}  // namespace mhla::cuda
