// Buffers of the standard streams.
#include "cli/streams/standard_streams.hpp"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <mutex>
#include <string>
#include <string_view>

#include "io/output_file.hpp"
#include "io/printable.hpp"
#include "mhla/types.hpp"

namespace mhla::cli {

void prepare_descriptors() {
  for (const int stream : std::array{STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(stream, F_GETFD) < 0 && ::open("/dev/null", O_RDWR) != stream)  // the lowest number that is free
      std::_Exit(1);
  ::signal(SIGXFSZ, SIG_IGN);
}

// Holds text back until it is flushed, so that no letter is cut; on a terminal until the end of a line. Any thread may
// print: torch warns where it runs.
class StandardStreams::Buffer : public std::streambuf {
 public:
  Buffer(int descriptor, const char* name) : file_(descriptor, name), terminal_(::isatty(descriptor) == 1) {}

  const std::string& failure() const { return failure_; }  // empty: none

  void close() {
    guarded([&] { file_.close(); });
  }

 protected:
  int_type overflow(int_type letter) override {
    const char text = traits_type::to_char_type(letter);
    const bool good = traits_type::eq_int_type(letter, traits_type::eof()) || xsputn(&text, 1) == 1;
    return good ? traits_type::not_eof(letter) : traits_type::eof();
  }

  std::streamsize xsputn(const char* text, std::streamsize size) override {
    const std::scoped_lock lock(mutex_);
    held_.append(text, static_cast<std::size_t>(size));
    const bool full = held_.size() > kMostHeld || (terminal_ && held_.find('\n') != std::string::npos);
    return !full || write(held_.rfind('\n') + 1) ? size : 0;
  }

  int sync() override {
    const std::scoped_lock lock(mutex_);
    return write(held_.size()) ? 0 : -1;
  }

 private:
  static constexpr std::size_t kMostHeld = 1 << 16;

  bool write(std::size_t count) {
    const std::string text = io::printable(std::string_view(held_).substr(0, count), "\n\t");
    held_.erase(0, count);
    return guarded([&] { file_.write(text); });
  }

  template <typename Action>
  bool guarded(Action&& action) {
    try {
      action();
      return true;
    } catch (const Error& error) {
      if (failure_.empty()) failure_ = error.what();
      return false;
    }
  }

  io::OutputFile file_;
  bool terminal_;
  std::mutex mutex_;
  std::string held_, failure_;
};

StandardStreams::StandardStreams()
    : out_(std::make_unique<Buffer>(STDOUT_FILENO, "standard output")),
      error_(std::make_unique<Buffer>(STDERR_FILENO, "standard error")),
      before_{std::cout.rdbuf(out_.get()), std::cerr.rdbuf(error_.get())} {}

StandardStreams::~StandardStreams() {
  std::cout.flush();
  std::cout.rdbuf(before_[0]);
  std::cerr.rdbuf(before_[1]);
}

int StandardStreams::finish(int code) {
  std::cout.flush();
  out_->close();
  if (out_->failure().empty()) return code;
  std::cerr << "mhla: " << out_->failure() << '\n';
  return code == 0 ? 1 : code;
}

}  // namespace mhla::cli
