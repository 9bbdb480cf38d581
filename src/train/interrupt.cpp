// Signal handling: only async-signal-safe calls inside the handler.
#include "train/interrupt.hpp"

#include <signal.h>
#include <unistd.h>

#include <string_view>

namespace mhla::train {
namespace {

volatile sig_atomic_t interrupt_requested = 0;
const char* volatile message = "";

void on_interrupt(int signal) {
  interrupt_requested = 1;
  ::signal(signal, SIG_DFL);
  const std::string_view said = message;
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, said.data(), said.size());
}

}  // namespace

InterruptGuard::InterruptGuard(const char* said) {
  message = said;
  interrupt_requested = 0;
  struct sigaction action{};
  action.sa_handler = on_interrupt;
  action.sa_flags = SA_RESTART;
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
}

InterruptGuard::~InterruptGuard() {
  ::signal(SIGINT, SIG_DFL);
  ::signal(SIGTERM, SIG_DFL);
}

bool InterruptGuard::requested() { return interrupt_requested != 0; }

}  // namespace mhla::train
