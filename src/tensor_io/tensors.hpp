// Between files and torch tensors.
#pragma once

#include <torch/torch.h>

#include <filesystem>
#include <map>
#include <string>

#include "io/safetensors.hpp"

namespace mhla::io {

using NamedTensors = std::map<std::string, torch::Tensor>;

// Parameters and buffers by name, without their gradients: what a file must hold of a module.
NamedTensors named_tensors(const torch::nn::Module& module);

// Of a type as safetensors spells it; `where` begins the Error where torch does not have it.
torch::ScalarType torch_type(const std::string& dtype, const std::string& where);

// A copy of the named tensor; throws an Error where it is missing or of a type torch does not have.
torch::Tensor to_torch(const SafeTensors& file, const std::string& name);

// The tensor as an entry of a file; `plain` is contiguous, on the CPU, and outlives the entry. `name` is for errors.
SafeTensor safe_tensor(const torch::Tensor& plain, const std::string& name);

void save_tensors(const std::filesystem::path& path, const NamedTensors& tensors,
                  const std::map<std::string, std::string>& metadata = {});

}  // namespace mhla::io
