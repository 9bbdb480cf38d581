// Which parameters decay.
#include "train/parameters.hpp"

#include <algorithm>

namespace mhla::train {
namespace {

// One axis holds all elements: [C], [1, C, 1, 1].
bool is_vector(const at::Tensor& tensor) {
  return std::ranges::any_of(tensor.sizes(), [&](std::int64_t extent) { return extent == tensor.numel(); }) ||
         tensor.dim() == 0;
}

}  // namespace

std::vector<Parameter> trained_parameters(const torch::nn::Module& model, const Decays& decays) {
  std::vector<Parameter> parameters;
  for (const auto& item : model.named_parameters())
    if (const at::Tensor& tensor = item.value(); tensor.requires_grad())
      parameters.push_back({item.key(), tensor, !is_vector(tensor) && decays(item.key())});
  return parameters;
}

std::vector<at::Tensor> tensors_of(const std::vector<Parameter>& parameters) {
  std::vector<at::Tensor> tensors;
  tensors.reserve(parameters.size());
  for (const Parameter& parameter : parameters) tensors.push_back(parameter.tensor);
  return tensors;
}

std::size_t bytes_of(const NamedTensors& tensors) {
  std::size_t bytes = 0;
  for (const auto& [name, tensor] : tensors) bytes += tensor.nbytes();
  return bytes;
}

}  // namespace mhla::train
