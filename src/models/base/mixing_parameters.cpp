// The mixing matrices among a model's parameters.
#include "models/base/mixing_parameters.hpp"

#include "nn/input_mixing.hpp"

namespace mhla::models {

bool is_mixing(const std::string& parameter_name) {
  return parameter_name.ends_with("_attn.conv.weight") || parameter_name.ends_with(".mixing_matrix");
}

double least_mixing(const std::string& mixing) { return mixing == "input" ? nn::kLeastInputMixing : 0.0; }

std::vector<at::Tensor> learned_mixing(const std::vector<at::Tensor>& parameters) {
  std::vector<at::Tensor> matrices;
  for (const at::Tensor& mixing : parameters)
    if (mixing.defined() && mixing.requires_grad()) matrices.push_back(mixing.flatten(1));
  return matrices;
}

}  // namespace mhla::models
