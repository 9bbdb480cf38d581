// Search for pretrained models.
#include "tasks/pretrained.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "io/safetensors.hpp"
#include "models/base/weights.hpp"
#include "models/registry.hpp"
#include "tasks/usage_error.hpp"

namespace mhla::tasks {
namespace {

constexpr int kLevels = 4;  // from build/release/bin up to the repository

// A file that cannot be read is not one of them: whoever names it learns why.
bool is_for(const std::filesystem::path& path, std::string_view task) {
  try {
    return models::task_of(models::stored_json(io::SafeTensors::load(path), models::kConfig)) == task;
  } catch (const Error&) {
    return false;
  }
}

std::vector<std::string> weights_in(const std::filesystem::path& folder, std::string_view task) {
  std::vector<std::string> files;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored))
    if (entry.path().extension() == ".safetensors" && is_for(entry.path(), task))
      files.push_back(entry.path().string());
  std::ranges::sort(files);
  return files;
}

}  // namespace

std::filesystem::path pretrained_path(const std::string& given, std::string_view task) {
  if (!given.empty()) return given;
  std::error_code ignored;
  std::filesystem::path place = std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path();
  std::vector<std::filesystem::path> folders = {"pretrained"};
  for (int level = 0; level < kLevels; ++level, place = place.parent_path()) folders.push_back(place / "pretrained");
  for (const auto& folder : folders) {
    const std::vector<std::string> files = weights_in(folder, task);
    if (files.size() == 1) return files.front();
    if (!files.empty())
      throw UsageError(fmt::format("--model is needed, since there are several: {}", fmt::join(files, ", ")));
  }
  throw UsageError(fmt::format(
      "--model is needed, since there is no folder pretrained with a .safetensors file of `mhla train {}`", task));
}

}  // namespace mhla::tasks
