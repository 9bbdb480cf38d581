// The umT5 encoder from files: whole, or with one layer in memory at a time.
#pragma once

#include <filesystem>
#include <memory>

#include "models/base/text_encoder.hpp"
#include "models/base/weight_files.hpp"
#include "models/umt5/umt5.hpp"

namespace mhla::models {

struct TextEncoderPlace {
  at::Device device = at::kCPU;
  at::ScalarType type = at::kBFloat16;  // of weights and states
  bool offload = false;                 // one layer in memory at a time; the same bits
};

// `path`: a .safetensors file under Wan's or transformers' names, or a folder with model.safetensors or its index.
// Sizes are those of the tensors. Files are mapped: of 5.7 billion weights, offloading holds one layer of 24, and of
// the embedding the rows that are asked for.
std::unique_ptr<TextEncoder> load_umt5(const std::filesystem::path& path, const TextEncoderPlace& place = {});

Umt5Options umt5_options_of(const WeightFiles& files);

}  // namespace mhla::models
