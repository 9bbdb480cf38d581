// Rectified flow.
#include "diffusion/flow.hpp"

#include <fmt/format.h>

#include <cmath>
#include <stdexcept>
#include <vector>

namespace mhla::diffusion {
namespace {

constexpr double kTimes = 1000.0;

}  // namespace

Flow::Flow(std::int64_t steps, double shift, torch::Device device) {
  if (steps < 2) throw std::invalid_argument(fmt::format("steps is {}; it must be at least 2", steps));
  if (!(shift > 0.0) || !std::isfinite(shift))
    throw std::invalid_argument(fmt::format("shift is {}; it must be a number above 0", shift));
  const torch::Tensor even = torch::arange(steps, torch::kFloat64) / static_cast<double>(steps);
  sigma_ = (shift * even / (1.0 + (shift - 1.0) * even)).to(device);
}

double Flow::time(std::int64_t step) const { return kTimes * sigma_[step].item<double>(); }

torch::Tensor Flow::steps_of(const torch::Tensor& normal) const {
  const auto count = static_cast<double>(steps());
  return (normal.to(torch::kFloat64).sigmoid() * count).to(torch::kInt64).clamp_max(steps() - 1);
}

torch::Tensor Flow::times(const torch::Tensor& step) const {
  return (kTimes * sigma_.to(step.device()).index_select(0, step)).to(torch::kFloat32);
}

torch::Tensor Flow::noised(const torch::Tensor& x_0, const torch::Tensor& step, const torch::Tensor& noise) const {
  std::vector<std::int64_t> shape(static_cast<std::size_t>(x_0.dim()), 1);
  shape[0] = step.size(0);
  const torch::Tensor sigma = sigma_.to(step.device()).index_select(0, step).view(shape);
  return (1.0 - sigma).to(x_0.scalar_type()) * x_0 + sigma.to(x_0.scalar_type()) * noise;
}

}  // namespace mhla::diffusion
