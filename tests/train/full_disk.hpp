// A disk that is full after some operations. The linker sends the calls of this program's own code (not those of shared
// libraries) that make and change files here first.
#pragma once

namespace mhla::testing {

class FullDisk {
 public:
  explicit FullDisk(int operations_before);  // everything after them fails for lack of space, until this is gone
  ~FullDisk();
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;
};

}  // namespace mhla::testing
