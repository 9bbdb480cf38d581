// Ctrl-C and SIGTERM: the first asks for an orderly end, the second stops at once.
#pragma once

namespace mhla::train {

class InterruptGuard {
 public:
  // Takes both signals over; the first writes `said` to the standard error stream.
  explicit InterruptGuard(const char* said = "\nfinishing this step and saving; once more stops at once\n");
  ~InterruptGuard();  // gives them back
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  static bool requested();
};

}  // namespace mhla::train
