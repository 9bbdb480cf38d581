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

std::vector<Parameter> trained_parameters(const torch::nn::Module& model, const std::vector<at::Tensor>& mixing) {
  std::vector<Parameter> parameters;
  for (const auto& item : model.named_parameters()) {
    const at::Tensor& tensor = item.value();
    if (!tensor.requires_grad()) continue;
    const bool is_mixing = std::ranges::any_of(mixing, [&](const at::Tensor& m) { return m.is_alias_of(tensor); });
    const bool is_position = item.key().find("pos_embed") != std::string::npos;
    parameters.push_back({item.key(), tensor, !(is_mixing || is_position || is_vector(tensor))});
  }
  return parameters;
}

std::vector<at::Tensor> tensors_of(const std::vector<Parameter>& parameters) {
  std::vector<at::Tensor> tensors;
  tensors.reserve(parameters.size());
  for (const Parameter& parameter : parameters) tensors.push_back(parameter.tensor);
  return tensors;
}

NamedTensors state_of(const torch::nn::Module& model) {
  NamedTensors state;
  for (const auto& item : model.named_parameters()) state.emplace(item.key(), item.value().detach());
  for (const auto& item : model.named_buffers()) state.emplace(item.key(), item.value().detach());
  return state;
}

std::size_t bytes_of(const NamedTensors& tensors) {
  std::size_t bytes = 0;
  for (const auto& [name, tensor] : tensors) bytes += tensor.nbytes();
  return bytes;
}

}  // namespace mhla::train
