// Weights of one model for another of its kind.
#pragma once

#include <torch/torch.h>

#include <optional>

#include "models/classifier.hpp"
#include "models/weights.hpp"

namespace mhla::models {

// Renames and resizes `stored` tensors (of a model with the options `from`, where known) to what `targets` of `module`
// need, as far as possible, and notes it in `report`:
//   * timm's qkv and proj are the authors' to_qkv and to_out.0, and back; norm is fc_norm;
//   * where to_qkv has no bias, the stored bias of v moves through the projection into the bias of the output (exact
//   for
//     attention whose weights sum to one), and those of q and k are left out;
//   * position embeddings and mixing matrices are resized by the model (Classifier::fitted).
void adapt_to(torch::nn::Module& module, const NamedTensors& targets, const std::optional<ClassifierOptions>& from,
              NamedTensors& stored, LoadReport& report);

}  // namespace mhla::models
