// The memory of a decoding state as a list of tensors: what it means and whether it is right.
#pragma once

#include <array>
#include <string_view>
#include <vector>

#include "mhla/decode.hpp"
#include "torch/checks.hpp"

namespace mhla::dispatch::decode {

// The tensors of DecodeMemory in their order; those a state does not have are empty, [0].
enum Part { kS, kZ, kP, kPz, kDiagonal, kFoldedS, kFoldedZ, kK, kV, kTokens, kArrivals, kParts };

struct Settings {
  std::int64_t heads, max_tokens;
  std::string_view feature_map, normalizer, beyond;
  double scale, eps, feature_eps;
};

DecodeConfig config_of(const at::Tensor& mixing, at::TensorList memory, const Settings& settings);

void check_memory(const DecodeConfig& config, at::TensorList memory);
std::vector<at::Tensor> empty_memory(const DecodeConfig& config);  // zeros on the CPU
DecodeMemory pointers(at::TensorList memory);

// The matrix as DecodeArgs takes it.
at::Tensor accumulated(const at::Tensor& mixing, const DecodeConfig& config, const at::Tensor& like);

}  // namespace mhla::dispatch::decode
