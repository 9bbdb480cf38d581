// The mixing matrices among a model's parameters.
#pragma once

#include <torch/torch.h>

#include <string>
#include <vector>

namespace mhla::models {

bool is_mixing(const std::string& parameter_name);  // by its name: ..._attn.conv.weight, ...mixing_matrix

// The least an entry may be after a step, by the option `mixing`.
double least_mixing(const std::string& mixing);

// Of parameters [M, M, 1, ..], views [M, M] of those that are defined and learned.
std::vector<at::Tensor> learned_mixing(const std::vector<at::Tensor>& parameters);

}  // namespace mhla::models
