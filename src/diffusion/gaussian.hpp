// Diffusion with noise prediction: the forward process, one reverse step, and the training loss.
//
// A network with twice the channels of x also predicts the variance of the reverse step, between its smallest and
// largest possible value (learned range); with as many channels as x, the variance is the smallest.
#pragma once
#include <torch/torch.h>

#include "diffusion/schedule.hpp"

namespace mhla::diffusion {

class Gaussian {
 public:
  explicit Gaussian(Schedule schedule, torch::Device device = torch::kCPU);  // where the steps are

  [[nodiscard]] const Schedule& schedule() const { return schedule_; }

  // Steps t are int64 [B], each 0 .. steps - 1; x, x_0 and noise are [B, C, ...].
  [[nodiscard]] torch::Tensor noised(const torch::Tensor& x_0, const torch::Tensor& t,
                                     const torch::Tensor& noise) const;

  struct Reverse {  // p(x_{t-1} | x_t), a normal distribution
    torch::Tensor mean, log_variance, x_0;
  };
  [[nodiscard]] Reverse reverse(const torch::Tensor& network_output, const torch::Tensor& x_t,
                                const torch::Tensor& t) const;

  struct Loss {  // each [B]
    torch::Tensor total, mse, bound;
  };
  // mse of the noise, plus the variational bound in bits per dimension where the network predicts a variance. The bound
  // trains the variance alone: its gradient does not reach the predicted noise.
  [[nodiscard]] Loss loss(const torch::Tensor& network_output, const torch::Tensor& x_0, const torch::Tensor& x_t,
                          const torch::Tensor& t, const torch::Tensor& noise) const;

  // One step of ancestral sampling (DDPM).
  [[nodiscard]] torch::Tensor ancestral_step(const torch::Tensor& network_output, const torch::Tensor& x_t,
                                             const torch::Tensor& t, const torch::Tensor& noise) const;

 private:
  [[nodiscard]] torch::Tensor bound(const Reverse& reverse, const torch::Tensor& x_0, const torch::Tensor& x_t,
                                    const torch::Tensor& t) const;
  [[nodiscard]] torch::Tensor posterior_mean(const torch::Tensor& x_0, const torch::Tensor& x_t,
                                             const torch::Tensor& t) const;

  Schedule schedule_;
  // Tables over t in float64.
  torch::Tensor signal_, noise_;                          // x_t = signal x_0 + noise eps
  torch::Tensor from_x_0_, from_x_t_;                     // the mean of q(x_{t-1} | x_t, x_0)
  torch::Tensor log_variance_least_, log_variance_most_;  // log of the posterior's variance, and of beta
};

}  // namespace mhla::diffusion
