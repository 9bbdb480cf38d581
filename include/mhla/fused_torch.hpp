// The fused operators for LibTorch programs: differentiable functions of tensors. Link mhla::torch.
//
//   auto rotary = mhla::fused::RotaryTables::grid({21, 30, 50}, 128, mhla::fused::RotaryLayout::adjacent,
//   options); auto q = std::get<0>(mhla::fused::rotary_features(x, rotary, {.norm = NormScope::channels, .weight =
//   norm_q}));
#pragma once

#include <torch/torch.h>

#include <optional>
#include <tuple>
#include <vector>

#include "mhla/fused.hpp"

namespace mhla::fused {

// Rotation by position as tables of cosines and sines (Rotary in mhla/fused.hpp).
struct RotaryTables {
  at::Tensor cos, sin;              // [entries of a table], or [N, P], or [B, N, P] for one per batch row
  std::vector<std::int64_t> sizes;  // of the grid of tokens
  std::vector<std::int64_t> pairs;  // of each axis
  RotaryLayout layout = RotaryLayout::half;

  // Tables made on the device of `options`, float32 unless it says float64. Positions of a line start at `offset`; the
  // pairs of a grid are shared out evenly, what is left over going to the first axis.
  static RotaryTables line(std::int64_t tokens, std::int64_t dim, RotaryLayout layout, at::TensorOptions options = {},
                           double theta = 10000.0, std::int64_t offset = 0);
  static RotaryTables grid(std::vector<std::int64_t> sizes, std::int64_t dim, RotaryLayout layout,
                           at::TensorOptions options = {}, double theta = 10000.0);
};

struct RotaryFeaturesOptions {
  NormScope norm = NormScope::none;
  std::optional<at::Tensor> weight = std::nullopt;  // [D], or [H D] with NormScope::channels
  double norm_eps = 1e-6;
  FeatureMap feature_map = FeatureMap::relu;
  double feature_eps = 0.0;
  bool plain = false;  // also return the features before rotation
};

// x: [B, N, H, D]. Returns the rotated features and, on request, the plain ones (else an empty tensor). Differentiable
// once in x and weight.
std::tuple<at::Tensor, at::Tensor> rotary_features(const at::Tensor& x, const std::optional<RotaryTables>& rotary,
                                                   const RotaryFeaturesOptions& options = {});

// x, gate: [B, N, H, D]; weight: [D], or [H D] with NormScope::channels. Differentiable once in every tensor.
at::Tensor gated_norm(const at::Tensor& x, const std::optional<at::Tensor>& weight,
                      const std::optional<at::Tensor>& gate, NormScope norm = NormScope::head, double eps = 1e-6);

// x: [B, N, C]; weight, bias: [C]; scale, shift: [B, C] or [B, N, C]. Differentiable once in every tensor.
at::Tensor modulate(const at::Tensor& x, const std::optional<at::Tensor>& scale, const std::optional<at::Tensor>& shift,
                    const std::optional<at::Tensor>& weight = std::nullopt,
                    const std::optional<at::Tensor>& bias = std::nullopt, double eps = 1e-6);

}  // namespace mhla::fused
