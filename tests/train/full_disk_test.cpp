// A disk that is full at any moment of a run ends it with an error; the run goes on from there as if nothing had been.
#include "train/full_disk.hpp"

#include <gtest/gtest.h>

#include <sstream>

#include "io/file.hpp"
#include "support/no_damage.hpp"
#include "support/temporary_folder.hpp"
#include "train/toy_task.hpp"
#include "train/trainer.hpp"

namespace mhla::train {
namespace {

using mhla::testing::FullDisk;
using mhla::testing::no_damage;
using mhla::testing::TemporaryFolder;
constexpr std::int64_t kToySteps = 9;  // an epoch and two steps

void train_toy(const std::filesystem::path& out) {
  const auto alone = make_communicator();
  testing::ToyTask task(*alone);
  task.best_file = out / "best.safetensors";
  std::ostringstream text;
  TrainerOptions options;
  options.out = out;
  options.schedule = {.peak = 1e-2, .warmup = 2, .steps = kToySteps};
  options.ema = 0.9;
  options.log_every = 2;
  options.checkpoint_every = 4;
  options.text = &text;
  Trainer(task, options, *alone).run();
}

void expect_same_run(const std::filesystem::path& a, const std::filesystem::path& b) {
  const auto one = CheckpointFolder(a / "checkpoints").newest(no_damage);
  const auto other = CheckpointFolder(b / "checkpoints").newest(no_damage);
  ASSERT_TRUE(one && other);
  EXPECT_EQ(one->step, other->step);
  EXPECT_EQ(one->best, other->best);
  for (const auto& [name, tensor] : one->tensors) EXPECT_TRUE(torch::equal(tensor, other->tensors.at(name))) << name;
  EXPECT_EQ(io::read_file(a / "best.safetensors"), io::read_file(b / "best.safetensors"));
  const auto rows = read_metrics(a / "metrics.jsonl", kToySteps, no_damage);
  const auto others = read_metrics(b / "metrics.jsonl", kToySteps, no_damage);
  ASSERT_EQ(rows.size(), others.size());
  for (std::size_t i = 0; i < rows.size(); ++i) EXPECT_EQ(rows[i].value("loss", -1.0), others[i].value("loss", -1.0));
  for (const auto& entry : std::filesystem::recursive_directory_iterator(b))
    EXPECT_FALSE(entry.path().string().ends_with(".unfinished")) << entry.path();
}

// The message of the error the run ended with; empty where it did not.
std::string train_until_full(const std::filesystem::path& out, int operations) {
  const FullDisk disk(operations);
  try {
    train_toy(out);
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

TEST(FullDisk, AtEveryOperationOfARunItIsAnErrorAndTheRunGoesOnAfterwards) {
  const TemporaryFolder folder;
  const int threads = torch::get_num_threads();
  torch::set_num_threads(1);
  train_toy(folder / "whole");
  int operations = 0;
  for (;; ++operations) {
    const auto out = folder / std::to_string(operations);
    const std::string message = train_until_full(out, operations);
    if (message.empty()) break;
    EXPECT_TRUE(message.starts_with(out.string() + "/")) << message;
    EXPECT_NE(message.find("No space left on device"), std::string::npos) << message;
    train_toy(out);
    expect_same_run(folder / "whole", out);
    if (HasFailure()) FAIL() << "after " << operations << " operations: " << message;
    std::filesystem::remove_all(out);
  }
  torch::set_num_threads(threads);
  EXPECT_GT(operations, 60);
  std::cout << "full after 0 to " << operations - 1 << " operations: an error each, and the same bits afterwards\n";
}

}  // namespace
}  // namespace mhla::train
