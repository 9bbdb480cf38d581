// Weights of models as safetensors files.
#pragma once

#include <torch/torch.h>

#include <filesystem>
#include <string>
#include <vector>

#include "io/json.hpp"
#include "io/safetensors.hpp"
#include "mhla/types.hpp"
#include "models/base/model.hpp"

namespace mhla::models {

// strict: names and shapes must agree exactly. adapt: what fits is taken, other names for the same layer are
// understood (Model::weight_names, Model::convert), tensors of other sizes are resized where the model can
// (Model::fit_from), and the rest stays as it was initialised.
enum class LoadMode { strict, adapt };

struct LoadReport {
  std::int64_t loaded = 0;             // tensors of the model that came from the file, adapted ones included
  std::vector<std::string> adapted;    // "pos_embed: [1, 197, 192] resized to [1, 256, 192]"
  std::vector<std::string> missing;    // of the model, not in the file
  std::vector<std::string> extra;      // in the file, not of the model
  std::vector<std::string> misshapen;  // "head.weight: [1000, 192] in the file, [10, 192] in the model"

  std::string text() const;  // one line per finding
};

// Parameters and buffers of `model` from a file. A strict load that does not fit throws one Error with the whole list
// and leaves the model as it was, and so does any load of a tensor with NaN or infinity.
LoadReport load_weights(Model& model, const io::SafeTensors& file, LoadMode mode);
LoadReport load_weights(Model& model, const std::filesystem::path& path, LoadMode mode);

// A strict load of tensors in memory; `source` begins error messages.
LoadReport load_tensors(torch::nn::Module& module, const NamedTensors& stored, const std::string& source);

// Parameters and buffers, and the model's config in the metadata; floating-point tensors are stored as `dtype`. Members
// of `metadata` that are not strings are stored as JSON text.
void save_model(const Model& model, const std::filesystem::path& path, const io::Json& metadata = io::Json::object(),
                at::ScalarType dtype = at::kFloat);
// The same without a config.
void save_weights(const torch::nn::Module& module, const std::filesystem::path& path, const io::Json& metadata = {},
                  at::ScalarType dtype = at::kFloat);

inline constexpr const char* kConfig = "mhla.config";  // the metadata that holds a model's config

// The names a tensor may have in a file: its own, then those by which the table knows its layer.
std::vector<std::string> names_of(const std::string& name, std::span<const SameLayer> same);

// Elements of all its tensors.
double elements_of(const io::SafeTensors& file);

// Metadata of a file as JSON, null where it is missing.
io::Json stored_json(const io::SafeTensors& file, const char* key);

// `error` with file and metadata in front of it.
Error config_error(const io::SafeTensors& file, const Error& error);

}  // namespace mhla::models
