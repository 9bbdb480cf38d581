// Reading and atomic writing of whole files, and base64.
#include "io/file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <system_error>

#include "mhla/types.hpp"

namespace mhla::io {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kUnfinished = ".unfinished";

std::string reason_of(int error) { return std::generic_category().message(error); }

// Returns errno of the first call that failed, 0 where all went well.
int write_all(int file, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  return 0;
}

void flush_folder(const fs::path& folder) {
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return;
  ::fsync(descriptor);
  ::close(descriptor);
}

void write_beside_and_rename(const fs::path& path, std::span<const std::byte> bytes, bool flush) {
  std::error_code failure;
  const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  fs::create_directories(folder, failure);
  if (failure) throw Error(fmt::format("{}: the folder cannot be made: {}", folder.string(), failure.message()));
  const fs::path beside = fmt::format("{}.{}{}", path.string(), ::getpid(), kUnfinished);
  const int file = ::open(beside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file < 0) throw Error(fmt::format("{}: cannot be written: {}", path.string(), reason_of(errno)));
  int error = write_all(file, bytes);
  if (flush && error == 0 && ::fsync(file) != 0) error = errno;
  if (::close(file) != 0 && error == 0) error = errno;
  if (error == 0 && ::rename(beside.c_str(), path.c_str()) != 0) error = errno;
  if (error != 0) {
    fs::remove(beside, failure);
    throw Error(fmt::format("{}: {} bytes cannot be written: {}", path.string(), bytes.size(), reason_of(error)));
  }
  if (flush) flush_folder(folder);
}

}  // namespace

std::size_t size_of_file(const fs::path& path) {
  std::error_code failure;
  const fs::file_status status = fs::status(path, failure);
  if (status.type() == fs::file_type::not_found) throw Error(fmt::format("{}: there is no such file", path.string()));
  if (failure) throw Error(fmt::format("{}: cannot be read: {}", path.string(), failure.message()));
  if (!fs::is_regular_file(status)) throw Error(fmt::format("{}: not a regular file", path.string()));
  const std::uintmax_t size = fs::file_size(path, failure);
  if (failure) throw Error(fmt::format("{}: cannot be read: {}", path.string(), failure.message()));
  return size;
}

std::vector<std::byte> read_file(const fs::path& path, std::size_t most) {
  const std::size_t size = size_of_file(path);
  if (size > most) throw Error(fmt::format("{}: a file of {} bytes; at most {} are read", path.string(), size, most));
  return read_beginning(path, size);
}

std::vector<std::byte> read_beginning(const fs::path& path, std::size_t count) {
  count = std::min(count, size_of_file(path));
  std::vector<std::byte> bytes;
  try {
    bytes.resize(count);
  } catch (const std::exception&) {
    throw Error(fmt::format("{}: {} bytes do not fit in memory", path.string(), count));
  }
  std::ifstream stream(path, std::ios::binary);
  stream.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(count));
  if (!stream || static_cast<std::size_t>(stream.gcount()) != count)
    throw Error(fmt::format("{}: cannot be read", path.string()));
  return bytes;
}

void write_file(const fs::path& path, std::span<const std::byte> bytes) { write_beside_and_rename(path, bytes, false); }

void write_file(const fs::path& path, std::string_view text) { write_file(path, std::as_bytes(std::span(text))); }

void write_durably(const fs::path& path, std::span<const std::byte> bytes) {
  write_beside_and_rename(path, bytes, true);
}

void remove_unfinished(const fs::path& folder) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored))
    if (entry.path().string().ends_with(kUnfinished)) fs::remove(entry.path(), ignored);
}

std::string base64(std::span<const std::byte> bytes) {
  static constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const std::size_t count = std::min<std::size_t>(3, bytes.size() - i);
    unsigned group = 0;
    for (std::size_t j = 0; j < 3; ++j) group = group << 8 | (j < count ? std::to_integer<unsigned>(bytes[i + j]) : 0U);
    for (std::size_t j = 0; j < 4; ++j) text += j <= count ? kDigits[group >> (18 - 6 * j) & 63U] : '=';
  }
  return text;
}

}  // namespace mhla::io
