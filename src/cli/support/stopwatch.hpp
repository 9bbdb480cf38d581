// Times work on one device: on the CPU by the clock, on a GPU by events on the current stream, without CUDA headers.
#pragma once

#include <torch/torch.h>

#include <functional>

namespace mhla::cli {

// On a GPU, a buffer larger than the second-level cache is written before every run. The run finds none of its data in
// the cache, and as many lines to be written back as it leaves behind itself.
class Stopwatch {
 public:
  explicit Stopwatch(torch::Device device);

  struct Lap {
    double seconds = 0.0;       // on the device
    double host_seconds = 0.0;  // until the call returned
  };
  // `head_start`: for how many seconds the device is kept busy before, so that it need not wait for work that takes the
  // host this long to enqueue. Nothing on the CPU.
  Lap time(const std::function<void()>& work, double head_start = 0.0) const;

  torch::Device device() const { return device_; }

 private:
  torch::Device device_;
  torch::Tensor other_data_;     // what fills the cache between runs; undefined on the CPU
  double sweep_seconds_ = 1e-5;  // to write it
};

}  // namespace mhla::cli
