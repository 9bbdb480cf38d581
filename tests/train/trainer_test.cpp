// The loop as a whole: what it learns, leaves behind and refuses.
#include "train/trainer.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "support/no_damage.hpp"
#include "support/temporary_folder.hpp"
#include "train/toy_task.hpp"

namespace mhla::train {
namespace {

using mhla::testing::TemporaryFolder;

TrainerOptions toy_options(const std::filesystem::path& out, std::ostream& text, std::int64_t steps = 14) {
  TrainerOptions options;
  options.out = out;
  options.schedule = {.peak = 1e-2, .warmup = 2, .steps = steps};
  options.text = &text;
  options.log_every = 5;
  options.about = {{"training", "A toy"}, {"model", "toy"}};
  return options;
}

TEST(Trainer, LearnsProjectsAndLeavesItsFiles) {
  const TemporaryFolder folder;
  const auto alone = make_communicator();
  testing::ToyTask task(*alone, 0.0);
  std::ostringstream text;
  TrainerOptions options = toy_options(folder.path(), text, 70);
  options.schedule.peak = 0.05;
  options.bf16 = true;
  Trainer trainer(task, options, *alone);
  EXPECT_EQ(trainer.run(), Ending::finished);
  const auto rows = read_metrics(folder / "metrics.jsonl", 1000, mhla::testing::no_damage);
  EXPECT_LT(rows[rows.size() - 2].at("loss").get<double>(), 0.6 * rows[0].at("loss").get<double>());
  EXPECT_GT(trainer.best_score(), 0.6);
  EXPECT_GE(task.best_saved, 1);
  const at::Tensor mixing = task.toy().attention->mixing;
  EXPECT_GE(mixing.min().item<double>(), 0.0);
  EXPECT_LE(mixing.max().item<double>(), 1.0);
  EXPECT_TRUE(torch::equal(task.toy().unused, torch::ones({2, 2})));  // no gradient, no decay
  for (const char* name : {"metrics.jsonl", "summary.csv", "report.html", "events", "checkpoints"})
    EXPECT_TRUE(std::filesystem::exists(folder / name)) << name;
  EXPECT_NE(text.str().find("step 70/70  loss "), std::string::npos) << text.str();
  EXPECT_NE(text.str().find("epoch 10:  val/accuracy "), std::string::npos) << text.str();
}

TEST(Trainer, AccumulatedBatchesEqualOneLargeBatch) {
  const TemporaryFolder folder;
  const auto alone = make_communicator();
  std::ostringstream text;
  testing::ToyTask task(*alone, 0.0);
  task.toy().with_batch_norm = false;
  task.start(0, 0);
  at::Tensor loss = torch::zeros({});
  for (int i = 0; i < 7; ++i) loss = loss + task.loss() / 7.0;
  loss.backward();
  double square = 0.0;
  for (const at::Tensor& parameter : task.model().parameters())
    if (parameter.grad().defined()) square += parameter.grad().square().sum().item<double>();

  TrainerOptions options = toy_options(folder.path(), text, 1);
  options.schedule.warmup = 0;
  options.accumulate = 7;
  Trainer(task, options, *alone).run();
  const io::Json row = read_metrics(folder / "metrics.jsonl", 1, mhla::testing::no_damage)[0];
  EXPECT_NEAR(row.at("loss").get<double>(), loss.item<double>(), 1e-6);
  EXPECT_NEAR(row.at("grad_norm").get<double>(), std::sqrt(square), 1e-6 * std::sqrt(square));
}

TEST(Trainer, ARunThatOnlyGivesNaNStopsWithAnError) {
  const TemporaryFolder folder;
  const auto alone = make_communicator();
  testing::ToyTask task(*alone);
  task.loss_factor = NAN;
  std::ostringstream text;
  const TrainerOptions options = toy_options(folder.path(), text);
  Trainer trainer(task, options, *alone);
  EXPECT_THROW(trainer.run(), Error);
  EXPECT_FALSE(task.toy().embed->weight.isnan().any().item<bool>());
}

TEST(Trainer, ResumingWithOtherSettingsIsAnErrorThatNamesThem) {
  const TemporaryFolder folder;
  const auto alone = make_communicator();
  testing::ToyTask task(*alone);
  std::ostringstream text;
  TrainerOptions options = toy_options(folder.path(), text, 3);
  options.settings = {{"lr", 0.01}, {"batch", 8}};
  Trainer(task, options, *alone).run();
  options.settings["lr"] = 0.02;
  try {
    Trainer(task, options, *alone).run();
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("lr: 0.01, now 0.02"), std::string::npos) << error.what();
  }
  options.resume = "none";
  EXPECT_EQ(Trainer(task, options, *alone).run(), Ending::finished);
}

}  // namespace
}  // namespace mhla::train
