// A file that is written piece by piece and appears under its name when it is complete.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "io/output_file.hpp"

namespace mhla::io {

// Writes beside the file, then renames: a reader sees the old file or the complete new one. Creates missing folders and
// follows links. On failure (a full disk, a missing right) the error says why, what was at `path` before is still
// there, and nothing is left beside it. What is not a regular file, such as /dev/null or a named pipe, is written to as
// it is.
class NewFile {
 public:
  explicit NewFile(const std::filesystem::path& path);
  ~NewFile();  // without finish(): what was written is gone
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  const std::string& name() const { return name_; }
  void write(std::span<const std::byte> bytes) { file_->write(bytes); }
  void write(std::string_view text) { file_->write(text); }

  void finish();
  void finish_durably();  // flushed to the disk before and after the renaming: it survives a crash of the machine

 private:
  bool written_in_place() const { return beside_.empty(); }

  std::string name_;
  std::filesystem::path place_, beside_;
  std::optional<OutputFile> file_;
};

}  // namespace mhla::io
