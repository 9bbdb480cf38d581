// Training and sampling ask one interface, whatever the network learns.
#include "diffusion/process.hpp"

#include <gtest/gtest.h>

#include "diffusion/flow.hpp"
#include "diffusion/gaussian.hpp"

namespace mhla::diffusion {
namespace {

const torch::Tensor kPictures = torch::linspace(-1, 1, 24).view({2, 3, 2, 2});
const torch::Tensor kNoise = torch::linspace(2, -1, 24).view({2, 3, 2, 2});
const torch::Tensor kSteps = torch::tensor({0, 700}, torch::kInt64);

TEST(Process, OfAScheduleIsNoisePrediction) {
  const auto process = make_process("linear");
  const Gaussian gaussian(linear_schedule());
  const torch::Tensor x_t = process->noised(kPictures, kSteps, kNoise);
  EXPECT_TRUE(torch::equal(x_t, gaussian.noised(kPictures, kSteps, kNoise)));
  EXPECT_TRUE(torch::equal(process->target(kPictures, kNoise), kNoise));
  EXPECT_TRUE(torch::equal(process->times(kSteps), kSteps));
  EXPECT_EQ(process->largest_time(), 999.0);
  const torch::Tensor output = kNoise * 0.9;
  EXPECT_TRUE(torch::equal(process->loss(output, kPictures, x_t, kSteps, kNoise),
                           gaussian.loss(output, kPictures, x_t, kSteps, kNoise).total));
}

TEST(Process, OfAFlowGoesStraightFromDataToNoise) {
  const auto process = make_process("flow");
  const torch::Tensor x_t = process->noised(kPictures, kSteps, kNoise);
  EXPECT_TRUE(torch::equal(x_t[0], kPictures[0]));
  EXPECT_TRUE(torch::allclose(x_t[1], 0.3 * kPictures[1] + 0.7 * kNoise[1]));
  EXPECT_TRUE(torch::allclose(process->times(kSteps), torch::tensor({0.0F, 700.0F})));
  EXPECT_TRUE(torch::equal(process->target(kPictures, kNoise), kNoise - kPictures));
  EXPECT_TRUE(
      torch::equal(process->loss(kNoise - kPictures + 2.0, kPictures, x_t, kSteps, kNoise), torch::full({2}, 4.0F)));
}

TEST(Process, AFlowWalkedWithItsOwnVelocityEndsAtTheData) {
  const auto process = make_process("flow");
  Solver solver(Method::first_order, process->levels(5));
  torch::Tensor x = kNoise;
  for (std::int64_t step = 0; step < 5; ++step) {
    const Level& level = solver.levels()[static_cast<std::size_t>(step)];
    const torch::Tensor velocity = (x - kPictures) / level.sigma;
    x = solver.step(step, x, predicted_data(velocity, x, level, process->prediction()));
  }
  EXPECT_TRUE(torch::allclose(x, kPictures, 1e-5, 1e-6));
}

TEST(Process, StepsOfAFlowAreMostOftenInTheMiddle) {
  const torch::Generator random = torch::make_generator<torch::CPUGeneratorImpl>(1);
  const torch::Tensor steps = make_process("flow")->drawn_steps(20000, random, torch::kCPU).to(torch::kFloat64);
  EXPECT_GE(steps.min().item<double>(), 0.0);
  EXPECT_LE(steps.max().item<double>(), 999.0);
  EXPECT_NEAR(steps.mean().item<double>(), 499.5, 6.0);
  EXPECT_NEAR((steps < 250).to(torch::kFloat64).mean().item<double>(), 0.136, 0.015);  // logit(1/4) = -1.0986
}

TEST(Flow, AShiftMovesStepsTowardsNoise) {
  const Flow flow(1000, 3.0);
  EXPECT_DOUBLE_EQ(flow.time(500), 750.0);
  EXPECT_THROW(Flow(1), std::invalid_argument);
  EXPECT_THROW(Flow(1000, 0.0), std::invalid_argument);
}

TEST(Process, NamesWhatItMayBe) {
  try {
    make_process("sigmoid");
    FAIL();
  } catch (const std::invalid_argument& error) {
    EXPECT_STREQ(error.what(), R"(the noise process is "sigmoid"; it may be linear, cosine, flow)");
  }
}

}  // namespace
}  // namespace mhla::diffusion
