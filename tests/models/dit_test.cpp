// The diffusion transformer: sizes, the start, other grids, guidance, weights of the original DiT.
#include "models/dit/dit.hpp"

#include <gtest/gtest.h>

#include "models/base/weights.hpp"
#include "models/generator_file.hpp"
#include "models/generators.hpp"
#include "models/small_model.hpp"
#include "nn/input_mixing.hpp"
#include "support/expect_error.hpp"
#include "support/temporary_folder.hpp"

namespace mhla::models {
namespace {

GeneratorOptions small() {
  GeneratorOptions options;
  options.size = {8, 12};
  options.channels = 3;
  options.classes = 5;
  options.width = 24;
  options.depth = 2;
  options.heads = 3;
  options.blocks = {2, 3};
  return options;
}

struct Inputs {
  at::Tensor x, t, y;
};
Inputs inputs(std::int64_t batch, std::int64_t height, std::int64_t width) {
  return {torch::randn({batch, 3, height, width}), torch::randint(0, 1000, {batch}), torch::randint(0, 6, {batch})};
}

std::int64_t parameter_count(const GeneratorOptions& options) {
  return testing::parameter_count(*make_generator(options));
}

TEST(Dit, ParameterCountsAreThoseOfTheTable) {
  GeneratorOptions options;
  options.preset = "authors";
  EXPECT_EQ(parameter_count(options), 33'021'728);
  options.attention = {"softmax"};
  EXPECT_EQ(parameter_count(options), 32'963'360);
}

// DiT-XL/2 at 256 x 256 pixels, counted without making 28 layers.
TEST(Dit, OfTheLargestModelOnlyMixingMatricesAreNotThoseOfTheOriginal) {
  const auto count = [](const char* attention, bool cpe, bool gate) {
    GeneratorOptions options;
    options.model = "dit_xl2";
    options.attention = {attention};
    options.size = {32, 32};
    options.channels = 4;
    options.classes = 1000;
    options.learned_variance = true;
    options.cpe = cpe;
    options.gate = gate;
    options.depth = 1;
    const std::int64_t one = parameter_count(options);
    options.depth = 2;
    return one + 27 * (parameter_count(options) - one);
  };
  constexpr std::int64_t kOriginal = 675'129'632;
  EXPECT_EQ(count("softmax", false, false), kOriginal);
  EXPECT_EQ(count("mhla", false, false) - kOriginal, 28 * 256);
  EXPECT_EQ(count("mhla", true, true) - kOriginal, 28 * (256 + 11'520 + 1'328'256));
}

TEST(Dit, StartsAsZeroNoise) {
  torch::manual_seed(1);
  const auto model = make_generator(small());
  const auto [x, t, y] = inputs(2, 8, 12);
  const at::Tensor output = model->forward(x, t, y);
  EXPECT_EQ(output.sizes(), (std::vector<std::int64_t>{2, 6, 8, 12}));
  EXPECT_EQ(output.abs().max().item<float>(), 0.0F);
}

TEST(Dit, EveryOptionChangesTheOutputAndLearns) {
  torch::manual_seed(2);
  for (const char* attention : {"softmax", "linear", "mhla"})
    for (const int extra : {0, 1, 2, 3, 4, 5, 6}) {
      GeneratorOptions options = small();
      options.attention = {attention};
      options.lepe = extra == 1;
      options.cpe = extra == 2;
      options.gate = extra == 3;
      options.qk_norm = extra == 4;
      options.learned_variance = extra != 5;
      options.mixing = extra == 6 ? "input" : "static";
      const auto model = make_generator(options);
      testing::shake(*model);
      const auto [x, t, y] = inputs(2, 8, 12);
      const at::Tensor output = model->forward(x, t, y);
      EXPECT_EQ(output.size(1), options.learned_variance ? 6 : 3);
      output.square().mean().backward();
      for (const auto& item : model->named_parameters())
        if (item.key() != "pos_embed") {
          ASSERT_TRUE(item.value().grad().defined()) << attention << ' ' << extra << ' ' << item.key();
          EXPECT_GT(item.value().grad().abs().max().item<float>(), 0.0F) << attention << ' ' << extra << item.key();
        }
    }
}

TEST(Dit, AttentionIsChosenPerLayer) {
  GeneratorOptions options = small();
  options.attention = {"softmax", "mhla"};
  const auto parameters = make_generator(options)->named_parameters();
  EXPECT_FALSE(parameters.contains("blocks.0.attn.piece_attn.conv.weight"));
  EXPECT_TRUE(parameters.contains("blocks.1.attn.piece_attn.conv.weight"));
}

TEST(Dit, MixingByInputStartsAsStaticMixingWithRowsNormalised) {
  GeneratorOptions options = small();
  const auto fixed = make_generator(options);
  options.mixing = "input";
  const auto moved = make_generator(options);
  testing::shake(*moved);
  moved->after_step();
  const torch::NoGradGuard no_gradient;
  const auto parameters = moved->named_parameters();
  for (auto& item : fixed->named_parameters()) {
    const at::Tensor& value = parameters[item.key()];
    item.value().copy_(is_mixing(item.key()) ? value / value.sum(1, true) : value);
  }
  for (auto& item : parameters)
    if (item.key().ends_with(".tau")) item.value().zero_();
  const auto [x, t, y] = inputs(2, 8, 12);
  EXPECT_TRUE(torch::allclose(moved->forward(x, t, y), fixed->forward(x, t, y), 1e-4, 1e-5));
  parameters["blocks.1.attn.piece_attn.tau"].fill_(1.0);
  EXPECT_FALSE(torch::allclose(moved->forward(x, t, y), fixed->forward(x, t, y), 1e-4, 1e-5));
}

TEST(Dit, MixingByInputKeepsItsEntriesPositive) {
  GeneratorOptions options = small();
  options.mixing = "input";
  const auto model = make_generator(options);
  const torch::NoGradGuard no_gradient;
  for (const at::Tensor& mixing : model->mixing_parameters()) {
    EXPECT_GT(mixing.min().item<double>(), 0.0) << "the initial matrix has zeros";
    mixing.copy_(at::linspace(-1.0, 2.0, mixing.numel()).view_as(mixing));
  }
  model->after_step();
  for (const at::Tensor& mixing : model->mixing_parameters()) {
    EXPECT_EQ(mixing.min().item<float>(), static_cast<float>(nn::kLeastInputMixing));
    EXPECT_EQ(mixing.max().item<float>(), 1.0F);
  }
}

TEST(Dit, MixingByInputSurvivesFilesAndRecomputation) {
  const mhla::testing::TemporaryFolder folder;
  GeneratorOptions options = small();
  options.mixing = "input";
  torch::manual_seed(6);
  const auto model = make_generator(options);
  testing::shake(*model);
  model->eval();
  save_generator(*model, folder / "model.safetensors", {.classes = {"a", "b", "c", "d", "e"}});
  const auto loaded = load_generator(folder / "model.safetensors").model;
  EXPECT_EQ(loaded->options.mixing, "input");
  const auto [x, t, y] = inputs(2, 8, 12);
  EXPECT_TRUE(torch::equal(loaded->forward(x, t, y), model->forward(x, t, y)));

  options.recompute = true;
  const auto again = make_generator(options);
  {
    const torch::NoGradGuard no_gradient;
    for (auto& item : again->named_parameters()) item.value().copy_(model->named_parameters()[item.key()]);
  }
  for (const auto& network : {model, again}) network->forward(x, t, y).square().mean().backward();
  for (const auto& item : model->named_parameters())
    if (item.key() != "pos_embed")
      EXPECT_TRUE(torch::equal(again->named_parameters()[item.key()].grad(), item.value().grad())) << item.key();
}

TEST(Dit, MixingThatNoModelHasIsRefusedByName) {
  GeneratorOptions options = small();
  options.mixing = "dynamic";
  expect_error([&] { make_generator(options); }, {"mixing is \"dynamic\"", "static or input"});
  options.mixing = "input";
  options.preset = "authors";
  expect_error([&] { make_generator(options); }, {"mixing is \"input\"", "preset paper"});
}

// Columns first, then rows: a picture and its transpose differ by their positions alone.
TEST(Dit, PositionsEncodeColumnsThenRows) {
  const at::Tensor wide = sine_positions({2, 3}, 8).view({2, 3, 8}), tall = sine_positions({3, 2}, 8).view({3, 2, 8});
  EXPECT_TRUE(torch::equal(wide.slice(2, 0, 4), tall.slice(2, 4).transpose(0, 1)));
  EXPECT_NEAR(wide[0][2][0].item<double>(), std::sin(2.0), 1e-6);
  EXPECT_NEAR(wide[0][2][1].item<double>(), std::sin(2.0 / 100.0), 1e-6);
  EXPECT_NEAR(wide[0][2][2].item<double>(), std::cos(2.0), 1e-6);
  EXPECT_NEAR(wide[1][2][4].item<double>(), std::sin(1.0), 1e-6);
}

TEST(Dit, DrawsOtherSizesThanItWasMadeFor) {
  torch::manual_seed(3);
  const auto model = make_generator(small());
  testing::shake(*model);
  for (const auto& [height, width] : {std::pair{16, 12}, std::pair{10, 6}, std::pair{2, 2}}) {
    const auto [x, t, y] = inputs(1, height, width);
    const at::Tensor output = model->forward(x, t, y);
    EXPECT_EQ(output.size(2), height);
    EXPECT_EQ(output.size(3), width);
    EXPECT_TRUE(output.isfinite().all().item<bool>());
  }
}

TEST(Dit, AnImageDoesNotDependOnItsBatch) {
  torch::manual_seed(4);
  const auto model = make_generator(small());
  model->eval();
  testing::shake(*model);
  const auto [x, t, y] = inputs(3, 8, 12);
  const at::Tensor together = model->forward(x, t, y);
  const at::Tensor alone = model->forward(x.slice(0, 1, 2), t.slice(0, 1, 2), y.slice(0, 1, 2));
  EXPECT_TRUE(torch::allclose(together[1], alone[0], 1e-4, 1e-5));
}

TEST(Dit, GuidanceMovesAwayFromTheNullClass) {
  torch::manual_seed(5);
  const auto model = make_generator(small());
  testing::shake(*model);
  const torch::NoGradGuard no_gradient;
  const auto [x, t, y] = inputs(1, 8, 12);
  const at::Tensor null = torch::full({1}, model->null_class(), torch::kInt64),
                   cls = torch::full({1}, 2, torch::kInt64);
  const at::Tensor with = model->forward(x, t, cls), without = model->forward(x, t, null);
  const at::Tensor guided =
      model->forward_with_cfg(torch::cat({x, torch::randn_like(x)}), torch::cat({t, t}), torch::cat({cls, null}), 3.0);
  const at::Tensor expected = without.narrow(1, 0, 3) + 3.0 * (with.narrow(1, 0, 3) - without.narrow(1, 0, 3));
  for (const int half : {0, 1})
    EXPECT_TRUE(torch::allclose(guided[half].narrow(0, 0, 3), expected[0], 1e-4, 1e-5)) << half;
  EXPECT_TRUE(torch::allclose(guided[0].narrow(0, 3, 3), with[0].narrow(0, 3, 3), 1e-4, 1e-5));
  EXPECT_TRUE(torch::allclose(guided[1].narrow(0, 3, 3), without[0].narrow(0, 3, 3), 1e-4, 1e-5));
}

TEST(Dit, RecomputationGivesTheSameGradients) {
  torch::manual_seed(6);
  GeneratorOptions options = small();
  const auto kept = make_generator(options);
  testing::shake(*kept);
  options.recompute = true;
  const auto again = make_generator(options);
  load_tensors(*again, named_tensors(*kept), "memory");
  const auto [x, t, y] = inputs(2, 8, 12);
  kept->forward(x, t, y).square().mean().backward();
  again->forward(x, t, y).square().mean().backward();
  const auto expected = kept->named_parameters();
  for (const auto& item : again->named_parameters()) {
    if (item.key() == "pos_embed") continue;
    EXPECT_TRUE(torch::allclose(item.value().grad(), expected[item.key()].grad(), 1e-4, 1e-7)) << item.key();
  }
}

TEST(Dit, WeightsOfTheOriginalModelLoadIntoSoftmaxWholeAndIntoMhlaButForTheMixing) {
  torch::manual_seed(7);
  GeneratorOptions options = small();
  options.attention = {"softmax"};
  const auto original = make_generator(options);
  testing::shake(*original);
  const mhla::testing::TemporaryFolder folder;
  // As the original program names them.
  const auto replaced = [](std::string name) {
    for (const auto& [ours, theirs] :
         {std::pair<std::string, std::string>{".attn.to_qkv.", ".attn.qkv."}, {".attn.to_out.0.", ".attn.proj."}})
      if (const auto at = name.find(ours); at != std::string::npos) name.replace(at, ours.size(), theirs);
    return name;
  };
  NamedTensors stored;
  for (const auto& [name, tensor] : named_tensors(*original)) stored[replaced(name)] = tensor;
  io::save_tensors(folder / "dit.safetensors", stored);

  const auto softmax = make_generator(options);
  const LoadReport whole = load_weights(*softmax, folder / "dit.safetensors", LoadMode::adapt);
  EXPECT_TRUE(whole.missing.empty() && whole.extra.empty() && whole.misshapen.empty()) << whole.text();
  const auto [x, t, y] = inputs(2, 8, 12);
  EXPECT_TRUE(torch::equal(softmax->forward(x, t, y), original->forward(x, t, y)));

  options.attention = {"mhla"};
  const auto mhla = make_generator(options);
  const LoadReport part = load_weights(*mhla, folder / "dit.safetensors", LoadMode::adapt);
  EXPECT_EQ(part.missing,
            (std::vector<std::string>{"blocks.0.attn.piece_attn.conv.weight", "blocks.1.attn.piece_attn.conv.weight"}));
  EXPECT_TRUE(part.extra.empty()) << part.text();
}

TEST(Dit, ImpossibleOptionsAndInputsAreRefusedByName) {
  const auto message = [](auto&& call) -> std::string {
    try {
      call();
    } catch (const Error& error) {
      return error.what();
    }
    return "nothing thrown";
  };
  GeneratorOptions options = small();
  options.size = {9, 12};
  EXPECT_NE(message([&] { make_generator(options); }).find("size is [9, 12]"), std::string::npos);
  options = small();
  options.heads = 5;
  EXPECT_NE(message([&] { make_generator(options); }).find("heads is 5"), std::string::npos);
  options = small();
  options.model = "dit_m2";
  EXPECT_NE(message([&] { make_generator(options); }).find("dit_xl8"), std::string::npos);
  const auto model = make_generator(small());
  auto [x, t, y] = inputs(2, 8, 12);
  EXPECT_NE(message([&] { model->forward(x.slice(1, 0, 2), t, y); }).find("x has shape"), std::string::npos);
  EXPECT_NE(message([&] { model->forward(x, t.slice(0, 0, 1), y); }).find("t has shape"), std::string::npos);
  EXPECT_NE(message([&] { model->forward_with_cfg(x.slice(0, 0, 1), t, y, 2.0); }).find("halves"), std::string::npos);
}

TEST(Dit, ASizeInAFileThatIsNoPairIsRefusedByName) {
  const mhla::testing::TemporaryFolder folder;
  for (const char* size : {"[]", "[8]", "[8, 0]", "[8, 8, 8]"}) {
    io::save_tensors(folder / "dit.safetensors", {{"pos_embed", torch::zeros({1, 24, 24})}},
                     {{"mhla.config", std::string(R"({"model": "dit_s2", "size": )") + size + "}"}});
    expect_error([&] { load_generator(folder / "dit.safetensors"); },
                 {"dit.safetensors: metadata \"mhla.config\": size is [", "it must be two numbers"});
  }
}

}  // namespace
}  // namespace mhla::models
