// Ctrl-C and SIGTERM: the first asks for an orderly end, the second stops at once.
#pragma once

namespace mhla::train {

class InterruptGuard {
 public:
  InterruptGuard();   // takes both signals over
  ~InterruptGuard();  // gives them back
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  static bool requested();
};

}  // namespace mhla::train
