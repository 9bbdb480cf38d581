// Solvers reach the solution of an equation that can be solved by hand, each at its order.
#include "diffusion/solver.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>

#include "diffusion/guidance.hpp"
#include "diffusion/noise.hpp"

namespace mhla::diffusion {
namespace {

// Data N(0, s^2): the flow from noise multiplies x by sqrt(alpha^2 s^2 + sigma^2), and
// x_0 = alpha s^2 / (alpha^2 s^2 + sigma^2) x.
constexpr double kDeviation = 0.5;

double spread(const Level& level) {
  return std::sqrt(level.alpha * level.alpha * kDeviation * kDeviation + level.sigma * level.sigma);
}

double error_after(Method method, const Levels& levels) {
  Solver solver(method, levels);
  torch::Tensor x = torch::ones({1}, torch::kFloat64);
  for (std::int64_t i = 0; i < solver.steps(); ++i) {
    const Level& level = levels[static_cast<std::size_t>(i)];
    x = solver.step(i, x, level.alpha * kDeviation * kDeviation / std::pow(spread(level), 2) * x);
  }
  return std::abs(x.item<double>() - spread(levels.back()) / spread(levels.front()));
}

// Levels evenly spread in lambda that end before data, where the order can be seen.
Levels even_levels(std::int64_t steps) {
  Levels levels;
  for (std::int64_t i = 0; i <= steps; ++i) {
    const double lambda = -3.0 + 5.0 * static_cast<double>(i) / static_cast<double>(steps);
    const double alpha = 1.0 / std::sqrt(1.0 + std::exp(-2.0 * lambda));
    levels.push_back({alpha, std::sqrt(1.0 - alpha * alpha), 0.0});
  }
  return levels;
}

TEST(Solver, HalvingTheStepDividesTheErrorByItsOrder) {
  const auto gain = [](Method method) {
    return error_after(method, even_levels(64)) / error_after(method, even_levels(128));
  };
  EXPECT_NEAR(gain(Method::first_order), 2.0, 0.2);
  // The last step is of first order; its own error falls with the square of the step.
  EXPECT_NEAR(gain(Method::dpmpp_2m), 4.0, 0.6);
  EXPECT_GT(gain(Method::unipc), 3.4);
  for (const Method method : {Method::dpmpp_2m, Method::unipc})
    EXPECT_LT(error_after(method, even_levels(64)), 0.2 * error_after(Method::first_order, even_levels(64)));
}

TEST(Solver, ExactDataEndsAtTheDataForEveryMethod) {
  for (const Method method : {Method::first_order, Method::dpmpp_2m, Method::unipc})
    for (const Levels& levels : {noise_levels(linear_schedule(), 1), noise_levels(linear_schedule(), 2),
                                 noise_levels(linear_schedule(), 9), flow_levels(5, 3.0)}) {
      Solver solver(method, levels);
      const auto data = torch::tensor({0.3, -0.8}, torch::kFloat64);
      torch::Tensor x = torch::tensor({1.5, -0.2}, torch::kFloat64);
      for (std::int64_t i = 0; i < solver.steps(); ++i) x = solver.step(i, x, data);
      EXPECT_TRUE(torch::allclose(x, data, 1e-12, 1e-12));
    }
}

TEST(Solver, StepsOutOfOrderAreRefused) {
  Solver solver(Method::dpmpp_2m, flow_levels(3, 1.0));
  const auto x = torch::zeros({1});
  EXPECT_THROW(solver.step(1, x, x), std::invalid_argument);
  solver.step(0, x, x);
  EXPECT_THROW(solver.step(0, x, x), std::invalid_argument);
  EXPECT_THROW(Solver(Method::unipc, {}), std::invalid_argument);
}

TEST(PictureNoise, DoesNotDependOnTheBatch) {
  PictureNoise all(7, 0, 5), part(7, 3, 2), other(8, 0, 5);
  for (int draw = 0; draw < 3; ++draw) {
    const auto whole = all.draw({2, 4, 4});
    EXPECT_TRUE(torch::equal(whole.slice(0, 3), part.draw({2, 4, 4})));
    EXPECT_FALSE(torch::equal(whole, other.draw({2, 4, 4})));
    EXPECT_FALSE(torch::equal(whole[0], whole[1]));
  }
}

TEST(PictureNoise, IsNormal) {
  const auto x = PictureNoise(1, 0, 1000).draw({4, 4, 4}).to(torch::kFloat64);
  EXPECT_NEAR(x.mean().item<double>(), 0.0, 0.01);
  EXPECT_NEAR(x.std().item<double>(), 1.0, 0.01);
  // Pictures do not resemble each other.
  const auto flat = x.flatten(1);
  EXPECT_NEAR((flat.slice(0, 1) * flat.slice(0, 0, -1)).mean().item<double>(), 0.0, 0.015);
}

TEST(Guidance, ActsInItsIntervalAlone) {
  const Guidance guidance{4.0, 0.2, 0.6};
  EXPECT_FALSE(guidance.acts_at(100.0, 1000.0));
  EXPECT_TRUE(guidance.acts_at(200.0, 1000.0));
  EXPECT_TRUE(guidance.acts_at(600.0, 1000.0));
  EXPECT_FALSE(guidance.acts_at(700.0, 1000.0));
  EXPECT_FALSE(Guidance{}.acts_at(500.0, 1000.0));
}

TEST(Guidance, ImpossibleOnesAreRefused) {
  EXPECT_THROW((Guidance{NAN, 0.0, 1.0}.check()), std::invalid_argument);
  EXPECT_THROW((Guidance{-1.0, 0.0, 1.0}.check()), std::invalid_argument);
  EXPECT_THROW((Guidance{1.0, 0.6, 0.2}.check()), std::invalid_argument);
  EXPECT_THROW((Guidance{1.0, 0.0, 1.5}.check()), std::invalid_argument);
  EXPECT_NO_THROW((Guidance{4.0, 0.1, 0.9}.check()));
}

}  // namespace
}  // namespace mhla::diffusion
