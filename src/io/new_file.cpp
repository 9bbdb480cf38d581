// Writing of files. A regular file is replaced by renaming; what is none (a device, a pipe) is written to.
#include "io/new_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <iostream>
#include <optional>
#include <system_error>

#include "io/file.hpp"
#include "mhla/types.hpp"

namespace mhla::io {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kUnfinished = ".unfinished";
constexpr int kMostLinks = 40;  // that Linux follows

bool same_file(const struct stat& a, const struct stat& b) { return a.st_dev == b.st_dev && a.st_ino == b.st_ino; }

// The standard stream that this file is: /dev/stdout, or the file that the shell redirected the stream to.
std::optional<int> standard_stream(const struct stat& file) {
  for (const int stream : std::array{STDOUT_FILENO, STDERR_FILENO})
    if (struct stat found{}; ::fstat(stream, &found) == 0 && same_file(file, found)) return stream;
  return std::nullopt;
}

// Where the links of `path` lead, also if nothing is there yet.
fs::path behind_links(const fs::path& path) {
  fs::path target = path;
  std::error_code failure;
  for (int links = 0; fs::is_symlink(fs::symlink_status(target, failure)); ++links) {
    if (links == kMostLinks)
      throw Error(fmt::format("{}: cannot be written: {}", path.string(), std::generic_category().message(ELOOP)));
    target = target.parent_path() / fs::read_symlink(target, failure);
  }
  return target;
}

fs::path folder_of(const fs::path& file) { return file.has_parent_path() ? file.parent_path() : fs::path("."); }

void make_folder_of(const fs::path& file) {
  const fs::path folder = folder_of(file);
  std::error_code failure;
  fs::create_directories(folder, failure);
  if (failure) throw Error(fmt::format("{}: the folder cannot be made: {}", folder.string(), failure.message()));
}

// "report.html.1234.unfinished"
bool is_unfinished(const fs::path& file) {
  const std::string process = file.stem().extension().string();
  return file.extension() == kUnfinished && process.size() > 1 &&
         std::all_of(process.begin() + 1, process.end(), [](char letter) { return letter >= '0' && letter <= '9'; });
}

}  // namespace

NewFile::NewFile(const fs::path& path) : name_(path.string()) {
  struct stat there{};
  const bool exists = ::stat(path.c_str(), &there) == 0;
  if (exists)
    if (const auto stream = standard_stream(there)) {
      std::cout.flush();
      file_.emplace(*stream, name_);
      return;
    }
  if (exists && !S_ISREG(there.st_mode)) {
    file_.emplace(path, O_WRONLY);
    return;
  }
  place_ = behind_links(path);
  make_folder_of(place_);
  const fs::path beside = fmt::format("{}.{}{}", place_.string(), ::getpid(), kUnfinished);
  ::unlink(beside.c_str());  // of a killed process with the same number
  file_.emplace(beside, O_WRONLY | O_CREAT | O_EXCL, name_);
  beside_ = beside;
  if (exists) ::fchmod(file_->descriptor(), there.st_mode & 0777U);
}

NewFile::~NewFile() {
  if (!written_in_place()) ::unlink(beside_.c_str());
}

void NewFile::finish() {
  file_->close();
  if (written_in_place()) return;
  if (::rename(beside_.c_str(), place_.c_str()) != 0)
    throw Error(fmt::format("{}: cannot be replaced: {}", name_, std::generic_category().message(errno)));
  beside_.clear();
}

void NewFile::finish_durably() {
  if (written_in_place()) return finish();
  file_->flush_to_disk();
  finish();
  OutputFile(folder_of(place_), O_RDONLY | O_DIRECTORY, name_).flush_to_disk();
}

void write_file(const fs::path& path, std::span<const std::byte> bytes) {
  NewFile file(path);
  file.write(bytes);
  file.finish();
}

void write_file(const fs::path& path, std::string_view text) { write_file(path, std::as_bytes(std::span(text))); }

void write_durably(const fs::path& path, std::span<const std::byte> bytes) {
  NewFile file(path);
  file.write(bytes);
  file.finish_durably();
}

void remove_unfinished(const fs::path& folder) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored))
    if (is_unfinished(entry.path())) fs::remove(entry.path(), ignored);
}

}  // namespace mhla::io
