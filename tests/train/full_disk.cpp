// The calls the linker wraps (train_tests.cmake).
#include "train/full_disk.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <limits>

namespace {

constexpr int kNever = std::numeric_limits<int>::max();
int operations_left = kNever;

bool strikes() {
  if (operations_left == kNever) return false;
  if (operations_left-- > 0) return false;
  errno = ENOSPC;
  return true;
}

}  // namespace

namespace mhla::testing {

FullDisk::FullDisk(int operations_before) { operations_left = operations_before; }
FullDisk::~FullDisk() { operations_left = kNever; }

}  // namespace mhla::testing

// NOLINTBEGIN(bugprone-reserved-identifier): names the linker gives
extern "C" {
int __real_open(const char* path, int flags, ...);
ssize_t __real_write(int descriptor, const void* bytes, size_t size);
int __real_fsync(int descriptor);
int __real_close(int descriptor);
int __real_ftruncate(int descriptor, off_t size);
int __real_rename(const char* from, const char* to);

int __wrap_open(const char* path, int flags, ...) {
  if ((flags & O_CREAT) == 0) return __real_open(path, flags);
  va_list more;
  va_start(more, flags);
  const auto mode = va_arg(more, unsigned);
  va_end(more);
  return strikes() ? -1 : __real_open(path, flags, mode);
}

// A disk takes what still fits before it says that it is full.
ssize_t __wrap_write(int descriptor, const void* bytes, size_t size) {
  if (!strikes()) return __real_write(descriptor, bytes, size);
  return operations_left == -1 && size > 1 ? __real_write(descriptor, bytes, size / 2) : -1;
}

int __wrap_fsync(int descriptor) { return strikes() ? -1 : __real_fsync(descriptor); }

int __wrap_close(int descriptor) {
  const int closed = __real_close(descriptor);
  return strikes() ? -1 : closed;
}

int __wrap_ftruncate(int descriptor, off_t size) { return strikes() ? -1 : __real_ftruncate(descriptor, size); }

int __wrap_rename(const char* from, const char* to) { return strikes() ? -1 : __real_rename(from, to); }
}
// NOLINTEND(bugprone-reserved-identifier)
