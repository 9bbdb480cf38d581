// From the public structs of a call to what kernels take.
#pragma once

#include <cuda_runtime.h>

#include <string>
#include <vector>

#include "cuda/support/math.cuh"
#include "cuda/support/shape.cuh"
#include "cuda/support/workspace.hpp"
#include "mhla/attention.hpp"

namespace mhla::cuda {

struct CallShape {
  Shape shape;
  std::vector<SequenceRow> packed;  // to be uploaded where shape.packed shall point; empty: not packed

  std::int64_t mixed_rows() const { return static_cast<std::int64_t>(shape.total_blocks) * shape.heads; }
  std::int64_t entry_rows() const {
    return (shape.total_blocks + static_cast<std::int64_t>(shape.sequences) * shape.initial) * shape.kv_heads;
  }
  std::int64_t tokens = 0;  // of one batch row
  std::int64_t batch = 0;
};
CallShape call_shape(const Problem& problem);  // of a problem that validate() accepted: its counts fit into 32 bits

template <typename E, typename Pointer>
TokenTensor<E> token_tensor(const BasicTensor<Pointer>& tensor, std::int64_t dim) {
  constexpr auto kElements = static_cast<std::int64_t>(16 / sizeof(E));
  const bool aligned = reinterpret_cast<std::uintptr_t>(tensor.data) % 16 == 0 && dim % kElements == 0 &&
                       tensor.batch_stride % kElements == 0 && tensor.token_stride % kElements == 0 &&
                       tensor.head_stride % kElements == 0;
  constexpr auto kLimit = std::int64_t{1} << 31;
  if (tensor.token_stride >= kLimit || tensor.token_stride <= -kLimit)
    throw Error("the token stride of a tensor is " + std::to_string(tensor.token_stride) +
                " elements; on CUDA it must lie within 2^31");
  return {static_cast<E*>(tensor.data),          tensor.batch_stride,   tensor.head_stride,
          static_cast<int>(tensor.token_stride), static_cast<int>(dim), aligned};
}

// One number per token and head.
template <typename T>
TokenScalars<T> take_scalars(Workspace& workspace, const CallShape& call) {
  return {workspace.take<T>(call.batch * call.tokens * call.shape.heads), call.tokens, call.shape.heads};
}
// A contiguous tensor like o.
template <typename E>
TokenTensor<E> take_values(Workspace& workspace, const CallShape& call) {
  const int dim = call.shape.value_dim;
  const std::int64_t row = static_cast<std::int64_t>(call.shape.heads) * dim;
  E* const data = workspace.take<E>(call.batch * call.tokens * row);
  return token_tensor<E>(BasicTensor<void*>{data, call.tokens * row, row, dim}, dim);
}

template <typename T>
TokenScalars<const T> as_const(const TokenScalars<T>& scalars) {
  return {scalars.data, scalars.tokens, scalars.heads};
}
template <typename E>
TokenTensor<const E> as_const(const TokenTensor<E>& x) {
  return {x.data, x.batch_stride, x.head_stride, x.token_stride, x.dim, x.vectors};
}

// Calls f with the arithmetic of a problem.
template <typename F>
decltype(auto) with_math(const Problem& problem, F&& f) {
  switch (problem.dtype) {
    case DType::bf16:
      return f(HalfMath<__nv_bfloat16>{});
    case DType::f16:
      return f(HalfMath<__half>{});
    case DType::f64:
      return f(ExactMath<double>{});
    case DType::f32:
      break;
  }
  if (problem.options.float32_products == Float32Products::tf32) return f(Tf32Math{});
  return f(ExactMath<float>{});
}

// Half has few exponents: its summaries are stored as means over a block, by a power of two. Others need no factor.
template <typename E>
double store_factor(const Shape& shape) {
  double factor = 1;
  if constexpr (std::is_same_v<E, __half>)
    for (std::int64_t n = 1; n < shape.capacity; n *= 2) factor /= 2;
  return factor;
}

}  // namespace mhla::cuda
