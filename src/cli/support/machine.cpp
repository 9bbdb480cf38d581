// Cores and threads.
#include "cli/support/machine.hpp"

#include <fmt/format.h>
#include <sched.h>
#include <torch/torch.h>

#include "cli/support/checks.hpp"
#include "mhla/attention.hpp"
#include "mhla/parallel.hpp"

namespace mhla::cli {

int logical_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  return CPU_COUNT(&set);
}

int threads_in_use() { return torch::get_num_threads(); }

CLI::Option* add_threads_option(CLI::App& command, int& threads) {
  return command.add_option("--threads", threads, "Threads of torch and the operator; 0 is torch's own choice")
      ->check(within(0, 1024))
      ->type_name("N")
      ->capture_default_str();
}

void use_threads(int threads) {
  if (threads == 0) return;
  torch::set_num_threads(threads);
  set_num_threads(threads);
}

std::string machine_line() {
  const int threads = threads_in_use();
  return fmt::format("{}, {} thread{}, {}", device_description(Device::cpu, 0), threads, threads == 1 ? "" : "s",
                     cpu_isa());
}

io::Json machine_json() {
  return {{"cpu", device_description(Device::cpu, 0)},
          {"cores", logical_cores()},
          {"threads", threads_in_use()},
          {"isa", std::string(cpu_isa())}};
}

}  // namespace mhla::cli
