// The reverse process against what is known in closed form.
#include "diffusion/gaussian.hpp"

#include <gtest/gtest.h>

#include <stdexcept>

namespace mhla::diffusion {
namespace {

const auto kDouble = torch::TensorOptions().dtype(torch::kFloat64);

TEST(Gaussian, TheTrueNoiseGivesTheDataBack) {
  torch::manual_seed(1);
  const Gaussian gaussian(linear_schedule());
  const auto x_0 = torch::randn({4, 2, 3, 3}, kDouble), noise = torch::randn({4, 2, 3, 3}, kDouble);
  const auto t = torch::tensor({0, 10, 500, 999}, torch::kInt64);
  const auto reverse = gaussian.reverse(noise, gaussian.noised(x_0, t, noise), t);
  EXPECT_TRUE(torch::allclose(reverse.x_0, x_0, 1e-9, 1e-9));
}

TEST(Gaussian, TheBoundIsZeroForTheTruePosterior) {
  torch::manual_seed(2);
  const Gaussian gaussian(linear_schedule());
  const auto x_0 = torch::randn({2, 2, 3, 3}, kDouble), noise = torch::randn({2, 2, 3, 3}, kDouble);
  const auto t = torch::tensor({1, 7}, torch::kInt64);
  // Variance -1 is the posterior's own.
  const auto output = torch::cat({noise, -torch::ones_like(noise)}, 1);
  const auto loss = gaussian.loss(output, x_0, gaussian.noised(x_0, t, noise), t, noise);
  EXPECT_LT(loss.mse.abs().max().item<double>(), 1e-12);
  EXPECT_LT(loss.bound.abs().max().item<double>(), 1e-9);
  // And positive for another variance.
  const auto wider = torch::cat({noise, torch::ones_like(noise)}, 1);
  EXPECT_GT(gaussian.loss(wider, x_0, gaussian.noised(x_0, t, noise), t, noise).bound.min().item<double>(), 1e-6);
}

TEST(Gaussian, TheBoundTrainsTheVarianceAlone) {
  torch::manual_seed(3);
  const Gaussian gaussian(linear_schedule());
  const auto x_0 = torch::randn({3, 2, 3, 3}, kDouble), noise = torch::randn({3, 2, 3, 3}, kDouble);
  const auto t = torch::tensor({0, 1, 400}, torch::kInt64);
  auto output = torch::randn({3, 4, 3, 3}, kDouble).requires_grad_();
  gaussian.loss(output, x_0, gaussian.noised(x_0, t, noise), t, noise).bound.sum().backward();
  EXPECT_EQ(output.grad().narrow(1, 0, 2).abs().max().item<double>(), 0.0);
  EXPECT_GT(output.grad().narrow(1, 2, 2).abs().amax({1, 2, 3}).min().item<double>(), 0.0);
}

TEST(Gaussian, WithoutVarianceChannelsTheLossIsTheMse) {
  torch::manual_seed(4);
  const Gaussian gaussian(linear_schedule());
  const auto x_0 = torch::randn({2, 2, 3, 3}, kDouble), noise = torch::randn({2, 2, 3, 3}, kDouble);
  const auto t = torch::tensor({5, 50}, torch::kInt64);
  const auto loss = gaussian.loss(torch::zeros_like(noise), x_0, gaussian.noised(x_0, t, noise), t, noise);
  EXPECT_TRUE(torch::equal(loss.total, loss.mse));
  EXPECT_TRUE(torch::allclose(loss.mse, noise.square().mean({1, 2, 3})));
}

// The network that knows the data distribution N(0, 1) predicts E[noise | x_t] = sigma x_t. Ancestral sampling with the
// posterior's variance then ends near N(0, 1).
TEST(Gaussian, AncestralSamplingOfAKnownDistributionEndsInIt) {
  torch::manual_seed(5);
  const Gaussian gaussian(respaced(linear_schedule(), 100));
  auto x = torch::randn({20000, 1}, kDouble);
  for (std::int64_t step = 99; step >= 0; --step) {
    const auto t = torch::full({x.size(0)}, step, torch::kInt64);
    const double sigma = std::sqrt(1.0 - gaussian.schedule().alpha_bar[static_cast<std::size_t>(step)]);
    x = gaussian.ancestral_step(sigma * x, x, t, torch::randn_like(x));
  }
  EXPECT_NEAR(x.mean().item<double>(), 0.0, 0.03);
  EXPECT_NEAR(x.std().item<double>(), 1.0, 0.05);
}

TEST(Gaussian, AnOutputOfOtherChannelsIsRefused) {
  const Gaussian gaussian(linear_schedule());
  const auto x = torch::zeros({1, 4, 2, 2});
  EXPECT_THROW(gaussian.reverse(torch::zeros({1, 6, 2, 2}), x, torch::zeros({1}, torch::kInt64)),
               std::invalid_argument);
}

}  // namespace
}  // namespace mhla::diffusion
