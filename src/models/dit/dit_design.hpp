// What a model name, a preset and a choice of attention amount to.
#pragma once

#include <string>
#include <vector>

#include "models/base/diffusion_design.hpp"
#include "nn/attention.hpp"

namespace mhla::models {

struct DitDesign : DiffusionDesign {
  explicit DitDesign(const GeneratorOptions& options);

  double least_elements() const;  // of the model's tensors

  nn::GridAttentionOptions attention_options(nn::AttentionKind kind) const;

  std::vector<nn::AttentionKind> attention;  // per layer
  bool authors = false;
};

std::vector<std::string> dit_names();  // dit_s2, dit_s4, ..., dit_xl8

}  // namespace mhla::models
