// Which files hold the tensors of a folder, and single tensors of them.
#include "models/base/weight_files.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstring>
#include <set>

#include "io/file.hpp"
#include "mhla/types.hpp"

namespace mhla::models {

io::Json read_json_file(const std::filesystem::path& path) {
  const std::vector<std::byte> bytes = io::read_file(path);
  return io::parse_json({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path.string());
}

std::vector<std::filesystem::path> weight_files(const std::filesystem::path& folder, const std::string& stem) {
  const auto single = folder / (stem + ".safetensors"), index = folder / (stem + ".safetensors.index.json");
  if (std::filesystem::exists(single) || !std::filesystem::exists(index)) return {single};
  const io::Json json = read_json_file(index);
  std::set<std::string> names;
  if (json.is_object() && json.contains("weight_map") && json["weight_map"].is_object())
    for (const auto& item : json["weight_map"].items())
      if (std::string name; io::read_exactly(item.value(), name)) names.insert(name);
  std::vector<std::filesystem::path> files;
  for (const std::string& name : names) {
    if (std::filesystem::path(name).filename() != name)
      throw Error(fmt::format("{}: \"{}\" is no name of a file in the folder", index.string(), name));
    files.push_back(folder / name);
  }
  if (files.empty()) throw Error(fmt::format("{}: \"weight_map\" names no file", index.string()));
  return files;
}

WeightFiles::WeightFiles(const std::filesystem::path& path, const std::string& stem) : source_(path.string()) {
  const bool folder = std::filesystem::is_directory(path);
  for (const auto& file : folder ? weight_files(path, stem) : std::vector{path})
    files_.push_back(io::SafeTensors::map(file));
}

const io::SafeTensor* WeightFiles::find(const std::vector<std::string>& names) const {
  for (const std::string& name : names)
    for (const io::SafeTensors& file : files_)
      if (file.contains(name)) return &file.at(name);
  return nullptr;
}

WeightFiles::Found WeightFiles::at(const std::vector<std::string>& names) const {
  for (const std::string& name : names)
    for (const io::SafeTensors& file : files_)
      if (file.contains(name)) return {&file, &file.at(name), name};
  throw Error(fmt::format("{}: tensor \"{}\" is missing", source_, names.front()));
}

void WeightFiles::check_finite(const at::Tensor& values, const Found& found) const {
  if (!values.isfinite().all().item<bool>())
    throw Error(fmt::format("{}: tensor \"{}\" holds values that are not finite", found.file->source(), found.name));
}

at::Tensor WeightFiles::tensor(const std::vector<std::string>& names, at::IntArrayRef sizes) const {
  const Found found = at(names);
  at::Tensor stored = io::to_torch(*found.file, found.name);
  found.file->let_go(found.name);
  if (stored.sizes() != sizes || !stored.is_floating_point())
    throw Error(fmt::format("{}: tensor \"{}\" is {} [{}]; the model has [{}] there", found.file->source(), found.name,
                            c10::toString(stored.scalar_type()), fmt::join(stored.sizes(), ", "),
                            fmt::join(sizes, ", ")));
  check_finite(stored, found);
  return stored;
}

at::Tensor WeightFiles::rows(const at::Tensor& indices, const std::vector<std::string>& names) const {
  const Found found = at(names);
  const auto type = io::torch_type(found.tensor->dtype, fmt::format("{}: tensor \"{}\"", source_, found.name));
  const std::int64_t count = found.tensor->shape.at(0);
  const std::size_t row_bytes = count == 0 ? 0 : found.tensor->data.size() / static_cast<std::size_t>(count);
  std::vector<std::int64_t> shape = found.tensor->shape;
  shape[0] = indices.numel();
  const at::Tensor result = at::empty(shape, type);
  auto* const bytes = static_cast<std::byte*>(result.mutable_data_ptr());
  for (std::int64_t i = 0; i < indices.numel(); ++i) {
    const std::int64_t row = indices.const_data_ptr<std::int64_t>()[i];
    TORCH_CHECK_INDEX(row >= 0 && row < count, "row ", row, " of ", count);
    std::memcpy(bytes + static_cast<std::size_t>(i) * row_bytes,
                found.tensor->data.data() + static_cast<std::size_t>(row) * row_bytes, row_bytes);
  }
  check_finite(result, found);
  return result;
}

}  // namespace mhla::models
