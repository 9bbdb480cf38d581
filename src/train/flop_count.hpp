// Arithmetic of a training step, counted from the operators that really ran: matrix products, convolutions, attention.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace mhla::train {

// Counts on every thread from its making to its end; one at a time.
class FlopCounter {
 public:
  FlopCounter();
  ~FlopCounter();
  FlopCounter(const FlopCounter&) = delete;
  FlopCounter& operator=(const FlopCounter&) = delete;

  double flops() const;

 private:
  std::uint64_t callback_;
};

// Dense matrix products per second as the vendor states them, for GPUs known by name.
std::optional<double> peak_flops(const std::string& device_name, bool bf16);

}  // namespace mhla::train
