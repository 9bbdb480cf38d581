// Sana: MHLA with equal weights is its linear attention; weights under two sets of names; other sizes.
#include "models/sana/sana.hpp"

#include <gtest/gtest.h>

#include "models/base/weights.hpp"
#include "models/small_model.hpp"
#include "support/expect_error.hpp"
#include "support/temporary_folder.hpp"

namespace mhla::models {
namespace {

SanaOptions small_sana_options(const std::string& attention) {
  SanaOptions options;
  options.model = "sana_tiny";
  options.attention = {attention};
  options.size = {8, 8};
  options.blocks = {2, 2};
  options.channels = 4;
  options.caption_width = 12;
  options.width = 32;
  options.depth = 2;
  options.heads = 4;
  options.cross_heads = 2;
  return options;
}

std::shared_ptr<Sana> small_sana(const std::string& attention) {
  torch::manual_seed(2);
  auto model = std::make_shared<Sana>(small_sana_options(attention));
  testing::shake(*model);
  model->eval();
  return model;
}

struct SanaInputs {
  at::Tensor x = torch::linspace(-1, 1, 2 * 4 * 8 * 8).sin().view({2, 4, 8, 8});
  at::Tensor t = torch::tensor({20.0, 900.0});
  at::Tensor states = torch::linspace(0, 30, 2 * 5 * 12).cos().view({2, 5, 12});
  at::Tensor mask = torch::tensor({{1, 1, 1, 1, 1}, {1, 1, 0, 0, 0}});
};

at::Tensor velocity(Sana& model, const SanaInputs& inputs) {
  const torch::NoGradGuard no_gradient;
  const at::TensorOptions like = model.parameters().front().options();
  return model.forward(inputs.x.to(like), inputs.t.to(like), model.text(inputs.states.to(like), inputs.mask));
}

// The same weights in MHLA, whose matrices start with equal entries.
std::shared_ptr<Sana> as_mhla(Sana& linear) {
  const mhla::testing::TemporaryFolder folder;
  save_model(linear, folder / "linear.safetensors");
  auto model = std::make_shared<Sana>(small_sana_options("mhla"));
  const LoadReport report = load_weights(*model, folder / "linear.safetensors", LoadMode::adapt);
  EXPECT_EQ(report.missing.size(), 2U) << report.text();
  EXPECT_TRUE(report.extra.empty() && report.misshapen.empty()) << report.text();
  model->eval();
  return model;
}

TEST(Sana, MhlaMadeFromALinearCheckpointIsTheSameFunction) {
  const auto linear = small_sana("linear"), mhla = as_mhla(*linear);
  const SanaInputs inputs;
  linear->to(at::kDouble), mhla->to(at::kDouble);
  const at::Tensor exact = velocity(*linear, inputs);
  EXPECT_LT((velocity(*mhla, inputs) - exact).abs().max().item<double>(), 1e-13 * exact.abs().max().item<double>());
  linear->to(at::kBFloat16), mhla->to(at::kBFloat16);
  const auto error = [&](Sana& model) {
    return ((velocity(model, inputs).to(at::kDouble) - exact).norm() / exact.norm()).item<double>();
  };
  EXPECT_LT(error(*mhla), 2.0 * error(*linear) + 1e-3);
}

TEST(Sana, PaddingOfTheTextIsNotSeen) {
  const auto model = small_sana("mhla");
  SanaInputs inputs;
  const at::Tensor before = velocity(*model, inputs);
  inputs.states[1].slice(0, 2) += 3.0;
  EXPECT_TRUE(torch::equal(velocity(*model, inputs), before));
  inputs.states[0][4] += 3.0;
  EXPECT_FALSE(torch::equal(velocity(*model, inputs), before));
}

TEST(Sana, LatentsOfOtherSizesKeepTheNumberOfBlocks) {
  const auto model = small_sana("mhla");
  SanaInputs inputs;
  inputs.x = torch::linspace(-1, 1, 2 * 4 * 7 * 12).view({2, 4, 7, 12});
  EXPECT_EQ(velocity(*model, inputs).sizes(), inputs.x.sizes());
}

TEST(Sana, EveryParameterLearns) {
  for (const char* attention : {"linear", "mhla", "softmax"}) {
    const auto model = small_sana(attention);
    const SanaInputs inputs;
    model->forward(inputs.x, inputs.t, model->text(inputs.states, inputs.mask)).square().sum().backward();
    for (const auto& item : model->named_parameters())
      EXPECT_TRUE(item.value().grad().defined() && item.value().grad().abs().sum().item<float>() > 0)
          << attention << " " << item.key();
  }
}

TEST(Sana, TheNamesOfDiffusersAreUnderstood) {
  const auto model = small_sana("linear");
  NamedTensors stored;
  for (const auto& [name, tensor] : named_tensors(*model)) stored[name] = tensor;
  // The other way round, for a layer of each kind.
  const auto split = [&](const std::string& whole, const std::vector<std::string>& parts) {
    const auto rows = stored.at(whole).chunk(static_cast<std::int64_t>(parts.size()));
    stored.erase(whole);
    for (std::size_t i = 0; i < parts.size(); ++i) stored[parts[i]] = rows[i];
  };
  const std::string block = "transformer_blocks.0.";
  split("blocks.0.attn.qkv.weight",
        {block + "attn1.to_q.weight", block + "attn1.to_k.weight", block + "attn1.to_v.weight"});
  split("blocks.0.cross_attn.kv_linear.weight", {block + "attn2.to_k.weight", block + "attn2.to_v.weight"});
  split("blocks.0.cross_attn.kv_linear.bias", {block + "attn2.to_k.bias", block + "attn2.to_v.bias"});
  for (const auto& [ours, theirs] : {std::pair{"blocks.0.cross_attn.q_linear.weight", "attn2.to_q.weight"},
                                     std::pair{"blocks.0.cross_attn.proj.weight", "attn2.to_out.0.weight"},
                                     std::pair{"blocks.0.mlp.point_conv.conv.weight", "ff.conv_point.weight"}}) {
    stored[block + theirs] = stored.at(ours);
    stored.erase(ours);
  }
  stored["y_embedder.y_embedding"] = torch::zeros({3, 12});
  LoadReport report;
  model->convert(named_tensors(*model), stored, report);
  load_tensors(*model, stored, "stored");
  EXPECT_EQ(report.adapted, std::vector<std::string>{"y_embedder.y_embedding: left out"});
}

TEST(Sana, HasTheSizeOfThePublishedModel) {
  SanaDesign design([] {
    SanaOptions options;
    options.model = "sana_0.6b";
    return options;
  }());
  EXPECT_EQ(design.width, 1152);
  EXPECT_EQ(design.mlp_width, 2880);
  EXPECT_LT(design.least_elements(), 591'747'872.0);
  EXPECT_GT(design.least_elements(), 560'000'000.0);
}

TEST(Sana, NamesWhatItCannotBe) {
  const auto refused = [](auto change, std::initializer_list<std::string_view> words) {
    SanaOptions options = small_sana_options("mhla");
    change(options);
    mhla::expect_error([&] { SanaDesign design(options); }, words);
  };
  refused([](SanaOptions& options) { options.model = "sana_5b"; }, {"sana_5b", "sana_tiny, sana_0.6b, sana_1.6b"});
  refused([](SanaOptions& options) { options.heads = 5; }, {"heads is 5", "divisor of width, 32"});
  refused([](SanaOptions& options) { options.mlp_ratio = -1.0; }, {"mlp_ratio is -1"});
  refused([](SanaOptions& options) { options.attention = {"gla"}; }, {"gla"});
  const auto model = small_sana("mhla");
  const SanaInputs inputs;
  mhla::expect_error([&] { model->text(inputs.x.select(1, 0)); }, {"states", "[batch, tokens, 12]"});
  mhla::expect_error([&] { model->forward(inputs.x.narrow(1, 0, 3), inputs.t, model->text(inputs.states)); },
                     {"x has shape [2, 3, 8, 8]", "[batch, 4, height, width]"});
}

}  // namespace
}  // namespace mhla::models
