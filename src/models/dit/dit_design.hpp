// What a model name, a preset and a choice of attention amount to.
#pragma once

#include <string>
#include <vector>

#include "models/base/generator.hpp"
#include "nn/attention.hpp"

namespace mhla::models {

struct DitDesign {
  explicit DitDesign(const GeneratorOptions& options);

  double least_elements() const;  // of the model's tensors

  nn::GridAttentionOptions attention_options(nn::AttentionKind kind) const;
  Partition partition() const;  // the grid in the options' blocks

  std::int64_t width = 0, depth = 0, heads = 0, patch = 0;
  std::vector<nn::AttentionKind> attention;  // per layer
  nn::Grid grid;                             // tokens of a picture of the options' size
  bool authors = false;

 private:
  const GeneratorOptions options_;
};

std::vector<std::string> dit_names();

}  // namespace mhla::models
