// What the fused layers on a GPU share: when they apply, that they are differentiated once, and their scratch memory.
#pragma once

#include <ATen/autocast_mode.h>
#include <torch/torch.h>

#include <string>

#include "torch/execution.hpp"
#include "torch/fused_tensors.hpp"
#include "torch/tensors.hpp"

namespace mhla::nn {

// The type in which matrix products of x are made: autocast's, where it is on.
inline at::ScalarType product_type(const at::Tensor& x) {
  const auto device = x.device().type();
  return at::autocast::is_autocast_enabled(device) ? at::autocast::get_autocast_dtype(device) : x.scalar_type();
}

inline DType fused_dtype(at::ScalarType type) {
  return type == at::kBFloat16 ? DType::bf16 : type == at::kHalf ? DType::f16 : DType::f32;
}

// On a GPU, in a type the kernels have, aligned for vectors of 16 bytes.
inline bool fused_rows(const at::Tensor& x) {
  const auto type = x.scalar_type();
  return x.is_cuda() && (type == at::kFloat || type == at::kBFloat16 || type == at::kHalf) && x.numel() > 0 &&
         reinterpret_cast<std::uintptr_t>(x.const_data_ptr()) % 16 == 0;
}

// The same without gaps.
inline bool fused_input(const at::Tensor& x) { return fused_rows(x) && x.is_contiguous(); }

// For backward passes: their kernels have no derivative.
inline void differentiated_once(const char* layer) {
  if (at::GradMode::is_enabled())
    throw Error(std::string(layer) + " on a GPU can be differentiated once; create_graph must be false");
}

inline at::Tensor partial_sums(const at::Tensor& x, std::int64_t elements) {
  return at::empty({elements}, x.options().dtype(at::kFloat));
}

}  // namespace mhla::nn
