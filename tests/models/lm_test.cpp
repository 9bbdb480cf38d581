// Language models: sizes, options, documents, batches, training.
#include "models/lm/lm.hpp"

#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>

#include "models/registry.hpp"
#include "models/small_lm.hpp"
#include "support/expect_error.hpp"

namespace mhla::models {
namespace {

using testing::all_small_lms;
using testing::description;
using testing::random_ids;
using testing::relative_error;
using testing::small_lm;
using testing::small_lm_options;

// Elements of the matrices, as the design counts them, and of the norms: two and that of a head's output in a layer,
// and the last one. Without memory for the model.
std::int64_t counted(const LmOptions& options) {
  const LmDesign design(options);
  std::int64_t norms = design.width;
  for (std::size_t layer = 0; layer < design.attention.size(); ++layer) {
    norms += 2 * design.width;
    if (design.attention[layer] != nn::CausalKind::softmax) norms += design.attention_options(layer).value_width;
  }
  return static_cast<std::int64_t>(design.least_elements()) + norms;
}

TEST(Lm, HasThePublishedNumberOfParameters) {
  EXPECT_EQ(counted({}), 341'130'240);
  LmOptions options;
  options.attention = {"softmax"};
  EXPECT_EQ(counted(options), 32'000 * 1024 + 24 * (4 * 1024 * 1024 + 3 * 1024 * 2816 + 2 * 1024) + 1024);
  for (const char* attention : {"mhla", "softmax", "linear"}) {  // and models have as many as is counted
    options = small_lm_options({attention});
    EXPECT_EQ(counted(options), testing::parameter_count(*small_lm(options))) << attention;
    options.kv_heads = 1, options.tied = options.output_gate = false;
    EXPECT_EQ(counted(options), testing::parameter_count(*small_lm(options))) << attention;
  }
}

TEST(Lm, WeightsHaveTheAuthorsNames) {
  LmOptions options = small_lm_options();
  options.short_convolution = true;
  options.tied = false;
  const auto parameters = small_lm(options)->named_parameters();
  for (const char* name :
       {"model.embeddings.weight", "model.norm.weight", "lm_head.weight", "model.layers.1.attn_norm.weight",
        "model.layers.1.mlp_norm.weight", "model.layers.1.mlp.gate_proj.weight", "model.layers.1.mlp.up_proj.weight",
        "model.layers.1.mlp.down_proj.weight", "model.layers.1.attn.q_proj.weight", "model.layers.1.attn.k_proj.weight",
        "model.layers.1.attn.v_proj.weight", "model.layers.1.attn.g_proj.weight", "model.layers.1.attn.o_proj.weight",
        "model.layers.1.attn.mixing_matrix", "model.layers.1.attn.g_norm_swish_gate.weight",
        "model.layers.1.attn.q_conv1d.weight", "model.layers.1.attn.k_conv1d.weight",
        "model.layers.1.attn.v_conv1d.weight"})
    EXPECT_TRUE(parameters.contains(name)) << name;
  EXPECT_EQ(parameters.size(), 3 + 2 * 15);
  EXPECT_EQ(parameters["model.layers.0.attn.mixing_matrix"].sizes(), (std::vector<std::int64_t>{4, 4, 1, 1, 1, 1}));
  EXPECT_EQ(parameters["model.layers.0.attn.q_conv1d.weight"].sizes(), (std::vector<std::int64_t>{16, 1, 4}));
}

TEST(Lm, IsFoundByItsName) {
  EXPECT_EQ(model_names("language"), (std::vector<std::string>{"lm_tiny", "lm_small", "lm_base", "lm_340m"}));
  const auto model = make_model(small_lm_options(), "language");
  EXPECT_EQ(model->config().get<LmOptions>(), small_lm_options());
}

TEST(Lm, WrongOptionsAreNamed) {
  const auto refused = [](const auto& change, std::initializer_list<std::string_view> mentions) {
    LmOptions options = small_lm_options();
    change(options);
    expect_error([&] { static_cast<void>(LmDesign(options)); }, mentions);
  };
  refused([](LmOptions& o) { o.model = "lm_1b"; }, {"model \"lm_1b\""});
  refused([](LmOptions& o) { o.attention = {"dense"}; }, {"attention is \"dense\"", "softmax, linear, gla or mhla"});
  refused([](LmOptions& o) { o.attention = {}; }, {"attention is empty"});
  refused([](LmOptions& o) { o.attention = {"mhla", "gla", "gla"}; }, {"attention has 3 entries", "2 layers"});
  refused([](LmOptions& o) { o.feature_map = "tanh"; }, {"feature_map is \"tanh\"", "dpfp"});
  refused([](LmOptions& o) { o.beyond = "guess"; }, {"guess"});
  refused([](LmOptions& o) { o.mixing_init = "guess"; }, {"guess"});
  refused([](LmOptions& o) { o.vocabulary = 0; }, {"vocabulary is 0"});
  refused([](LmOptions& o) { o.blocks = 0; }, {"blocks is 0"});
  refused([](LmOptions& o) { o.kv_heads = 3; }, {"kv_heads is 3", "divisor of heads, 2"});
  refused([](LmOptions& o) { o.key_ratio = 0.3; }, {"key_ratio is 0.3"});
  refused([](LmOptions& o) { o.value_ratio = -1.0; }, {"value_ratio is -1"});
  refused([](LmOptions& o) { o.heads = 3, o.attention = {"softmax"}; }, {"heads is 3", "width, 32"});
  refused([](LmOptions& o) { o.heads = 16; }, {"heads is 16", "even"});
  refused([](LmOptions& o) { o.norm_eps = 0.0; }, {"norm_eps is 0"});
  expect_error([] { static_cast<void>(io::Json{{"widht", 3}}.get<LmOptions>()); }, {"language model option \"widht\""});
}

TEST(Lm, WrongInputsAreNamed) {
  const auto model = small_lm(small_lm_options());
  expect_error([&] { model->forward(torch::zeros({2, 3})); }, {"ids", "int64 [batch, tokens]"});
  expect_error([&] { model->forward(torch::full({1, 3}, 50)); }, {"ids go from 50 to 50", "0 to 49"});
  expect_error([&] { model->forward(random_ids(1, 33)); }, {"5 blocks", "trained for 4", "beyond may be clamp"});
  expect_error([&] { model->forward(random_ids(2, 8), {0, 3, 16}); }, {"documents do not end at token 8"});
  expect_error([&] { model->forward(random_ids(1, 8), {0, 9}); }, {"documents do not go from 0 to 8"});
  expect_error([&] { model->forward(random_ids(1, 8), {0, 5, 3, 8}); }, {"documents are not in ascending order"});
}

TEST(Lm, NoTokenSeesALaterOneOrAnotherRow) {
  const torch::NoGradGuard no_gradient;
  for (const LmOptions& options : all_small_lms()) {
    const auto model = small_lm(options);
    const at::Tensor ids = random_ids(3, 21), together = model->forward(ids);
    at::Tensor changed = ids.clone();
    changed.slice(1, 13).fill_(7);  // as a shorter prompt that is filled up
    EXPECT_LT(relative_error(model->forward(changed).slice(1, 0, 13), together.slice(1, 0, 13)), 1e-5)
        << description(options);
    EXPECT_LT(relative_error(model->forward(ids.slice(0, 1, 2))[0], together[1]), 1e-5) << description(options);
  }
}

TEST(Lm, PackedDocumentsAreAsEachAlone) {
  const torch::NoGradGuard no_gradient;
  const std::vector<std::int64_t> documents = {0, 1, 9, 9, 20, 33, 36, 40};  // of 1 to 13 tokens, one is empty
  for (const LmOptions& options : all_small_lms()) {
    const auto model = small_lm(options);
    const at::Tensor ids = random_ids(2, 20), packed = model->forward(ids, documents).flatten(0, 1);
    for (std::size_t d = 0; d + 1 < documents.size(); ++d) {
      if (documents[d] == documents[d + 1]) continue;
      const at::Tensor alone = model->forward(ids.view({1, 40}).slice(1, documents[d], documents[d + 1]))[0];
      EXPECT_LT(relative_error(packed.slice(0, documents[d], documents[d + 1]), alone), 1e-5)
          << description(options) << ", document " << d;
    }
  }
}

TEST(Lm, MoreBlocksThanTrainedWeighAsThePolicySays) {
  const torch::NoGradGuard no_gradient;
  const at::Tensor ids = random_ids(1, 60);
  std::vector<at::Tensor> logits;
  for (const char* beyond : {"clamp", "running-mean", "interpolate"}) {
    LmOptions options = small_lm_options();
    options.beyond = beyond;
    logits.push_back(small_lm(options)->forward(ids));
    options.beyond = "error";
    EXPECT_LT(relative_error(logits.back().slice(1, 0, 32), small_lm(options)->forward(ids.slice(1, 0, 32))), 1e-5);
  }
  EXPECT_GT(relative_error(logits[0], logits[1]), 1e-3);
  EXPECT_GT(relative_error(logits[0], logits[2]), 1e-3);
}

TEST(Lm, LinearAttentionDoesNotDependOnItsBlocks) {
  const torch::NoGradGuard no_gradient;
  LmOptions options = small_lm_options({"linear"});
  const at::Tensor ids = random_ids(1, 600);
  options.block_size = 2;  // 300 blocks
  const at::Tensor logits = small_lm(options)->forward(ids);
  options.block_size = 64;
  EXPECT_LT(relative_error(logits, small_lm(options)->forward(ids)), 1e-5);
}

TEST(Lm, EveryParameterLearnsAndMatricesStayInRange) {
  for (const LmOptions& options : all_small_lms()) {
    const auto model = small_lm(options);
    const at::Tensor ids = random_ids(2, 30);
    torch::optim::SGD optimizer(model->parameters(), 1.0);
    at::cross_entropy_loss(model->forward(ids).slice(1, 0, -1).flatten(0, 1), ids.slice(1, 1).flatten()).backward();
    for (const auto& item : model->named_parameters())
      EXPECT_GT(item.value().grad().abs().max().item<float>(), 0.0F) << item.key() << ", " << description(options);
    optimizer.step();
    for (const at::Tensor& mixing : model->mixing_parameters())
      if (mixing.defined()) torch::NoGradGuard(), mixing.data().add_(0.9);
    model->after_step();
    for (const at::Tensor& mixing : model->mixing_parameters())
      if (mixing.defined()) EXPECT_EQ(mixing.max().item<float>(), 1.0F);
    EXPECT_FALSE(model->decays("model.layers.0.attn.mixing_matrix"));
    EXPECT_TRUE(model->decays("model.layers.0.attn.q_proj.weight"));
  }
}

TEST(Lm, RecomputationGivesTheSameGradients) {
  for (LmOptions options : all_small_lms()) {
    const at::Tensor ids = random_ids(2, 20);
    const auto kept = small_lm(options);
    options.recompute = true;
    const auto again = small_lm(options);
    kept->forward(ids, {0, 7, 20, 40}).square().mean().backward();
    again->forward(ids, {0, 7, 20, 40}).square().mean().backward();
    const auto parameters = again->named_parameters();
    for (const auto& item : kept->named_parameters())
      EXPECT_TRUE(at::allclose(item.value().grad(), parameters[item.key()].grad())) << item.key();
  }
}

// Along a random direction in all parameters at once, in double.
TEST(Lm, GradientsAreThoseOfFiniteDifferences) {
  for (const LmOptions& options : all_small_lms()) {
    const auto model = small_lm(options);
    model->to(at::kDouble);
    const at::Tensor ids = random_ids(2, 19);
    const auto loss = [&] {
      return at::cross_entropy_loss(model->forward(ids, {0, 12, 19, 38}).flatten(0, 1), ids.flatten());
    };
    loss().backward();
    const torch::NoGradGuard no_gradient;
    std::vector<at::Tensor> directions;
    double slope = 0.0;
    for (at::Tensor& parameter : model->parameters()) {
      directions.push_back(torch::randn_like(parameter) * 0.1);
      slope += (parameter.grad() * directions.back()).sum().item<double>();
    }
    const auto moved = [&](double by) {
      auto parameters = model->parameters();
      for (std::size_t i = 0; i < parameters.size(); ++i) parameters[i].add_(directions[i], by);
      return loss().item<double>();
    };
    constexpr double kStep = 1e-5;
    const double ahead = moved(kStep), behind = moved(-2.0 * kStep);
    EXPECT_NEAR((ahead - behind) / (2.0 * kStep), slope, 1e-5 * std::abs(slope) + 1e-7) << description(options);
  }
}

TEST(GpuLm, LogitsStatesAndGradientsAreThoseOfTheCpu) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no CUDA device: GPU tests not run";
  for (const LmOptions& options : all_small_lms()) {
    const auto on_cpu = small_lm(options), on_gpu = small_lm(options);
    on_gpu->to(at::kCUDA);
    const at::Tensor ids = random_ids(2, 27);
    const std::vector<std::int64_t> documents = {0, 12, 27, 54};
    const at::Tensor expected = on_cpu->forward(ids, documents), found = on_gpu->forward(ids.cuda(), documents);
    EXPECT_LT(relative_error(found.cpu(), expected), 1e-4) << description(options);
    expected.square().sum().backward();
    found.square().sum().backward();
    const auto parameters = on_gpu->named_parameters();
    for (const auto& item : on_cpu->named_parameters())
      EXPECT_LT(relative_error(parameters[item.key()].grad().cpu(), item.value().grad()), 1e-3) << item.key();

    const torch::NoGradGuard no_gradient;
    const at::Tensor whole = on_cpu->forward(ids);
    for (const std::int64_t prefilled : {5, 16, 19}) {
      LmState state = on_gpu->new_state(2);
      at::Tensor logits = on_gpu->prefill(state, ids.slice(1, 0, prefilled).cuda());
      for (std::int64_t token = prefilled; token < 27; ++token) {
        EXPECT_LT(relative_error(logits.cpu(), whole.select(1, token - 1)), 1e-4) << description(options) << token;
        logits = on_gpu->step(state, ids.select(1, token).cuda());
      }
    }
    LmState ragged = on_gpu->new_state(2);  // rows at different tokens
    on_gpu->prefill(ragged, std::vector{ids[0].slice(0, 0, 3).cuda(), ids[1].slice(0, 0, 18).cuda()});
    const at::Tensor next = at::stack({ids[0][3], ids[1][18]}), logits = on_gpu->step(ragged, next.cuda()).cpu();
    EXPECT_LT(relative_error(logits, at::stack({whole[0][3], whole[1][18]})), 1e-4) << description(options);
  }
}

// Gradients are finite, and a state goes on in the type of autocast.
void expect_training_under_autocast(at::DeviceType device) {
  for (const LmOptions& options : all_small_lms()) {
    const auto model = small_lm(options);
    model->to(device);
    const at::Tensor ids = random_ids(2, 27).to(device);
    at::autocast::set_autocast_enabled(device, true);
    at::autocast::set_autocast_dtype(device, at::kBFloat16);
    const at::Tensor logits = model->forward(ids);
    LmState state = model->new_state(2);
    model->prefill(state, ids.slice(1, 0, 11));
    at::Tensor last;
    for (std::int64_t token = 11; token < 27; ++token) last = model->step(state, ids.select(1, token));
    at::autocast::set_autocast_enabled(device, false);
    at::autocast::clear_cache();
    EXPECT_LT(relative_error(last.to(at::kFloat), logits.select(1, 26).to(at::kFloat)), 0.1) << description(options);
    logits.to(at::kFloat).square().mean().backward();
    for (const auto& item : model->named_parameters())
      EXPECT_TRUE(item.value().grad().isfinite().all().item<bool>()) << item.key() << ", " << description(options);
  }
}

TEST(Lm, RunsAndStreamsInBfloat16) {
  const torch::NoGradGuard no_gradient;
  for (const LmOptions& options : all_small_lms()) {
    const auto model = small_lm(options);
    const at::Tensor ids = random_ids(2, 20), expected = model->forward(ids);
    model->to(at::kBFloat16);
    EXPECT_LT(relative_error(model->forward(ids).to(at::kFloat), expected), 0.1) << description(options);
    LmState state = model->new_state(2);
    at::Tensor logits = model->prefill(state, ids.slice(1, 0, 9));
    for (std::int64_t token = 9; token < 20; ++token) logits = model->step(state, ids.select(1, token));
    EXPECT_EQ(logits.scalar_type(), at::kBFloat16);
    EXPECT_LT(relative_error(logits.to(at::kFloat), expected.select(1, 19)), 0.1) << description(options);
  }
}

TEST(GpuLm, TrainsUnderAutocast) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no CUDA device: GPU tests not run";
  expect_training_under_autocast(at::kCUDA);
}

TEST(Lm, TrainsUnderAutocast) { expect_training_under_autocast(at::kCPU); }

}  // namespace
}  // namespace mhla::models
