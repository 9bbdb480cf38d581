// The parameters of a model as the optimiser sees them.
#pragma once

#include <torch/torch.h>

#include <map>
#include <string>
#include <vector>

namespace mhla::train {

struct Parameter {
  std::string name;
  at::Tensor tensor;
  bool decays = true;
};

// Weight decay pulls towards zero what is a matrix. Vectors (gains, biases, layer scales), position embeddings and
// mixing matrices, whose entries are weights of an average, stay free of it. Only what requires a gradient is listed.
// `mixing` are parameters or views of them.
std::vector<Parameter> trained_parameters(const torch::nn::Module& model, const std::vector<at::Tensor>& mixing);

std::vector<at::Tensor> tensors_of(const std::vector<Parameter>& parameters);

using NamedTensors = std::map<std::string, at::Tensor>;

// Parameters and buffers by name: what a checkpoint must hold of a model.
NamedTensors state_of(const torch::nn::Module& model);

std::size_t bytes_of(const NamedTensors& tensors);

}  // namespace mhla::train
