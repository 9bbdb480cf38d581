// A folder under another name until all of it is there.
#pragma once

#include <filesystem>

namespace mhla::data {

// Beside `split`, for finish() to give it that name; gone again where that does not happen.
class UnfinishedFolder {
 public:
  explicit UnfinishedFolder(const std::filesystem::path& split)
      : path(split.parent_path() / ("." + split.filename().string() + ".unfinished")), split_(split) {
    std::filesystem::remove_all(path);
  }
  ~UnfinishedFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  UnfinishedFolder(const UnfinishedFolder&) = delete;
  UnfinishedFolder& operator=(const UnfinishedFolder&) = delete;

  void finish() const { std::filesystem::rename(path, split_); }

  const std::filesystem::path path;

 private:
  const std::filesystem::path split_;
};

}  // namespace mhla::data
