// Weights of modules as safetensors files, under the names timm and the authors use.
#pragma once

#include <torch/torch.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "io/json.hpp"

namespace mhla::models {

using NamedTensors = std::map<std::string, at::Tensor>;

NamedTensors named_tensors(const torch::nn::Module& module);  // its parameters and buffers

// strict: names and shapes must agree exactly. adapt: what fits is taken, other names for the same layer are
// understood, position embeddings and mixing matrices are resized, and the rest stays as it was initialised.
enum class LoadMode { strict, adapt };

struct LoadReport {
  std::int64_t loaded = 0;             // tensors of the model that came from the file, adapted ones included
  std::vector<std::string> adapted;    // "pos_embed: [1, 197, 192] resized to [1, 256, 192]"
  std::vector<std::string> missing;    // of the model, not in the file
  std::vector<std::string> extra;      // in the file, not of the model
  std::vector<std::string> misshapen;  // "head.weight: [1000, 192] in the file, [10, 192] in the model"

  std::string text() const;  // one line per finding
};

// Parameters and buffers of `module` from a file. A strict load that does not fit throws one Error with the whole list
// and leaves the module as it was.
LoadReport load_weights(torch::nn::Module& module, const std::filesystem::path& path, LoadMode mode);

// The same from tensors in memory; `source` begins error messages, and findings are added to `report`.
LoadReport load_tensors(torch::nn::Module& module, const NamedTensors& stored, const std::string& source, LoadMode mode,
                        LoadReport report = {});

// Parameters and buffers; floating-point tensors are stored as `dtype`. Members of `metadata` that are not strings are
// stored as JSON text.
void save_weights(const torch::nn::Module& module, const std::filesystem::path& path, const io::Json& metadata = {},
                  at::ScalarType dtype = at::kFloat);

}  // namespace mhla::models
