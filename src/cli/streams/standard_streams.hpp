// The standard streams as the program uses them.
#pragma once

#include <array>
#include <memory>
#include <streambuf>

namespace mhla::cli {

// Before anything else. Streams that are closed become /dev/null: otherwise the next file to be opened would take their
// numbers, and what is printed would land in it. A file that grows beyond its limit is an error, not the end.
void prepare_descriptors();

// For as long as it lives, what is printed to std::cout and std::cerr shows control characters and bytes that are not
// UTF-8 escaped, whatever names of files, classes and tensors hold; and what could not be written is not forgotten.
class StandardStreams {
 public:
  StandardStreams();
  ~StandardStreams();
  StandardStreams(const StandardStreams&) = delete;
  StandardStreams& operator=(const StandardStreams&) = delete;

  // The exit code of a program that would have ended with `code`: a failure where its output could not be written.
  int finish(int code);

 private:
  class Buffer;
  std::unique_ptr<Buffer> out_, error_;
  std::array<std::streambuf*, 2> before_;
};

}  // namespace mhla::cli
