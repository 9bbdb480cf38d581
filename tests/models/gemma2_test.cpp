// Gemma-2 as a text encoder: what tokens see, and which configs are refused. Its values: the parity case gemma2.
#include "models/gemma2/gemma2.hpp"

#include <gtest/gtest.h>

#include "models/small_model.hpp"
#include "support/expect_error.hpp"

namespace mhla::models {
namespace {

Gemma2Options small_gemma2() {
  return {.vocab_size = 40,
          .hidden_size = 16,
          .intermediate_size = 24,
          .num_hidden_layers = 1,
          .num_attention_heads = 4,
          .num_key_value_heads = 2,
          .head_dim = 8,
          .query_pre_attn_scalar = 8,
          .sliding_window = 3};
}

at::Tensor gemma2_states(const Gemma2Options& options, const at::Tensor& ids, const at::Tensor& mask = {}) {
  const torch::NoGradGuard no_gradient;
  torch::manual_seed(4);
  Gemma2 model(options);
  testing::shake(model);
  return model.forward(ids, mask);
}

const at::Tensor kGemmaIds = torch::arange(10).view({1, 10});

// The places of the states that a change of token `at` reaches.
std::vector<std::int64_t> gemma2_reached(const Gemma2Options& options, std::int64_t at) {
  at::Tensor other = kGemmaIds.clone();
  other[0][at] = 39;
  const at::Tensor changed =
      gemma2_states(options, other).ne(gemma2_states(options, kGemmaIds)).any(2)[0].nonzero().squeeze(1);
  return {changed.data_ptr<std::int64_t>(), changed.data_ptr<std::int64_t>() + changed.numel()};
}

TEST(Gemma2, TheFirstLayerSeesAWindowAndTheSecondAllEarlierTokens) {
  Gemma2Options options = small_gemma2();
  EXPECT_EQ(gemma2_reached(options, 4), (std::vector<std::int64_t>{4, 5, 6}));
  options.num_hidden_layers = 2;
  EXPECT_EQ(gemma2_reached(options, 4), (std::vector<std::int64_t>{4, 5, 6, 7, 8, 9}));
}

TEST(Gemma2, PaddingChangesNoOtherToken) {
  Gemma2Options options = small_gemma2();
  options.num_hidden_layers = 3;
  const at::Tensor mask = torch::tensor({{1, 1, 1, 1, 1, 1, 0, 0, 0, 0}});
  const at::Tensor padded = gemma2_states(options, kGemmaIds, mask);
  EXPECT_TRUE(torch::allclose(padded.narrow(1, 0, 6), gemma2_states(options, kGemmaIds.narrow(1, 0, 6)), 1e-5, 1e-6));
  EXPECT_TRUE(padded.narrow(1, 6, 4).eq(0.0).all().item<bool>());
}

TEST(Gemma2, NamesWhatItCannotBe) {
  const auto refused = [](auto change, std::initializer_list<std::string_view> words) {
    Gemma2Options options = small_gemma2();
    change(options);
    mhla::expect_error([&] { Gemma2 model(options); }, words);
  };
  refused([](Gemma2Options& options) { options.num_key_value_heads = 3; },
          {"num_key_value_heads is 3", "divisor of num_attention_heads, 4"});
  refused([](Gemma2Options& options) { options.head_dim = 7; }, {"head_dim is 7", "even"});
  refused([](Gemma2Options& options) { options.rms_norm_eps = 0.0; }, {"rms_norm_eps is 0", "above 0"});
  mhla::expect_error([] { gemma2_states(small_gemma2(), kGemmaIds + 35); }, {"ids", "outside 0 to 39"});
  mhla::expect_error([] { gemma2_states(small_gemma2(), kGemmaIds, torch::ones({1, 9})); },
                     {"mask has shape [1, 9]", "[1, 10]"});
  mhla::expect_error([] { static_cast<void>(io::Json{{"head_dim", "wide"}}.get<Gemma2Options>()); }, {"head_dim"});
}

}  // namespace
}  // namespace mhla::models
