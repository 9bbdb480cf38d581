// The parameters of a model as the optimiser sees them.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <string>
#include <vector>

#include "tensor_io/tensors.hpp"

namespace mhla::train {

using io::named_tensors;
using io::NamedTensors;

struct Parameter {
  std::string name;
  at::Tensor tensor;
  bool decays = true;
  double rate = 1.0;  // times the learning rate
};

// Weight decay pulls matrices towards zero. Vectors (gains, biases, layer scales) stay free of it, and so do matrices
// of which `decays`, asked by name, says no. Only what requires a gradient is listed.
using Decays = std::function<bool(const std::string& name)>;
std::vector<Parameter> trained_parameters(const torch::nn::Module& model, const Decays& decays);

std::vector<at::Tensor> tensors_of(const std::vector<Parameter>& parameters);

std::size_t bytes_of(const NamedTensors& tensors);

}  // namespace mhla::train
