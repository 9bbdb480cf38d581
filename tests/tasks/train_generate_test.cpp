// `mhla train generate` and `mhla encode` from outside, on a small set of generated images.
#include <gtest/gtest.h>

#include <cmath>

#include "io/image.hpp"
#include "models/base/weights.hpp"
#include "models/generator_file.hpp"
#include "models/sd_vae/sd_vae.hpp"
#include "support/program.hpp"
#include "support/temporary_folder.hpp"
#include "tasks/training_runs.hpp"
#include "tensor_io/tensors.hpp"
#include "train/run_log.hpp"

namespace mhla::tasks {
namespace {

using mhla::testing::Finished;
using mhla::testing::newest;
using mhla::testing::quoted;
using mhla::testing::TemporaryFolder;

Finished run(const std::string& command) { return mhla::testing::run_command(command + " 2>&1"); }

std::string train_command(const std::filesystem::path& data, const std::filesystem::path& out,
                          const std::string& more = "") {
  return std::string("'") + MHLA_PROGRAM + "' train generate --data " + quoted(data) + " --out " + quoted(out) +
         " --width 32 --depth 2 --heads 2 --image-size 16 --blocks 2 2 --batch 14 --steps 12 --ema 0.5 --lr 2e-3"
         " --samples 1 --sample-steps 3 --log-every 3 --eval-every 6 --checkpoint-every 4 --device cpu --threads 1"
         " --workers 1" +
         more;
}

double held_out(const std::filesystem::path& out, std::size_t evaluation) {
  std::vector<double> errors;
  for (const io::Json& row : train::read_metrics(out / "metrics.jsonl", 1 << 20))
    if (row.contains("val/mse")) errors.push_back(row["val/mse"].get<double>());
  return errors.at(evaluation);
}

TEST(TrainGenerate, LearnsAndLeavesWeightsThatDrawPicturesAndAReportWithThem) {
  const TemporaryFolder folder;
  mhla::testing::write_images(folder / "images");
  const Finished trained = run(train_command(folder / "images", folder / "out", " --cpe --gate"));
  ASSERT_EQ(trained.exit_code, 0) << trained.out;
  EXPECT_LT(held_out(folder / "out", 1), held_out(folder / "out", 0)) << trained.out;
  const models::LoadedGenerator loaded = models::load_generator(folder / "out/model.safetensors");
  EXPECT_EQ(loaded.facts.classes, (std::vector<std::string>{"class0", "class1", "class2"}));
  EXPECT_EQ(loaded.facts.space, "pixels");
  EXPECT_TRUE(loaded.model->options.cpe && loaded.model->options.gate);
  const io::Image grid = io::load_image(folder / "out/samples/step_0000012.png");
  EXPECT_EQ(grid.width, 16);
  EXPECT_EQ(grid.height, 3 * 16 + 2 * 2);
  const auto page = io::read_file(folder / "out/report.html");
  const std::string_view text(reinterpret_cast<const char*>(page.data()), page.size());
  EXPECT_NE(text.find("step 12"), std::string_view::npos);
  EXPECT_NE(text.find("data:image/png;base64,"), std::string_view::npos);
}

TEST(TrainGenerate, LearnsAFlowThatMhlaSampleWalks) {
  const TemporaryFolder folder;
  mhla::testing::write_images(folder / "images");
  const Finished trained = run(train_command(folder / "images", folder / "out", " --noise flow"));
  ASSERT_EQ(trained.exit_code, 0) << trained.out;
  EXPECT_LT(held_out(folder / "out", 1), held_out(folder / "out", 0)) << trained.out;
  const std::string draw = std::string("'") + MHLA_PROGRAM + "' sample --device cpu --count 1 --steps 3 --model " +
                           quoted(folder / "out/model.safetensors") + " --out " + quoted(folder / "drawn.png");
  const Finished drawn = run(draw);
  ASSERT_EQ(drawn.exit_code, 0) << drawn.out;
  EXPECT_NE(drawn.out.find("3 steps of euler"), std::string::npos) << drawn.out;
  const Finished refused = run(draw + " --sampler ddim");
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_NE(refused.out.find("--sampler is ddim; it may be euler, dpm++ or unipc"), std::string::npos) << refused.out;
  const Finished variance =
      run(train_command(folder / "images", folder / "other", " --noise flow --learned-variance true"));
  EXPECT_EQ(variance.exit_code, 2);
  EXPECT_NE(variance.out.find("--learned-variance is true; a flow"), std::string::npos) << variance.out;
}

TEST(TrainGenerate, GoesOnAfterKillNineBitForBit) {
  const TemporaryFolder folder;
  mhla::testing::write_images(folder / "images");
  ASSERT_EQ(run(train_command(folder / "images", folder / "whole")).exit_code, 0);
  const Finished killed =
      run("{ " + train_command(folder / "images", folder / "killed") + " & } ; process=$!; until [ -e " +
          quoted(folder / "killed/checkpoints/step-00000004.safetensors") +
          " ]; do sleep 0.01; kill -0 $process || exit 9; done; kill -9 $process; wait $process; exit $?");
  EXPECT_EQ(killed.exit_code, 128 + SIGKILL) << killed.out;
  const Finished resumed = run(train_command(folder / "images", folder / "killed"));
  ASSERT_EQ(resumed.exit_code, 0) << resumed.out;
  EXPECT_NE(resumed.out.find("resumed after step"), std::string::npos) << resumed.out;
  const train::Checkpoint whole = newest(folder / "whole"), parts = newest(folder / "killed");
  ASSERT_EQ(whole.tensors.size(), parts.tensors.size());
  for (const auto& [name, tensor] : whole.tensors) EXPECT_TRUE(torch::equal(tensor, parts.tensors.at(name))) << name;
}

#ifdef MHLA_MPIRUN
TEST(TrainGenerate, TwoProcessesTakeTheStepsOfOne) {
  const TemporaryFolder folder;
  mhla::testing::write_images(folder / "images");
  const auto train = [&](const std::string& launcher, const char* out) {
    const Finished finished = run(launcher + train_command(folder / "images", folder / out));
    EXPECT_EQ(finished.exit_code, 0) << finished.out;
    return newest(folder / out);
  };
  const train::Checkpoint one = train("", "one"), two = train(std::string(MHLA_MPIRUN) + " -np 2 ", "two");
  EXPECT_EQ(two.processes, 2);
  double difference = 0.0, size = 0.0;
  for (const auto& [name, tensor] : one.tensors) {
    if (!name.starts_with("model/")) continue;
    difference += (tensor - two.tensors.at(name)).square().sum().item<double>();
    size += tensor.square().sum().item<double>();
  }
  EXPECT_LT(std::sqrt(difference / size), 1e-4);
  EXPECT_NEAR(held_out(folder / "two", 1) / held_out(folder / "one", 1), 1.0, 1e-4);
}
#endif

// An autoencoder small enough to encode at once, as diffusers stores one.
void write_autoencoder(const std::filesystem::path& folder) {
  models::SdVaeOptions options;
  options.block_out_channels = {8, 8};
  options.layers_per_block = 1;
  options.norm_num_groups = 4;
  torch::manual_seed(2);
  const models::SdVae autoencoder(options);
  models::save_weights(autoencoder, folder / "diffusion_pytorch_model.safetensors");
  io::write_file(folder / "config.json", io::Json(options).dump());
}

std::string encode_command(const std::filesystem::path& folder, const std::string& out, const std::string& more = "") {
  return std::string("'") + MHLA_PROGRAM + "' encode --data " + quoted(folder / "images") + " --vae " +
         quoted(folder / "vae") + " --out " + quoted(folder / out) +
         " --image-size 16 --device cpu --threads 1 --workers 1" + more;
}

TEST(Encode, LatentsDoNotDependOnBatchesOrFilesAndTrainAGenerator) {
  const TemporaryFolder folder;
  mhla::testing::write_images(folder / "images");
  write_autoencoder(folder / "vae");
  ASSERT_EQ(run(encode_command(folder.path(), "latents", " --batch 5 --shard 10")).exit_code, 0);
  ASSERT_EQ(run(encode_command(folder.path(), "again", " --batch 42")).exit_code, 0);
  const auto whole = io::SafeTensors::load(folder / "again/train/latents-00000.safetensors");
  const at::Tensor expected = io::to_torch(whole, "latents");
  EXPECT_EQ(expected.sizes(), (std::vector<std::int64_t>{42, 2, 4, 8, 8}));
  std::vector<at::Tensor> parts;
  for (int i = 0; i < 5; ++i)
    parts.push_back(io::to_torch(
        io::SafeTensors::load(folder / ("latents/train/latents-0000" + std::to_string(i) + ".safetensors")),
        "latents"));
  EXPECT_TRUE(at::allclose(at::cat(parts), expected, 1e-5, 1e-5));

  const Finished trained = run(train_command(folder / "latents", folder / "out", " --patch 2 --learned-variance true"));
  ASSERT_EQ(trained.exit_code, 0) << trained.out;
  EXPECT_LT(held_out(folder / "out", 1), held_out(folder / "out", 0)) << trained.out;
  const models::LoadedGenerator loaded = models::load_generator(folder / "out/model.safetensors");
  EXPECT_EQ(loaded.facts.space, "latents");
  EXPECT_EQ(loaded.facts.latent_scale, 0.18215);
  EXPECT_EQ(loaded.model->options.channels, 4);
  EXPECT_EQ(loaded.model->options.size, (std::vector<std::int64_t>{8, 8}));

  const Finished refused = run(encode_command(folder.path(), "latents"));
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_NE(refused.out.find("choose a new folder"), std::string::npos) << refused.out;
}

std::string npy(const std::string& type, const std::string& shape, const at::Tensor& values) {
  std::string header = "{'descr': '" + type + "', 'fortran_order': False, 'shape': " + shape + ", }";
  header.append(64 - (10 + header.size() + 1) % 64, ' ');
  header += '\n';
  std::string file("\x93NUMPY\x01\x00", 8);
  file += static_cast<char>(header.size() & 0xFF);
  file += static_cast<char>(header.size() >> 8);
  file += header;
  file.append(static_cast<const char*>(values.data_ptr()), values.nbytes());
  return file;
}

TEST(TrainGenerate, TakesTheAuthorsFoldersOfNumpyFiles) {
  const TemporaryFolder folder;
  torch::manual_seed(3);
  for (int i = 0; i < 20; ++i) {
    const std::string name = std::to_string(i) + ".npy";
    io::write_file(folder / "data/tiny_features" / name, npy("<f4", "(2, 4, 8, 8)", torch::randn({2, 4, 8, 8})));
    io::write_file(folder / "data/tiny_labels" / name, npy("<i8", "(1,)", torch::full({1}, i % 3, torch::kLong)));
  }
  const Finished trained = run(train_command(folder / "data", folder / "out", " --patch 2"));
  ASSERT_EQ(trained.exit_code, 0) << trained.out;
  EXPECT_EQ(models::load_generator(folder / "out/model.safetensors").model->options.classes, 3);

  io::write_file(folder / "data/tiny_labels/7.npy", npy("<f4", "(1,)", torch::ones({1})));
  const Finished refused = run(train_command(folder / "data", folder / "out2", " --patch 2"));
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_NE(refused.out.find("7.npy: it must hold one int64 number, the class"), std::string::npos) << refused.out;
}

}  // namespace
}  // namespace mhla::tasks
