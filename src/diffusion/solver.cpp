// Solvers of the sampling equation.
#include "diffusion/solver.hpp"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <stdexcept>

namespace mhla::diffusion {

torch::Tensor predicted_data(const torch::Tensor& output, const torch::Tensor& x, const Level& level,
                             Prediction prediction) {
  if (prediction == Prediction::noise) return (x - level.sigma * output) / level.alpha;
  return x - level.sigma * output;
}

Solver::Solver(Method method, Levels levels) : method_(method), levels_(std::move(levels)) {
  if (levels_.size() < 2) throw std::invalid_argument("levels: at least two are needed, the start and the end");
}

double Solver::lambda(std::int64_t i) const {
  const Level& level = levels_[static_cast<std::size_t>(i)];
  return level.sigma > 0.0 ? std::log(level.alpha / level.sigma) : std::numeric_limits<double>::infinity();
}

// x(t) = sigma_t / sigma_s x(s) + alpha_t (1 - e^-h) x_0, exact for constant x_0; h = lambda_t - lambda_s. The second
// order lets x_0 change linearly in lambda, as it did over the step before.
torch::Tensor Solver::predict(std::int64_t step, const torch::Tensor& x, const torch::Tensor& x_0,
                              bool second_order) const {
  const Level &from = levels_[static_cast<std::size_t>(step)], &to = levels_[static_cast<std::size_t>(step + 1)];
  const double keep = to.sigma / from.sigma,
               gain = to.alpha - from.alpha * keep;  // alpha_t (1 - e^-h), also for h = inf
  if (!second_order) return keep * x + gain * x_0;
  const double ratio = (lambda(step) - lambda(step - 1)) / (lambda(step + 1) - lambda(step));
  return keep * x + gain * (x_0 + 0.5 / ratio * (x_0 - last_->x_0));
}

// The state at `step` again, now that x_0 there is known: the step before is repeated with it (UniC).
torch::Tensor Solver::correct(std::int64_t step, const torch::Tensor& x_0) const {
  const Level &from = levels_[static_cast<std::size_t>(step - 1)], &to = levels_[static_cast<std::size_t>(step)];
  const double h = lambda(step) - lambda(step - 1);
  const double keep = to.sigma / from.sigma, gain = to.alpha - from.alpha * keep;
  torch::Tensor change = 0.5 * (x_0 - last_->x_0);
  if (last_->second_order) {
    // Weights w of the two differences at r_1 = (lambda before last) and r_2 = 1: sum of w r^(k-1) = b_k.
    const double r = (lambda(step - 2) - lambda(step - 1)) / h;
    const double phi = std::expm1(-h), phi_2 = -phi / h - 1.0, phi_3 = -phi_2 / h - 0.5;
    const double b_1 = phi_2 / phi, b_2 = 2.0 * phi_3 / phi;
    const double w_1 = (b_2 - b_1) / (r - 1.0), w_2 = b_1 - w_1;
    change = w_1 / r * (before_last_->x_0 - last_->x_0) + w_2 * (x_0 - last_->x_0);
  }
  return keep * last_->x + gain * (last_->x_0 + change);
}

torch::Tensor Solver::step(std::int64_t step, const torch::Tensor& x, const torch::Tensor& x_0) {
  const std::int64_t expected = last_ ? last_->step + 1 : 0;
  if (step != expected || step >= steps())
    throw std::invalid_argument(fmt::format("step is {}; the next of {} steps is {}", step, steps(), expected));
  const torch::Tensor corrected = method_ == Method::unipc && last_ ? correct(step, x_0) : x;
  // The last step is of first order: it ends at data, where lambda is infinite.
  const bool second_order = method_ != Method::first_order && last_ && step + 1 < steps();
  torch::Tensor next = predict(step, corrected, x_0, second_order);
  before_last_ = std::move(last_);
  last_ = Past{step, corrected, x_0, second_order};
  return next;
}

}  // namespace mhla::diffusion
