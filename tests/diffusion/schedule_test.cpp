// Schedules, their respacing, and the levels made from them.
#include "diffusion/schedule.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>

#include "diffusion/levels.hpp"

namespace mhla::diffusion {
namespace {

TEST(Schedule, AlphaBarFallsFromAlmostOneToAlmostZero) {
  for (const char* name : {"linear", "cosine"}) {
    const Schedule schedule = parse_schedule(name);
    ASSERT_EQ(schedule.steps(), 1000);
    EXPECT_GT(schedule.alpha_bar.front(), 0.999);
    EXPECT_LT(schedule.alpha_bar.back(), 1e-4);
    for (std::size_t t = 1; t < schedule.alpha_bar.size(); ++t)
      ASSERT_LT(schedule.alpha_bar[t], schedule.alpha_bar[t - 1]) << name << " at " << t;
  }
}

TEST(Schedule, RespacingTo250TakesTheTimesOfTheDiTSampler) {
  const Schedule schedule = respaced(linear_schedule(), 250);
  ASSERT_EQ(schedule.steps(), 250);
  EXPECT_EQ((std::vector<std::int64_t>{schedule.times.begin(), schedule.times.begin() + 4}),
            (std::vector<std::int64_t>{0, 4, 8, 12}));
  EXPECT_EQ((std::vector<std::int64_t>{schedule.times.end() - 3, schedule.times.end()}),
            (std::vector<std::int64_t>{991, 995, 999}));
}

TEST(Schedule, RespacingKeepsTheAlphaBarOfTheChosenTimes) {
  const Schedule whole = linear_schedule();
  const Schedule chosen = respaced(whole, 50);
  double product = 1.0;
  for (std::size_t i = 0; i < chosen.betas.size(); ++i) {
    product *= 1.0 - chosen.betas[i];
    EXPECT_NEAR(product, whole.alpha_bar[static_cast<std::size_t>(chosen.times[i])], 1e-12);
  }
}

TEST(Schedule, ImpossibleRequestsNameTheArgument) {
  EXPECT_THROW(linear_schedule(0), std::invalid_argument);
  EXPECT_THROW(parse_schedule("sigmoid"), std::invalid_argument);
  EXPECT_THROW(respaced(linear_schedule(), 0), std::invalid_argument);
  EXPECT_THROW(respaced(linear_schedule(), 1001), std::invalid_argument);
  EXPECT_THROW(noise_levels(linear_schedule(), 0), std::invalid_argument);
  EXPECT_THROW(flow_levels(0, 3.0), std::invalid_argument);
  EXPECT_THROW(flow_levels(4, 0.0), std::invalid_argument);
  EXPECT_THROW(flow_levels(4, NAN), std::invalid_argument);
}

TEST(Levels, EndAtDataAndLoseNoiseAtEveryStep) {
  for (const Levels& levels :
       {noise_levels(linear_schedule(), 7), noise_levels(linear_schedule(), 7, Spacing::linspace),
        noise_levels(linear_schedule(), 1), flow_levels(7, 3.0), flow_levels(1, 3.0, FlowSpacing::to_shifted_end)}) {
    EXPECT_EQ(levels.back().sigma, 0.0);
    EXPECT_EQ(levels.back().alpha, 1.0);
    EXPECT_GT(levels.front().sigma, 0.99);
    for (std::size_t i = 1; i < levels.size(); ++i) EXPECT_LT(levels[i].sigma, levels[i - 1].sigma);
  }
}

}  // namespace
}  // namespace mhla::diffusion
