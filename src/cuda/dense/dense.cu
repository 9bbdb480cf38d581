// Which kernel makes the dense form: that of whole heads on the chip (sm_90a, elements of two bytes), else the portable
// one of kernel.cuh.
#include "cuda/dense/dense_sm90.hpp"
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

template <typename Math>
void dense_forward(const DenseForwardArgs<typename Math::Element>& args, int* order, cudaStream_t stream) {
  if constexpr (sizeof(typename Math::Element) == 2)
    if (hopper::dense_forward(args, stream)) return;
  const Shape& shape = args.shape;
  if (order != nullptr) write_order(shape, order, stream);
  multiply_pairs<Math>({.shape = shape,
                        .order = order,
                        .x = args.q,
                        .y = args.k,
                        .rest = args.v,
                        .x_feature = shape.feature,
                        .y_feature = shape.feature,
                        .factor = shape.scale,
                        .normalize = args.normalize,
                        .out = args.o},
                       stream);
}

template <typename E>
bool dense_backward(const DenseBackwardArgs<E>& args, cudaStream_t stream) {
  if constexpr (sizeof(E) == 2) {
    return hopper::dense_backward(args, stream);
  } else {
    return false;
  }
}

template void dense_forward<HalfMath<__nv_bfloat16>>(const DenseForwardArgs<__nv_bfloat16>&, int*, cudaStream_t);
template void dense_forward<HalfMath<__half>>(const DenseForwardArgs<__half>&, int*, cudaStream_t);
template void dense_forward<Tf32Math>(const DenseForwardArgs<float>&, int*, cudaStream_t);
template void dense_forward<ExactMath<float>>(const DenseForwardArgs<float>&, int*, cudaStream_t);
template void dense_forward<ExactMath<double>>(const DenseForwardArgs<double>&, int*, cudaStream_t);
template bool dense_backward<__nv_bfloat16>(const DenseBackwardArgs<__nv_bfloat16>&, cudaStream_t);
template bool dense_backward<__half>(const DenseBackwardArgs<__half>&, cudaStream_t);
template bool dense_backward<float>(const DenseBackwardArgs<float>&, cudaStream_t);
template bool dense_backward<double>(const DenseBackwardArgs<double>&, cudaStream_t);

}  // namespace mhla::cuda
