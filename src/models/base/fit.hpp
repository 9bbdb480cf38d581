// Stored tensors brought to the sizes of a model.
#pragma once

#include <torch/torch.h>

#include <optional>

#include "mhla/partition.hpp"
#include "nn/grid.hpp"

namespace mhla::models {

// Position embeddings [1, N, C] for another grid, with or without a class token in front; a class token the model does
// not have is left out, one that is missing is zero. Where `from` is not known the stored grid must be square.
// Undefined where it does not work out.
at::Tensor fitted_positions(const at::Tensor& stored, const std::optional<nn::Grid>& from, nn::Grid to,
                            bool class_token);

// A mixing matrix [M, M, 1, 1] for another block layout; where `from` is not known the stored layout must be square.
at::Tensor fitted_mixing(const at::Tensor& stored, const std::optional<Partition>& from, const Partition& to);

}  // namespace mhla::models
