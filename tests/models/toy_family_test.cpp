// A family outside the program: its own folder and one line of a registry, and everything that works with models works
// with it.
#include <gtest/gtest.h>

#include <array>
#include <sstream>

#include "models/base/weights.hpp"
#include "models/registry.hpp"
#include "models/toy_family/toy.hpp"
#include "support/temporary_folder.hpp"
#include "train/trainer.hpp"

namespace mhla::models {
namespace {

using testing::Toy;

constexpr std::array kFamilies = {
    Family{"label", testing::toy_names, made<Toy>},
};

std::shared_ptr<Toy> make_toy(const io::Json& config) {
  return std::static_pointer_cast<Toy>(make_model(config, "label", kFamilies));
}

at::Tensor tokens(std::int64_t count = 12) {
  return torch::randn({2, count, 4}, at::make_generator<at::CPUGeneratorImpl>(5));
}

class LabelTask : public train::Task {
 public:
  explicit LabelTask(std::shared_ptr<Toy> model) : model_(std::move(model)) {}

  torch::nn::Module& model() override { return *model_; }
  bool decays(const std::string& parameter) const override { return model_->decays(parameter); }
  void after_step() override {
    model_->after_step();
    ++steps;
  }
  std::string unit() const override { return "lines"; }
  std::int64_t samples() const override { return 2; }
  std::int64_t batches() const override { return 2; }
  void start(std::int64_t, std::int64_t) override {}
  at::Tensor loss() override { return model_->forward(tokens()).square().mean(); }
  train::Evaluation evaluate() override { return {}; }
  void save_best(const train::Evaluation&) override { ++saved; }

  int steps = 0, saved = 0;

 private:
  std::shared_ptr<Toy> model_;
};

class ToyFamily : public ::testing::Test {
 protected:
  mhla::testing::TemporaryFolder folder_;
  std::filesystem::path file_ = folder_ / "toy.safetensors";
};

TEST_F(ToyFamily, IsMadeByNameFromAConfig) {
  EXPECT_EQ(model_names("label", kFamilies), (std::vector<std::string>{"toy_small", "toy_wide"}));
  EXPECT_EQ(make_toy({{"model", "toy_wide"}})->embed->weight.size(0), 16);
  const auto error = [](const io::Json& config) -> std::string {
    try {
      make_toy(config);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(error({{"model", "deit_tiny"}}), "model is \"deit_tiny\"; it may be toy_small, toy_wide");
  EXPECT_NE(error({{"tokens", 12}}).find("\"model\""), std::string::npos);
}

TEST_F(ToyFamily, IsMadeAgainFromItsFile) {
  torch::manual_seed(1);
  const auto saved = make_toy({{"model", "toy_small"}, {"tokens", 24}});
  save_model(*saved, file_, {{"note", "toy"}}, at::kFloat);
  const auto file = io::SafeTensors::load(file_);
  const auto loaded = make_toy(stored_json(file, kConfig));
  EXPECT_EQ(load_weights(*loaded, file, LoadMode::strict).text(), "");
  EXPECT_EQ(loaded->config(), saved->config());
  EXPECT_TRUE(at::equal(loaded->forward(tokens(24)), saved->forward(tokens(24))));
}

TEST_F(ToyFamily, TakesWeightsOfOtherNamesAndSizes) {
  const auto source = make_toy({{"model", "toy_small"}, {"tokens", 24}, {"blocks", 3}});
  NamedTensors tensors = named_tensors(*source);
  for (const auto& [ours, theirs] : {std::pair{"embed.weight", "wte.weight"}, {"block.norm.bias", "block.ln.bias"}}) {
    auto node = tensors.extract(ours);
    node.key() = theirs;
    tensors.insert(std::move(node));
  }
  io::save_tensors(file_, tensors);
  const auto target = make_toy({{"model", "toy_small"}});
  const LoadReport report = load_weights(*target, file_, LoadMode::adapt);
  EXPECT_EQ(report.adapted, std::vector<std::string>{"positions: [1, 24, 8] resized to [1, 12, 8]"});
  EXPECT_TRUE(report.missing.empty() && report.extra.empty() && report.misshapen.empty()) << report.text();
  EXPECT_TRUE(at::equal(target->embed->weight, source->embed->weight));
}

TEST_F(ToyFamily, TrainsThroughTheTrainer) {
  torch::manual_seed(2);
  const auto model = make_toy({{"model", "toy_small"}});
  const NamedTensors before = [&] {
    NamedTensors copies;
    for (const auto& [name, tensor] : named_tensors(*model)) copies[name] = tensor.clone();
    return copies;
  }();
  LabelTask task(model);
  std::ostringstream text;
  train::TrainerOptions options;
  options.out = folder_ / "run";
  options.schedule = {.peak = 0.5, .warmup = 0, .steps = 2};
  options.text = &text;
  const auto alone = train::alone();
  EXPECT_EQ(train::Trainer(task, options, *alone).run(), train::Ending::finished) << text.str();
  EXPECT_EQ(task.steps, 2);
  EXPECT_EQ(task.saved, 1);
  EXPECT_FALSE(at::equal(model->embed->weight, before.at("embed.weight")));
  const at::Tensor mixing = model->block->attention->mixing;
  EXPECT_FALSE(at::equal(mixing, before.at("block.attention.mixing")));
  EXPECT_GE(mixing.min().item<double>(), 0.0);
  EXPECT_LE(mixing.max().item<double>(), 1.0);
}

}  // namespace
}  // namespace mhla::models
