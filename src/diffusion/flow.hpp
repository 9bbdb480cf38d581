// Rectified flow: x_t = (1 - sigma) x_0 + sigma noise, and the network predicts the velocity, noise - x_0.
#pragma once
#include <torch/torch.h>

#include <cstdint>

namespace mhla::diffusion {

class Flow {
 public:
  // sigma of step n is n / steps, moved by the shift s to s sigma / (1 + (s - 1) sigma).
  explicit Flow(std::int64_t steps = 1000, double shift = 1.0, torch::Device device = torch::kCPU);

  [[nodiscard]] std::int64_t steps() const { return sigma_.size(0); }
  // What the network is told: 1,000 sigma.
  [[nodiscard]] double time(std::int64_t step) const;

  // Steps to train on, int64, from normal numbers: their logistic function, so that those in the middle are most often.
  [[nodiscard]] torch::Tensor steps_of(const torch::Tensor& normal) const;

  // Steps are int64 [B]; x_0 and noise are [B, C, ...].
  [[nodiscard]] torch::Tensor times(const torch::Tensor& step) const;  // float32 [B]
  [[nodiscard]] torch::Tensor noised(const torch::Tensor& x_0, const torch::Tensor& step,
                                     const torch::Tensor& noise) const;

 private:
  torch::Tensor sigma_;  // float64
};

}  // namespace mhla::diffusion
