// The lock is on the unfinished folder and goes with it when it gets its name.
#include "io/new_folder.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>
#include <system_error>

#include "mhla/types.hpp"

namespace mhla::io {
namespace fs = std::filesystem;
namespace {

bool take_lock(int descriptor) {
  int taken = -1;
  while ((taken = ::flock(descriptor, LOCK_EX | LOCK_NB)) != 0 && errno == EINTR) {
  }
  return taken == 0 || errno != EWOULDBLOCK;
}

bool is_still_there(int descriptor, const fs::path& path) {
  struct stat opened{}, found{};
  return ::fstat(descriptor, &opened) == 0 && ::lstat(path.c_str(), &found) == 0 && opened.st_dev == found.st_dev &&
         opened.st_ino == found.st_ino;
}

// The place for the files of a folder that is not there yet.
fs::path made_beside(const fs::path& path) {
  std::error_code failure;
  if (fs::exists(fs::symlink_status(path, failure))) throw Error(fmt::format("{}: exists already", path.string()));
  const fs::path unfinished = path.parent_path() / fmt::format(".{}.unfinished", path.filename().string());
  fs::create_directories(unfinished, failure);
  if (failure) throw Error(fmt::format("{}: the folder cannot be made: {}", path.string(), failure.message()));
  return unfinished;
}

}  // namespace

NewFolder::NewFolder(const fs::path& path)
    : path_(path), unfinished_(made_beside(path)), lock_(unfinished_, O_RDONLY | O_DIRECTORY) {
  if (!take_lock(lock_.descriptor()) || !is_still_there(lock_.descriptor(), unfinished_))
    throw Error(
        fmt::format("{}: another process is making this folder; wait for it, or choose another", path.string()));
  for (const auto& left : fs::directory_iterator(unfinished_)) fs::remove_all(left.path());
}

NewFolder::~NewFolder() {
  std::error_code ignored;
  if (!finished_) fs::remove_all(unfinished_, ignored);
}

void NewFolder::finish() {
  std::error_code failure;
  fs::rename(unfinished_, path_, failure);
  if (failure) throw Error(fmt::format("{}: the folder cannot be made: {}", path_.string(), failure.message()));
  finished_ = true;
}

}  // namespace mhla::io
