// A folder of files that appears under its name when all of them are there.
#pragma once

#include <filesystem>

#include "io/output_file.hpp"

namespace mhla::io {

// Files go to `unfinished()`, a hidden folder beside it, which finish() renames. What a killed process left there is
// removed. A second process that makes the same folder is refused; file systems without locks cannot tell.
class NewFolder {
 public:
  // One that exists already is an error.
  explicit NewFolder(const std::filesystem::path& path);
  ~NewFolder();  // without finish(): what was written is gone
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;

  const std::filesystem::path& unfinished() const { return unfinished_; }
  void finish();

 private:
  std::filesystem::path path_, unfinished_;
  OutputFile lock_;  // the folder itself
  bool finished_ = false;
};

}  // namespace mhla::io
