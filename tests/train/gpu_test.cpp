// The engine on a GPU: `ctest -L gpu`.
#include <gtest/gtest.h>

#include <sstream>

#include "support/no_damage.hpp"
#include "support/temporary_folder.hpp"
#include "train/nccl.hpp"
#include "train/toy_task.hpp"
#include "train/trainer.hpp"

namespace mhla::train {
namespace {

using mhla::testing::TemporaryFolder;

class Gpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!torch::cuda::is_available()) GTEST_SKIP() << "no CUDA device: GPU tests not run";
  }
};

// Five steps and their checkpoint: losses of the steps and all tensors.
struct FiveSteps {
  std::vector<double> losses;
  Checkpoint end;
};

FiveSteps train_on(at::Device device, const std::filesystem::path& out, std::int64_t stop_after = 5,
                   bool bf16 = false) {
  const auto alone = make_communicator();
  testing::ToyTask task(*alone, 0.0, device);
  std::ostringstream text;
  TrainerOptions options;
  options.out = out;
  options.schedule = {.kind = "constant", .peak = 1e-3, .steps = stop_after};
  options.adamw.clip = 1.0;
  options.ema = 0.9;
  options.bf16 = bf16;
  options.log_every = 1;
  options.text = &text;
  Trainer(task, options, *alone).run();
  FiveSteps result;
  for (const io::Json& row : read_metrics(out / "metrics.jsonl", 5, mhla::testing::no_damage))
    if (row.contains("loss")) result.losses.push_back(row.at("loss").get<double>());
  result.end = *CheckpointFolder(out / "checkpoints").newest(mhla::testing::no_damage);
  return result;
}

TEST_F(Gpu, TakesTheStepsOfTheCpu) {
  const TemporaryFolder folder;
  const FiveSteps cpu = train_on(at::kCPU, folder / "cpu"), gpu = train_on({at::kCUDA, 0}, folder / "gpu");
  ASSERT_EQ(cpu.losses.size(), 5U);
  for (std::size_t i = 0; i < 5; ++i) EXPECT_NEAR(cpu.losses[i], gpu.losses[i], 1e-4 * cpu.losses[i]);
  for (const char* name : {"model/embed.weight", "ema/embed.weight", "model/attention.mixing"})
    EXPECT_TRUE(torch::allclose(cpu.end.tensors.at(name), gpu.end.tensors.at(name), 1e-2, 1e-4)) << name;
  EXPECT_TRUE(gpu.end.tensors.contains("random/cuda"));
}

TEST_F(Gpu, GoesOnFromACheckpoint) {
  const TemporaryFolder folder;
  train_on({at::kCUDA, 0}, folder / "parts", 3);
  const FiveSteps parts = train_on({at::kCUDA, 0}, folder / "parts"),
                  whole = train_on({at::kCUDA, 0}, folder / "whole");
  ASSERT_EQ(parts.losses.size(), 5U);
  for (std::size_t i = 0; i < 5; ++i) EXPECT_NEAR(parts.losses[i], whole.losses[i], 1e-5 * whole.losses[i]);
}

TEST_F(Gpu, TrainsWithAutocast) {
  const TemporaryFolder folder;
  const FiveSteps low = train_on({at::kCUDA, 0}, folder / "bf16", 5, true),
                  full = train_on({at::kCUDA, 0}, folder / "f32");
  for (std::size_t i = 0; i < 5; ++i) EXPECT_NEAR(low.losses[i], full.losses[i], 0.05 * full.losses[i]);
}

TEST_F(Gpu, NcclOfOneProcessLeavesTensorsAsTheyAre) {
  ASSERT_TRUE(Nccl::available());
  const at::Device device(at::kCUDA, 0);
  Nccl nccl(Nccl::unique_id(), 0, 1, device);
  const at::Tensor values = torch::arange(1000.0, device), before = values.clone();
  nccl.start_all_reduce(values)();
  EXPECT_TRUE(torch::equal(values, before));
  nccl.broadcast(values, 0);
  EXPECT_TRUE(torch::equal(values, before));
}

}  // namespace
}  // namespace mhla::train
