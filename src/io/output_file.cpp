// Descriptors, checked call by call.
#include "io/output_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <iostream>
#include <system_error>
#include <utility>

#include "mhla/types.hpp"

namespace mhla::io {
namespace {

Error output_error(const std::string& name, const std::string& what, int error) {
  return Error(fmt::format("{}: {}: {}", name, what, std::generic_category().message(error)));
}

int checked_descriptor(int descriptor, const std::string& name) {
  if (descriptor < 0) throw output_error(name, "cannot be written", errno);
  return descriptor;
}

// A terminal or a pipe shared with another program may be set not to wait.
void wait_until_writable(int descriptor) {
  pollfd waiting{descriptor, POLLOUT, 0};
  ::poll(&waiting, 1, -1);
}

}  // namespace

OutputFile::OutputFile(const std::filesystem::path& path, int flags, std::string name)
    : name_(std::move(name)), descriptor_(checked_descriptor(::open(path.c_str(), flags | O_CLOEXEC, 0666), name_)) {}

OutputFile::OutputFile(int open_descriptor, std::string name)
    : name_(std::move(name)),
      descriptor_(checked_descriptor(::fcntl(open_descriptor, F_DUPFD_CLOEXEC, STDERR_FILENO + 1), name_)) {}

OutputFile::~OutputFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void OutputFile::write(std::span<const std::byte> bytes) {
  const std::size_t size = bytes.size();
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
    if (written >= 0)
      bytes = bytes.subspan(static_cast<std::size_t>(written));
    else if (errno == EAGAIN || errno == EWOULDBLOCK)
      wait_until_writable(descriptor_);
    else if (errno != EINTR)
      throw output_error(name_, fmt::format("{} bytes cannot be written", size), errno);
  }
}

void OutputFile::flush_to_disk() {
  if (::fsync(descriptor_) != 0 && errno != EINVAL && errno != EROFS)
    throw output_error(name_, "cannot be flushed to the disk", errno);
}

void OutputFile::close() {
  if (::close(std::exchange(descriptor_, -1)) != 0) throw output_error(name_, "cannot be written", errno);
}

void write_standard_output(std::string_view text) {
  std::cout.flush();
  OutputFile output(STDOUT_FILENO, "standard output");
  output.write(text);
  output.close();
}

}  // namespace mhla::io
