// mhla::attention for LibTorch programs: values and gradients against composed torch functions in double.
#include <gtest/gtest.h>

#include <tuple>

#include "mhla/torch.hpp"
#include "torch/composed.hpp"
#include "torch/device.hpp"

namespace mhla {
namespace {

constexpr double kTolerance = 1e-10;

const auto* const kNeedsItsDevice = testing::AddGlobalTestEnvironment(new test::NeedsItsDevice);

struct Tensors {
  at::Tensor q, k, v, mixing;
  std::vector<at::Tensor> all() const { return {q, k, v, mixing}; }
};

Tensors random_tensors(const Partition& partition, std::int64_t mixing_blocks, int seed = 0) {
  torch::manual_seed(seed);
  const auto options = at::TensorOptions(at::kDouble).device(test::device());
  const std::int64_t tokens = partition.tokens();
  Tensors t{torch::randn({2, tokens, 4, 5}, options), torch::randn({2, tokens, 2, 5}, options),
            torch::randn({2, tokens, 2, 3}, options), torch::rand({mixing_blocks, mixing_blocks}, options) + 0.1};
  for (at::Tensor& tensor : t.all()) tensor.requires_grad_();
  return t;
}

void expect_close(const at::Tensor& actual, const at::Tensor& expected, const char* what) {
  ASSERT_EQ(actual.sizes(), expected.sizes()) << what;
  EXPECT_LE((actual - expected).abs().max().item<double>(), kTolerance) << what;
}

using Combination = std::tuple<FeatureMap, Normalizer, Masking, Algorithm>;
class EveryCombination : public testing::TestWithParam<Combination> {};

TEST_P(EveryCombination, EqualsComposedTorchInValueAndGradient) {
  const auto [feature_map, normalizer, masking, algorithm] = GetParam();
  const AttentionOptions options{
      .partition = masking == Masking::none ? Partition::grid({5, 6}, {2, 3}) : Partition::line(30, 4),
      .feature_map = feature_map,
      .normalizer = normalizer,
      .masking = masking,
      .algorithm = algorithm,
      .scale = 0.6,
      .eps = feature_map == FeatureMap::identity ? 100.0 : 1e-3,
      .feature_eps = 0.02};
  const Tensors t = random_tensors(options.partition, options.partition.blocks());
  const at::Tensor actual = attention(t.q, t.k, t.v, t.mixing, options);
  const at::Tensor expected = test::composed_attention(t.q, t.k, t.v, t.mixing, options);
  expect_close(actual, expected, "o");
  const at::Tensor weight = torch::randn_like(expected);
  const auto gradients = torch::autograd::grad({actual}, t.all(), {weight});
  const auto exact = torch::autograd::grad({expected}, t.all(), {weight});
  for (int i = 0; i < 4; ++i) expect_close(gradients[i], exact[i], std::array{"q", "k", "v", "mixing"}[i]);
}

INSTANTIATE_TEST_SUITE_P(Options, EveryCombination,
                         testing::Combine(testing::Values(FeatureMap::identity, FeatureMap::relu,
                                                          FeatureMap::elu_plus_one, FeatureMap::exp,
                                                          FeatureMap::squared_relu),
                                          testing::Values(Normalizer::none, Normalizer::paper),
                                          testing::Values(Masking::none, Masking::block_causal, Masking::token_causal),
                                          testing::Values(Algorithm::summary, Algorithm::dense)));

TEST(Attention, StateOfOneCallContinuesInTheNext) {
  AttentionOptions options{.partition = Partition::line(30, 4), .masking = Masking::token_causal};
  const Tensors t = random_tensors(options.partition, 8);
  const at::Tensor whole = attention(t.q, t.k, t.v, t.mixing, options);
  const auto piece = [](const at::Tensor& x, std::int64_t begin, std::int64_t end) { return x.slice(1, begin, end); };

  options.partition = Partition::line(14, 4);
  const AttentionResult head =
      attention_with_state(piece(t.q, 0, 14), piece(t.k, 0, 14), piece(t.v, 0, 14), t.mixing, options);
  EXPECT_EQ(head.S.sizes(), (std::vector<std::int64_t>{2, 2, 4, 5, 3}));
  EXPECT_EQ(head.z.sizes(), (std::vector<std::int64_t>{2, 2, 4, 5}));
  options.partition = Partition::line(16, 4);
  options.initial_S = head.S;
  options.initial_z = head.z;
  options.initial_tokens = 14;
  const at::Tensor tail = attention(piece(t.q, 14, 30), piece(t.k, 14, 30), piece(t.v, 14, 30), t.mixing, options);
  const at::Tensor cut = torch::cat({head.o, tail}, 1);
  expect_close(cut, whole, "o");
  const at::Tensor weight = torch::randn_like(whole);
  const auto gradients = torch::autograd::grad({cut}, t.all(), {weight});
  const auto exact = torch::autograd::grad({whole}, t.all(), {weight});
  for (int i = 0; i < 4; ++i) expect_close(gradients[i], exact[i], std::array{"q", "k", "v", "mixing"}[i]);
}

TEST(Attention, PackedSequencesHaveOneStateRowEach) {
  AttentionOptions options{.partition = Partition::line(30, 4), .masking = Masking::token_causal};
  const Tensors t = random_tensors(options.partition, 8);
  options.cu_seqlens = torch::tensor({0, 11, 30}, at::kLong);
  const auto first = [](const at::Tensor& x) { return x.slice(0, 0, 1); };
  const AttentionResult packed = attention_with_state(first(t.q), first(t.k), first(t.v), t.mixing, options);
  EXPECT_EQ(packed.S.size(0), 2);
  EXPECT_EQ(packed.S.size(2), 5);

  const AttentionOptions alone{.partition = Partition::line(11, 4), .masking = Masking::token_causal};
  const auto head = [&](const at::Tensor& x) { return first(x).slice(1, 0, 11); };
  expect_close(packed.o.slice(1, 0, 11), attention(head(t.q), head(t.k), head(t.v), t.mixing, alone), "o");
}

TEST(Attention, ViewsThatNegateAreReadAsTheyAre) {
  const torch::NoGradGuard no_grad;
  const auto negated = [](const at::Tensor& x) { return at::_neg_view(-x); };
  AttentionOptions options{.partition = Partition::line(30, 4), .masking = Masking::token_causal};
  const Tensors t = random_tensors(options.partition, 8);
  const auto first = [](const at::Tensor& x) { return x.slice(0, 0, 1); };
  options.cu_seqlens = torch::tensor({0, 11, 30}, at::kLong);
  const AttentionResult expected = attention_with_state(first(t.q), first(t.k), first(t.v), t.mixing, options);
  options.cu_seqlens = negated(*options.cu_seqlens);
  const AttentionResult actual =
      attention_with_state(negated(first(t.q)), first(t.k), negated(first(t.v)), negated(t.mixing), options);
  EXPECT_TRUE(torch::equal(actual.o, expected.o));
  EXPECT_TRUE(torch::equal(actual.S, expected.S));

  const auto line = [](std::int64_t blocks) { return Partition::line(4 * blocks, 4); };
  EXPECT_TRUE(
      torch::equal(resize_mixing(negated(t.mixing), line(8), line(5)), resize_mixing(t.mixing, line(8), line(5))));
  at::Tensor projected = t.mixing * 3 - 1, view = negated(projected);
  project_mixing_(projected, true);
  project_mixing_(view, true);
  EXPECT_TRUE(torch::equal(view, projected));
}

TEST(Attention, RunsTheSameOnOneThreadAndOnTwo) {
  const AttentionOptions options{.partition = Partition::grid({16, 16}, {4, 4})};
  const Tensors t = random_tensors(options.partition, 16);
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const at::Tensor one = attention(t.q, t.k, t.v, t.mixing, options);
  at::set_num_threads(2);
  const at::Tensor two = attention(t.q, t.k, t.v, t.mixing, options);
  at::set_num_threads(threads);
  EXPECT_TRUE(torch::equal(one, two));
}

TEST(Attention, UnneededGradientsAreNotComputed) {
  const AttentionOptions options{.partition = Partition::line(8, 4)};
  Tensors t = random_tensors(options.partition, 2);
  const at::Tensor fixed = t.mixing.detach();
  attention(t.q, t.k, t.v, fixed, options).sum().backward();
  EXPECT_TRUE(t.q.grad().defined());
  EXPECT_FALSE(fixed.grad().defined());
}

}  // namespace
}  // namespace mhla
