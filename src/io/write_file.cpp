// Writing of whole files. A regular file is replaced by renaming; what is none (a device, a pipe) is written to.
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
#include "io/output_file.hpp"
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

fs::path existing_folder_of(const fs::path& file) {
  const fs::path folder = file.has_parent_path() ? file.parent_path() : fs::path(".");
  std::error_code failure;
  fs::create_directories(folder, failure);
  if (failure) throw Error(fmt::format("{}: the folder cannot be made: {}", folder.string(), failure.message()));
  return folder;
}

// "report.html.1234.unfinished"
bool is_unfinished(const fs::path& file) {
  const std::string process = file.stem().extension().string();
  return file.extension() == kUnfinished && process.size() > 1 &&
         std::all_of(process.begin() + 1, process.end(), [](char letter) { return letter >= '0' && letter <= '9'; });
}

// A new file beside its place, removed again unless it was renamed.
class FileBeside {
 public:
  FileBeside(const fs::path& place, const std::string& name)
      : place_(place), name_(name), path_(fmt::format("{}.{}{}", place.string(), ::getpid(), kUnfinished)),
        file_(made_anew(path_), O_WRONLY | O_CREAT | O_EXCL, name) {}
  ~FileBeside() {
    if (!renamed_) ::unlink(path_.c_str());
  }
  FileBeside(const FileBeside&) = delete;
  FileBeside& operator=(const FileBeside&) = delete;

  OutputFile& file() { return file_; }

  void rename_to_place() {
    file_.close();
    if (::rename(path_.c_str(), place_.c_str()) != 0)
      throw Error(fmt::format("{}: cannot be replaced: {}", name_, std::generic_category().message(errno)));
    renamed_ = true;
  }

 private:
  static const fs::path& made_anew(const fs::path& path) {
    ::unlink(path.c_str());  // of a killed process with the same number
    return path;
  }

  fs::path place_;
  std::string name_;
  fs::path path_;
  OutputFile file_;
  bool renamed_ = false;
};

void write_whole(const fs::path& path, std::span<const std::byte> bytes, bool durably) {
  struct stat there{};
  const bool exists = ::stat(path.c_str(), &there) == 0;
  if (exists)
    if (const auto stream = standard_stream(there)) {
      std::cout.flush();
      OutputFile output(*stream, path.string());
      output.write(bytes);
      return output.close();
    }
  if (exists && !S_ISREG(there.st_mode)) {
    OutputFile output(path, O_WRONLY);
    output.write(bytes);
    return output.close();
  }
  const fs::path target = behind_links(path);
  const fs::path folder = existing_folder_of(target);
  FileBeside beside(target, path.string());
  if (exists) ::fchmod(beside.file().descriptor(), there.st_mode & 0777U);
  beside.file().write(bytes);
  if (durably) beside.file().flush_to_disk();
  beside.rename_to_place();
  if (durably) OutputFile(folder, O_RDONLY | O_DIRECTORY, path.string()).flush_to_disk();
}

}  // namespace

void write_file(const fs::path& path, std::span<const std::byte> bytes) { write_whole(path, bytes, false); }

void write_file(const fs::path& path, std::string_view text) { write_file(path, std::as_bytes(std::span(text))); }

void write_durably(const fs::path& path, std::span<const std::byte> bytes) { write_whole(path, bytes, true); }

void remove_unfinished(const fs::path& folder) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored))
    if (is_unfinished(entry.path())) fs::remove(entry.path(), ignored);
}

}  // namespace mhla::io
