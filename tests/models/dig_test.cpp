// DiG: sizes, scans, the model against a formula of its own, training, files, guidance.
#include "models/dig/dig.hpp"

#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "models/base/weights.hpp"
#include "models/generator_file.hpp"
#include "models/generators.hpp"
#include "models/small_model.hpp"
#include "support/expect_error.hpp"
#include "support/temporary_folder.hpp"

namespace mhla::models {
namespace {

GeneratorOptions small_dig() {
  GeneratorOptions options;
  options.model = "dig_s2";
  options.size = {4, 6};
  options.channels = 4;
  options.classes = 5;
  options.width = 24;
  options.depth = 5;
  options.heads = 3;
  options.blocks = {2, 3};
  return options;
}
GeneratorOptions small_dig(const std::vector<std::string>& attention) {
  GeneratorOptions options = small_dig();
  options.attention = attention;
  return options;
}
const std::vector<std::vector<std::string>> kDigAttentions = {{"gla"}, {"mhla"}, {"gla", "mhla", "gla", "gla", "mhla"}};

struct NoisedPictures {
  at::Tensor x, t, y;
};
NoisedPictures noised_pictures(std::int64_t batch, std::int64_t height, std::int64_t width) {
  return {torch::randn({batch, 4, height, width}), torch::randint(0, 1000, {batch}), torch::randint(0, 6, {batch})};
}

// 1,043,744 outside the blocks, as of DiT-S/2; in each of 12 blocks 887,040 of the modulation, 1,179,648 of the MLP,
// 3,840 of the convolution, and the attention. GLA: 2 (384 x 192) + 3 (384 x 384) + (384 x 16 + 16 x 192 + 192) + 64.
// MHLA: 384 x 1152 + 2 (384 x 384 + 384) + 16 x 16.
TEST(Dig, ParameterCountsFollowFromTheLayers) {
  GeneratorOptions options;
  options.model = "dig_s2";
  EXPECT_EQ(testing::parameter_count(*make_generator(options)), 1'043'744 + 12 * (2'070'528 + 599'296));
  options.attention = {"mhla"};
  EXPECT_EQ(testing::parameter_count(*make_generator(options)), 1'043'744 + 12 * (2'070'528 + 738'304));
}

TEST(Dig, SizesAreThoseOfThePublishedModels) {
  GeneratorOptions options;
  for (const auto& [model, width, depth, heads] : {std::tuple{"dig_s2", 384, 12, 6},
                                                   {"dig_b2", 768, 12, 12},
                                                   {"dig_l2", 1024, 24, 16},
                                                   {"dig_xl2", 1152, 28, 18}}) {
    options.model = model;
    const DigDesign design(options);
    EXPECT_EQ(design.width, width);
    EXPECT_EQ(design.depth, depth);
    EXPECT_EQ(design.heads, heads);
    EXPECT_EQ(design.patch, 2);
    EXPECT_EQ(design.grid, (nn::Grid{16, 16}));
    EXPECT_EQ(design.scans.back(), scan_number(3)) << "the depth is a multiple of four";
  }
}

TEST(Dig, WeightsHaveThePublishedNames) {
  const auto parameters = make_generator(small_dig())->named_parameters();
  for (const char* name :
       {"attn.q_proj.weight", "attn.k_proj.weight", "attn.v_proj.weight", "attn.g_proj.weight", "attn.o_proj.weight",
        "attn.gk_proj.0.weight", "attn.gk_proj.1.weight", "attn.gk_proj.1.bias", "attn.g_norm_swish_gate.weight",
        "mlp.gate_proj.weight", "mlp.down_proj.weight", "adaLN_modulation.1.weight", "adaLN_modulation.1.bias",
        "dw_conv.weight", "dw_conv.bias"})
    EXPECT_TRUE(parameters.contains(std::string("blocks.4.") + name)) << name;
}

// Tokens numbered row by row on a grid of 2 x 3.
TEST(Scan, FourDirectionsAndThenTheFirstAgain) {
  const nn::Grid grid{2, 3};
  const std::vector<std::vector<std::int64_t>> orders = {
      {0, 1, 2, 3, 4, 5}, {5, 4, 3, 2, 1, 0}, {0, 3, 1, 4, 2, 5}, {5, 2, 4, 1, 3, 0}};
  at::Tensor tokens = torch::arange(6).view({1, 6, 1});
  for (std::int64_t step = 0; step < 9; ++step) {
    EXPECT_TRUE(torch::equal(tokens.flatten(), torch::tensor(orders[static_cast<std::size_t>(step % 4)]))) << step;
    for (std::int64_t other = 0; other < 4; ++other)
      EXPECT_TRUE(torch::equal(rescanned(tokens, grid, scan_number(step), scan_number(other)).flatten(),
                               torch::tensor(orders[static_cast<std::size_t>(other)])))
          << step << " to " << other;
    tokens = rescanned(tokens, grid, scan_number(step), scan_number(step + 1));
  }
}

TEST(Scan, LayersOfGlaTakeTurnsAndMhlaSeesTheGrid) {
  const DigDesign mixed(small_dig({"gla", "mhla", "gla", "gla", "mhla"}));
  EXPECT_EQ(mixed.scans, (std::vector<Scan>{scan_number(0), {}, scan_number(1), scan_number(2), {}}));
  EXPECT_EQ(DigDesign(small_dig({"mhla"})).scans, std::vector<Scan>(5));
}

// The whole model in double for one picture, tokens in explicit orders and GLA one token after the other.
class DigFormula {
 public:
  explicit DigFormula(const Generator& model) {
    for (const auto& [name, tensor] : named_tensors(model)) weights_[name] = tensor.to(at::kDouble);
  }

  at::Tensor output(const at::Tensor& x, double t, std::int64_t y) {
    const std::int64_t rows = x.size(1) / 2, columns = x.size(2) / 2;
    at::Tensor tokens = at::conv2d(x.unsqueeze(0), w("x_embedder.proj.weight"), w("x_embedder.proj.bias"), 2)
                            .view({kWidth, rows * columns})
                            .t() +
                        w("pos_embed")[0];
    const at::Tensor angles = t * torch::pow(10000.0, -torch::arange(128, at::kDouble) / 128.0);
    const at::Tensor waves = torch::cat({angles.cos(), angles.sin()});
    const at::Tensor c = linear("t_embedder.mlp.2", at::silu(linear("t_embedder.mlp.0", waves))) +
                         w("y_embedder.embedding_table.weight")[y];
    for (std::int64_t layer = 0; layer < 5; ++layer) {
      const at::Tensor order = order_of(layer, rows, columns);
      const bool down = layer % 4 >= 2;
      const at::Tensor result = block("blocks." + std::to_string(layer) + ".", tokens.index_select(0, order), c,
                                      down ? columns : rows, down ? rows : columns);
      tokens = tokens.index_copy(0, order, result);
    }
    const auto parts = linear("final_layer.adaLN_modulation.1", at::silu(c)).chunk(2);
    const at::Tensor patches = linear("final_layer.linear", normed(tokens) * (1.0 + parts[1]) + parts[0]);
    return patches.view({rows, columns, 2, 2, 8}).permute({4, 0, 2, 1, 3}).reshape({8, 2 * rows, 2 * columns});
  }

 private:
  static constexpr std::int64_t kWidth = 24, kHeads = 3, kKey = 4, kValue = 8;

  at::Tensor w(const std::string& name) { return weights_.at(name); }
  at::Tensor linear(const std::string& name, const at::Tensor& x) {
    return at::linear(x, w(name + ".weight"), w(name + ".bias"));
  }
  static at::Tensor normed(const at::Tensor& x) { return at::layer_norm(x, {kWidth}, {}, {}, 1e-6); }

  static at::Tensor order_of(std::int64_t layer, std::int64_t rows, std::int64_t columns) {
    std::vector<std::int64_t> order;
    for (std::int64_t i = 0; i < rows * columns; ++i)
      order.push_back(layer % 4 < 2 ? i : i % rows * columns + i / rows);  // along rows, or down columns
    if (layer % 2 == 1) std::ranges::reverse(order);
    return torch::tensor(order);
  }

  at::Tensor attention(const std::string& name, const at::Tensor& x) {
    const auto projected = [&](const char* part) { return x.matmul(w(name + part + ".weight").t()); };
    const at::Tensor q = projected("q_proj"), k = projected("k_proj"), v = projected("v_proj"), g = projected("g_proj");
    const at::Tensor keep = torch::exp(torch::log_sigmoid(linear(name + "gk_proj.1", projected("gk_proj.0"))) / 16.0);
    at::Tensor o = torch::empty_like(v);
    for (std::int64_t head = 0; head < kHeads; ++head) {
      at::Tensor state = torch::zeros({kKey, kValue}, at::kDouble);
      for (std::int64_t token = 0; token < x.size(0); ++token) {
        const auto key = [&](const at::Tensor& y) { return y[token].narrow(0, head * kKey, kKey); };
        state = key(keep).unsqueeze(1) * state + torch::outer(key(k), v[token].narrow(0, head * kValue, kValue));
        const at::Tensor read = key(q).matmul(state) / std::sqrt(static_cast<double>(kKey));
        o[token].narrow(0, head * kValue, kValue) =
            read / torch::sqrt(read.square().mean() + 1e-6) * w(name + "g_norm_swish_gate.weight");
      }
    }
    return (o * torch::silu(g)).matmul(w(name + "o_proj.weight").t());
  }

  at::Tensor block(const std::string& name, at::Tensor x, const at::Tensor& c, std::int64_t rows,
                   std::int64_t columns) {
    const auto parts = linear(name + "adaLN_modulation.1", at::silu(c)).chunk(6);
    x = x + parts[2] * attention(name + "attn.", normed(x) * (1.0 + parts[1]) + parts[0]);
    const auto hidden =
        (normed(x) * (1.0 + parts[4]) + parts[3]).matmul(w(name + "mlp.gate_proj.weight").t()).chunk(2, 1);
    x = x + parts[5] * (at::silu(hidden[0]) * hidden[1]).matmul(w(name + "mlp.down_proj.weight").t());
    const at::Tensor image = x.t().reshape({1, kWidth, rows, columns});
    return at::conv2d(image, w(name + "dw_conv.weight"), w(name + "dw_conv.bias"), 1, 1, 1, kWidth)
        .view({kWidth, rows * columns})
        .t();
  }

  std::map<std::string, at::Tensor> weights_;
};

TEST(Dig, IsItsFormula) {
  torch::manual_seed(1);
  const auto model = make_generator(small_dig());
  testing::shake(*model);
  const torch::NoGradGuard no_gradient;
  model->to(at::kDouble);
  const at::Tensor x = torch::randn({1, 4, 4, 6}, at::kDouble);
  for (const std::int64_t t : {0, 7})
    EXPECT_LT(testing::relative_error(model->forward(x, torch::full({1}, t), torch::full({1}, 2, at::kLong))[0],
                                      DigFormula(*model).output(x[0], static_cast<double>(t), 2)),
              1e-6)
        << t;
}

TEST(Dig, StartsAsZeroNoiseWithSmallWeightsInGla) {
  torch::manual_seed(2);
  const auto model = make_generator(small_dig());
  const auto [x, t, y] = noised_pictures(2, 4, 6);
  EXPECT_EQ(model->forward(x, t, y).abs().max().item<float>(), 0.0F);
  const auto parameters = model->named_parameters();
  const auto largest = [&](const char* name) { return parameters[name].abs().max().item<double>(); };
  const auto xavier = [](double from, double to) { return std::sqrt(6.0 / (from + to)); };
  EXPECT_LE(largest("blocks.0.attn.v_proj.weight"), std::exp2(-2.5) * xavier(24, 24));
  EXPECT_GT(largest("blocks.0.attn.v_proj.weight"), 0.9 * std::exp2(-2.5) * xavier(24, 24));
  EXPECT_GT(largest("blocks.0.mlp.down_proj.weight"), 0.9 * xavier(256, 24));
}

TEST(Dig, EveryParameterLearns) {
  torch::manual_seed(3);
  for (const auto& attention : kDigAttentions) {
    const auto model = make_generator(small_dig(attention));
    testing::shake(*model);
    const auto [x, t, y] = noised_pictures(2, 4, 6);
    model->forward(x, t, y).square().mean().backward();
    for (const auto& item : model->named_parameters()) {
      if (item.key() == "pos_embed") continue;
      ASSERT_TRUE(item.value().grad().defined()) << item.key();
      EXPECT_GT(item.value().grad().abs().max().item<float>(), 0.0F) << item.key();
    }
  }
}

TEST(Dig, AFewStepsLowerTheLoss) {
  for (const auto& attention : kDigAttentions) {
    torch::manual_seed(4);
    const auto model = make_generator(small_dig(attention));
    torch::optim::AdamW optimizer(model->parameters(), torch::optim::AdamWOptions(5e-3));
    const auto [x, t, y] = noised_pictures(4, 4, 6);
    const at::Tensor target = torch::randn({4, 8, 4, 6});
    double first = 0.0, last = 0.0;
    for (int step = 0; step < 15; ++step) {
      optimizer.zero_grad();
      const at::Tensor loss = (model->forward(x, t, y) - target).square().mean();
      loss.backward();
      optimizer.step();
      model->after_step();
      (step == 0 ? first : last) = loss.item<double>();
    }
    EXPECT_LT(last, 0.5 * first) << attention.front();
  }
}

void expect_gradients_under_autocast(at::DeviceType device) {
  for (const auto& attention : kDigAttentions) {
    torch::manual_seed(9);
    const auto model = make_generator(small_dig(attention));
    testing::shake(*model);
    model->to(device);
    const auto [x, t, y] = noised_pictures(2, 4, 6);
    at::autocast::set_autocast_enabled(device, true);
    at::autocast::set_autocast_dtype(device, at::kBFloat16);
    const at::Tensor loss = model->forward(x.to(device), t.to(device), y.to(device)).to(at::kFloat).square().mean();
    at::autocast::set_autocast_enabled(device, false);
    at::autocast::clear_cache();
    loss.backward();
    for (const auto& item : model->named_parameters()) {
      if (item.key() == "pos_embed") continue;
      ASSERT_TRUE(item.value().grad().defined()) << item.key();
      EXPECT_TRUE(item.value().grad().isfinite().all().item<bool>()) << item.key();
    }
  }
}

TEST(Dig, TrainsUnderAutocast) { expect_gradients_under_autocast(at::kCPU); }

TEST(GpuDig, TrainsUnderAutocast) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no CUDA device: GPU tests not run";
  expect_gradients_under_autocast(at::kCUDA);
}

TEST(GpuDig, NoiseAndGradientsAreThoseOfTheCpu) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no CUDA device: GPU tests not run";
  at::globalContext().setAllowTF32CuDNN(false);
  for (const auto& attention : kDigAttentions) {
    torch::manual_seed(10);
    const auto on_cpu = make_generator(small_dig(attention)), on_gpu = make_generator(small_dig(attention));
    testing::shake(*on_cpu);
    load_tensors(*on_gpu, named_tensors(*on_cpu), "the other model");
    on_gpu->to(at::kCUDA);
    const auto [x, t, y] = noised_pictures(2, 18, 22);
    const at::Tensor expected = on_cpu->forward(x, t, y);
    const at::Tensor found = on_gpu->forward(x.to(at::kCUDA), t.to(at::kCUDA), y.to(at::kCUDA));
    EXPECT_LT(testing::relative_error(found.cpu(), expected), 1e-4);
    expected.square().sum().backward();
    found.square().sum().backward();
    const auto parameters = on_gpu->named_parameters();
    for (const auto& item : on_cpu->named_parameters()) {
      if (item.key() == "pos_embed") continue;
      EXPECT_LT(testing::relative_error(parameters[item.key()].grad().cpu(), item.value().grad()), 1e-3) << item.key();
    }
  }
}

TEST(Dig, DrawsAnySizeAndNoPictureDependsOnItsBatch) {
  torch::manual_seed(5);
  const torch::NoGradGuard no_gradient;
  for (const auto& attention : kDigAttentions) {
    const auto model = make_generator(small_dig(attention));
    testing::shake(*model);
    for (const auto& [height, width] : {std::pair{4, 6}, {12, 4}, {2, 2}, {18, 22}}) {
      const auto [x, t, y] = noised_pictures(3, height, width);
      const at::Tensor together = model->forward(x, t, y);
      EXPECT_EQ(together.sizes(), (std::vector<std::int64_t>{3, 8, height, width}));
      const at::Tensor alone = model->forward(x.slice(0, 1, 2), t.slice(0, 1, 2), y.slice(0, 1, 2));
      EXPECT_LT(testing::relative_error(alone[0], together[1]), 1e-5);
    }
  }
}

TEST(Dig, RecomputationGivesTheSameGradients) {
  torch::manual_seed(6);
  GeneratorOptions options = small_dig();
  const auto kept = make_generator(options);
  testing::shake(*kept);
  options.recompute = true;
  const auto again = make_generator(options);
  load_tensors(*again, named_tensors(*kept), "memory");
  const auto [x, t, y] = noised_pictures(2, 4, 6);
  kept->forward(x, t, y).square().mean().backward();
  again->forward(x, t, y).square().mean().backward();
  const auto expected = kept->named_parameters();
  for (const auto& item : again->named_parameters()) {
    if (item.key() == "pos_embed") continue;
    EXPECT_TRUE(torch::allclose(item.value().grad(), expected[item.key()].grad(), 1e-4, 1e-7)) << item.key();
  }
}

TEST(Dig, AFileGivesTheSameBits) {
  const mhla::testing::TemporaryFolder folder;
  for (const auto& attention : kDigAttentions) {
    torch::manual_seed(7);
    const auto model = make_generator(small_dig(attention));
    testing::shake(*model);
    model->eval();
    save_generator(*model, folder / "dig.safetensors", {.classes = {"a", "b", "c", "d", "e"}});
    const auto [loaded, facts] = load_generator(folder / "dig.safetensors");
    EXPECT_EQ(loaded->options, model->options);
    EXPECT_EQ(facts.classes.size(), 5);
    const auto [x, t, y] = noised_pictures(2, 4, 6);
    EXPECT_TRUE(torch::equal(loaded->forward(x, t, y), model->forward(x, t, y)));
  }
}

TEST(Dig, AttentionIsGlaUnlessGivenAndTheFileSaysSo) {
  EXPECT_EQ(make_generator(small_dig())->options.attention, std::vector<std::string>{"gla"});
  EXPECT_EQ(make_generator(small_dig())->config()["attention"], io::Json::array({"gla"}));
}

TEST(Dig, GuidanceIsOnAllChannelsOfTheNoise) {
  torch::manual_seed(8);
  const auto model = make_generator(small_dig());
  testing::shake(*model);
  const torch::NoGradGuard no_gradient;
  const auto [x, t, y] = noised_pictures(1, 4, 6);
  const at::Tensor null = torch::full({1}, model->null_class(), at::kLong), cls = torch::full({1}, 2, at::kLong);
  const at::Tensor with = model->forward(x, t, cls), without = model->forward(x, t, null);
  const at::Tensor guided =
      model->forward_with_cfg(torch::cat({x, torch::randn_like(x)}), torch::cat({t, t}), torch::cat({cls, null}), 3.0);
  const at::Tensor noise = without.narrow(1, 0, 4) + 3.0 * (with.narrow(1, 0, 4) - without.narrow(1, 0, 4));
  EXPECT_LT(testing::relative_error(guided.narrow(1, 0, 4), torch::cat({noise, noise})), 1e-5);
  EXPECT_LT(testing::relative_error(guided.narrow(1, 4, 4), torch::cat({with, without}).narrow(1, 4, 4)), 1e-5);
}

// Never more than the tensors have, and most of it.
TEST(Dig, LeastElementsAreNearlyAllOfTheModels) {
  for (const auto& attention : kDigAttentions) {
    GeneratorOptions options = small_dig(attention);
    options.width = 96;
    double elements = 0.0;
    for (const auto& [name, tensor] : named_tensors(*make_generator(options)))
      elements += static_cast<double>(tensor.numel());
    const double least = DigDesign(options).least_elements();
    EXPECT_LE(least, elements);
    EXPECT_GE(least, 0.75 * elements);
  }
}

TEST(Dig, ImpossibleOptionsAreRefusedByName) {
  expect_error([] { make_generator(small_dig({"softmax"})); }, {"attention is \"softmax\"", "gla or mhla"});
  expect_error([] { make_generator(small_dig({"gla", "gla"})); }, {"attention has 2 entries", "5 layers"});
  GeneratorOptions options = small_dig({"gla"});
  options.model = "dit_s2";
  expect_error([&] { make_generator(options); }, {"attention is \"gla\"", "softmax, linear or mhla"});
  options = small_dig();
  options.heads = 8;
  expect_error([&] { make_generator(options); }, {"heads is 8", "half the width"});
  options.attention = {"mhla"};
  EXPECT_NO_THROW(make_generator(options));
  options = small_dig();
  options.lepe = true;
  expect_error([&] { make_generator(options); }, {"lepe is true", "mhla"});
  options.attention = {"mhla"};
  EXPECT_NO_THROW(make_generator(options));
  options = small_dig();
  options.model = "dig_s4";
  expect_error([&] { make_generator(options); }, {"model is \"dig_s4\"", "dig_xl2"});
}

}  // namespace
}  // namespace mhla::models
