// Writing with fsync of the file and of its folder.
#include "train/durable_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "mhla/types.hpp"

namespace mhla::train {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kUnfinished = ".unfinished";

std::string reason_of(int error) { return std::generic_category().message(error); }

// Returns errno of the first call that failed, 0 where all went well.
int write_and_flush(int file, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  return ::fsync(file) == 0 ? 0 : errno;
}

void flush_folder(const fs::path& folder) {
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return;
  ::fsync(descriptor);
  ::close(descriptor);
}

}  // namespace

void write_durably(const fs::path& path, std::span<const std::byte> bytes) {
  std::error_code failure;
  const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  fs::create_directories(folder, failure);
  if (failure) throw Error(fmt::format("{}: the folder cannot be made: {}", folder.string(), failure.message()));
  const fs::path beside = path.string() + std::string(kUnfinished);
  const int file = ::open(beside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file < 0) throw Error(fmt::format("{}: cannot be written: {}", path.string(), reason_of(errno)));
  int error = write_and_flush(file, bytes);
  if (::close(file) != 0 && error == 0) error = errno;
  if (error == 0 && ::rename(beside.c_str(), path.c_str()) != 0) error = errno;
  if (error != 0) {
    fs::remove(beside, failure);
    throw Error(fmt::format("{}: {} bytes cannot be written: {}", path.string(), bytes.size(), reason_of(error)));
  }
  flush_folder(folder);
}

void remove_unfinished(const fs::path& folder) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored))
    if (entry.path().string().ends_with(kUnfinished)) fs::remove(entry.path(), ignored);
}

}  // namespace mhla::train
