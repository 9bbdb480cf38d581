// Diffusion with noise prediction.
#include "diffusion/gaussian.hpp"

#include <fmt/format.h>

#include <cmath>
#include <numbers>
#include <stdexcept>

namespace mhla::diffusion {
namespace {

// The shape of one number per sample, to be multiplied with x: [B, 1, ...].
std::vector<std::int64_t> per_sample(const torch::Tensor& t, const torch::Tensor& x) {
  std::vector<std::int64_t> shape(static_cast<std::size_t>(x.dim()), 1);
  shape[0] = t.size(0);
  return shape;
}

// The entries of a table for steps t.
torch::Tensor at(const torch::Tensor& table, const torch::Tensor& t, const torch::Tensor& x) {
  return table.to(t.device()).index_select(0, t).to(x.scalar_type()).view(per_sample(t, x));
}

torch::Tensor mean_per_sample(const torch::Tensor& x) { return x.flatten(1).mean(1); }

// KL divergence of two normal distributions, in nats.
torch::Tensor divergence(const torch::Tensor& mean_1, const torch::Tensor& log_variance_1, const torch::Tensor& mean_2,
                         const torch::Tensor& log_variance_2) {
  return 0.5 * (log_variance_2 - log_variance_1 - 1.0 + torch::exp(log_variance_1 - log_variance_2) +
                (mean_1 - mean_2).square() * torch::exp(-log_variance_2));
}

torch::Tensor normal_cdf(const torch::Tensor& x) {
  return 0.5 * (1.0 + torch::tanh(std::sqrt(2.0 / std::numbers::pi) * (x + 0.044715 * x.pow(3))));
}

torch::Tensor log_of_probability(const torch::Tensor& p) { return p.clamp_min(1e-12).log(); }

// -log p(x) in nats of a normal distribution over 256 values in [-1, 1]; the outermost bins are open.
torch::Tensor discretized_nll(const torch::Tensor& x, const torch::Tensor& mean, const torch::Tensor& log_variance) {
  constexpr double kHalfBin = 1.0 / 255.0;
  const torch::Tensor inverse_deviation = torch::exp(-0.5 * log_variance), centred = x - mean;
  const torch::Tensor up_to = normal_cdf(inverse_deviation * (centred + kHalfBin));
  const torch::Tensor below = normal_cdf(inverse_deviation * (centred - kHalfBin));
  return -torch::where(x < -0.999, log_of_probability(up_to),
                       torch::where(x > 0.999, log_of_probability(1.0 - below), log_of_probability(up_to - below)));
}

}  // namespace

Gaussian::Gaussian(Schedule schedule, torch::Device device) : schedule_(std::move(schedule)) {
  if (schedule_.steps() < 2)
    throw std::invalid_argument(fmt::format("steps is {}; it must be at least 2", schedule_.steps()));
  const torch::Tensor betas = torch::tensor(schedule_.betas, torch::kFloat64);
  const torch::Tensor alpha_bar = torch::tensor(schedule_.alpha_bar, torch::kFloat64);
  const torch::Tensor before = torch::cat({torch::ones(1, torch::kFloat64), alpha_bar.slice(0, 0, -1)});
  signal_ = alpha_bar.sqrt();
  noise_ = (1.0 - alpha_bar).sqrt();
  from_x_0_ = betas * before.sqrt() / (1.0 - alpha_bar);
  from_x_t_ = (1.0 - before) * (1.0 - betas).sqrt() / (1.0 - alpha_bar);
  // The posterior at t = 0 is a point; its variance is taken from t = 1.
  const torch::Tensor variance = betas * (1.0 - before) / (1.0 - alpha_bar);
  log_variance_least_ = torch::cat({variance.slice(0, 1, 2), variance.slice(0, 1)}).log();
  log_variance_most_ = betas.log();
  for (torch::Tensor* table : {&signal_, &noise_, &from_x_0_, &from_x_t_, &log_variance_least_, &log_variance_most_})
    *table = table->to(device);
}

torch::Tensor Gaussian::noised(const torch::Tensor& x_0, const torch::Tensor& t, const torch::Tensor& noise) const {
  return at(signal_, t, x_0) * x_0 + at(noise_, t, x_0) * noise;
}

torch::Tensor Gaussian::posterior_mean(const torch::Tensor& x_0, const torch::Tensor& x_t,
                                       const torch::Tensor& t) const {
  return at(from_x_0_, t, x_t) * x_0 + at(from_x_t_, t, x_t) * x_t;
}

Gaussian::Reverse Gaussian::reverse(const torch::Tensor& network_output, const torch::Tensor& x_t,
                                    const torch::Tensor& t) const {
  const std::int64_t channels = x_t.size(1);
  if (network_output.size(1) != channels && network_output.size(1) != 2 * channels)
    throw std::invalid_argument(
        fmt::format("the network's output has {} channels; it must have {} or, with a variance, {}",
                    network_output.size(1), channels, 2 * channels));
  const torch::Tensor noise = network_output.narrow(1, 0, channels);
  torch::Tensor log_variance = at(log_variance_least_, t, x_t).expand_as(x_t);
  if (network_output.size(1) == 2 * channels) {
    const torch::Tensor share = (network_output.narrow(1, channels, channels) + 1.0) / 2.0;
    log_variance = share * at(log_variance_most_, t, x_t) + (1.0 - share) * log_variance;
  }
  const torch::Tensor x_0 = at(1.0 / signal_, t, x_t) * x_t - at(noise_ / signal_, t, x_t) * noise;
  return {posterior_mean(x_0, x_t, t), log_variance, x_0};
}

torch::Tensor Gaussian::bound(const Reverse& reverse, const torch::Tensor& x_0, const torch::Tensor& x_t,
                              const torch::Tensor& t) const {
  const torch::Tensor mean = reverse.mean.detach();
  const torch::Tensor kl =
      divergence(posterior_mean(x_0, x_t, t), at(log_variance_least_, t, x_t), mean, reverse.log_variance);
  const torch::Tensor nll = discretized_nll(x_0, mean, reverse.log_variance);
  return torch::where(t == 0, mean_per_sample(nll), mean_per_sample(kl)) / std::numbers::ln2;
}

Gaussian::Loss Gaussian::loss(const torch::Tensor& network_output, const torch::Tensor& x_0, const torch::Tensor& x_t,
                              const torch::Tensor& t, const torch::Tensor& noise) const {
  Loss loss;
  const std::int64_t channels = x_t.size(1);
  loss.mse = mean_per_sample((noise - network_output.narrow(1, 0, channels)).square());
  if (network_output.size(1) == channels) {
    loss.bound = torch::zeros_like(loss.mse);
    loss.total = loss.mse;
  } else {
    loss.bound = bound(reverse(network_output, x_t, t), x_0, x_t, t);
    loss.total = loss.mse + loss.bound;
  }
  return loss;
}

torch::Tensor Gaussian::ancestral_step(const torch::Tensor& network_output, const torch::Tensor& x_t,
                                       const torch::Tensor& t, const torch::Tensor& noise) const {
  const Reverse step = reverse(network_output, x_t, t);
  return torch::where((t == 0).view(per_sample(t, x_t)), step.mean,
                      step.mean + torch::exp(0.5 * step.log_variance) * noise);
}

}  // namespace mhla::diffusion
