// What a model name, a preset and a choice of attention amount to.
#pragma once

#include <string>
#include <vector>

#include "models/base/classifier.hpp"
#include "nn/attention.hpp"

namespace mhla::models {

struct VitDesign {
  explicit VitDesign(const ClassifierOptions& options);

  double least_elements() const;  // of the model's tensors

  nn::GridAttentionOptions attention_options(nn::AttentionKind kind) const;
  Partition partition() const;                                      // the grid in the options' blocks
  nn::Grid grid_of(std::int64_t height, std::int64_t width) const;  // tokens of an image of this size

  std::int64_t width = 0, depth = 0, heads = 0;
  std::vector<nn::AttentionKind> attention;  // per layer
  bool authors = false;
  // The authors' MHLA model works on a canvas of whole blocks, on whose middle an image is put (or cut to it), and
  // treats the border as image. All others take any size: the last row and column of patches are filled up with zeros.
  bool canvas = false;
  bool class_token = false;  // the plain softmax model: class token, timm's names
  nn::NormKind norm = nn::NormKind::layer;
  nn::Grid grid;  // tokens of an image of the options' size

 private:
  const ClassifierOptions options_;
};

std::vector<std::string> vit_names();

}  // namespace mhla::models
