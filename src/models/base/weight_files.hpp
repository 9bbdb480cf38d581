// Weights as public libraries store them: one safetensors file, or several with an index.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "io/json.hpp"
#include "io/safetensors.hpp"
#include "tensor_io/tensors.hpp"

namespace mhla::models {

// The files of a folder that hold its tensors: <stem>.safetensors, or those that <stem>.safetensors.index.json names.
std::vector<std::filesystem::path> weight_files(const std::filesystem::path& folder, const std::string& stem = "model");

io::Json read_json_file(const std::filesystem::path& path);

// Tensors of several mapped files, one at a time: only what is looked at comes into memory.
class WeightFiles {
 public:
  // A .safetensors file, or a folder as in weight_files.
  explicit WeightFiles(const std::filesystem::path& path, const std::string& stem = "model");

  const std::string& source() const { return source_; }
  const std::vector<io::SafeTensors>& files() const { return files_; }

  // The tensor by the first of these names that a file has; null where none has it.
  const io::SafeTensor* find(const std::vector<std::string>& names) const;

  // The tensor on the CPU, in its own type; its place in the file is let go again. Throws an Error where it is missing,
  // of another shape, or not finite.
  at::Tensor tensor(const std::vector<std::string>& names, at::IntArrayRef sizes) const;
  // Some of its rows, int64 [n] on the CPU, in its own type.
  at::Tensor rows(const at::Tensor& indices, const std::vector<std::string>& names) const;

 private:
  struct Found {
    const io::SafeTensors* file = nullptr;
    const io::SafeTensor* tensor = nullptr;
    std::string name;
  };
  Found at(const std::vector<std::string>& names) const;
  void check_finite(const at::Tensor& values, const Found& found) const;

  std::string source_;
  std::vector<io::SafeTensors> files_;
};

}  // namespace mhla::models
