// Taking a folder, by flock.
#include "train/run_lock.hpp"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <ctime>
#include <system_error>

#include "io/printable.hpp"
#include "mhla/types.hpp"

namespace mhla::train {
namespace fs = std::filesystem;
namespace {

fs::path lock_file(const fs::path& folder) {
  std::error_code failure;
  fs::create_directories(folder, failure);
  if (failure) throw Error(fmt::format("{}: the folder cannot be made: {}", folder.string(), failure.message()));
  return folder / "lock";
}

std::string this_process() {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  return fmt::format("process {} on {} (started {:%Y-%m-%d %H:%M:%S} UTC)", ::getpid(), host.data(),
                     fmt::gmtime(std::time(nullptr)));
}

std::string holder(int descriptor) {
  std::array<char, 512> text{};
  const ssize_t size = ::pread(descriptor, text.data(), text.size(), 0);
  return size > 0 ? io::printable({text.data(), static_cast<std::size_t>(size)}) : "another process";
}

}  // namespace

RunLock::RunLock(const fs::path& folder, const std::function<void(const std::string&)>& report)
    : file_(lock_file(folder), O_RDWR | O_CREAT) {
  int taken = -1;
  while ((taken = ::flock(file_.descriptor(), LOCK_EX | LOCK_NB)) != 0 && errno == EINTR) {
  }
  if (taken != 0 && errno == EWOULDBLOCK)
    throw Error(fmt::format("{}: {} trains in this folder; wait for it to end, or choose another folder (--out)",
                            folder.string(), holder(file_.descriptor())));
  if (taken != 0)
    report(fmt::format("note: {}: the folder cannot be locked ({}); no other training may use it", folder.string(),
                       std::generic_category().message(errno)));
  if (::ftruncate(file_.descriptor(), 0) != 0)
    throw Error(
        fmt::format("{}: cannot be written: {}", lock_file(folder).string(), std::generic_category().message(errno)));
  file_.write(this_process());
}

RunLock::~RunLock() {
  // Only to tidy up: who finds the file unlocked takes it, whatever it says.
  [[maybe_unused]] const int emptied = ::ftruncate(file_.descriptor(), 0);
}

}  // namespace mhla::train
