// torch's order of preference.
#include "cli/bench/softmax_order.hpp"

#include <ATen/Context.h>

#include <utility>
#include <vector>

namespace mhla::cli::bench {

std::string_view name(SoftmaxChoice choice) {
  switch (choice) {
    case SoftmaxChoice::flash:
      return "flash";
    case SoftmaxChoice::cudnn:
      return "cudnn";
    case SoftmaxChoice::automatic:
      return "automatic";
  }
  return "";
}

void prefer_softmax(SoftmaxChoice choice) {
  if (choice == SoftmaxChoice::automatic) return;
  using at::SDPBackend;
  std::vector<SDPBackend> order = {SDPBackend::flash_attention, SDPBackend::cudnn_attention};
  if (choice == SoftmaxChoice::cudnn) std::swap(order[0], order[1]);
  for (const SDPBackend other : {SDPBackend::efficient_attention, SDPBackend::math, SDPBackend::overrideable})
    order.push_back(other);
  std::vector<std::int64_t> numbers;
  numbers.reserve(order.size());
  for (const SDPBackend backend : order) numbers.push_back(static_cast<std::int64_t>(backend));
  at::globalContext().setSDPPriorityOrder(numbers);
}

SoftmaxChoice fastest_softmax(const Stopwatch& stopwatch, const std::function<void()>& run) {
  if (stopwatch.device().is_cpu()) return SoftmaxChoice::automatic;
  SoftmaxChoice best = SoftmaxChoice::automatic;
  double least = 0.0;
  for (const SoftmaxChoice choice : {SoftmaxChoice::flash, SoftmaxChoice::cudnn}) try {
      prefer_softmax(choice);
      run();
      const double seconds = stopwatch.time(run).seconds;
      if (best == SoftmaxChoice::automatic || seconds < least) best = choice, least = seconds;
    } catch (const c10::OutOfMemoryError&) {
      throw;
    } catch (const c10::Error&) {  // this one has no kernel for it
      continue;
    }
  return best;
}

}  // namespace mhla::cli::bench
