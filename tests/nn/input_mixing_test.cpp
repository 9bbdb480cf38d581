// Mixing that depends on the input against its definition, its gradients, and what it is before anything is learned.
#include "nn/input_mixing.hpp"

#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>

#include <memory>

#include "mhla/torch.hpp"
#include "nn/attention.hpp"
#include "nn/block_mixing.hpp"

namespace mhla::nn {
namespace {

const Partition& ragged() {
  static const Partition partition = Partition::grid({5, 7}, {2, 3});  // blocks of 9, 9, 3, 6, 6 and 2 tokens
  return partition;
}

struct Inputs {
  at::Tensor matrix, tau, q, k;
  Partition partition;

  explicit Inputs(const Partition& of, at::ScalarType type = at::kDouble) : partition(of) {
    torch::manual_seed(11);
    const at::TensorOptions options(type);
    matrix = torch::rand({of.blocks(), of.blocks()}, options) + 0.05;
    tau = torch::randn({3}, options);
    q = torch::randn({2, of.tokens(), 3, 4}, options).relu();
    k = torch::randn({2, of.tokens(), 3, 4}, options).relu();
  }
  at::Tensor mixing() const { return input_mixing(matrix, tau, q, k, partition); }
};

// Mean over the tokens of a block, token by token.
at::Tensor mean_of(const at::Tensor& x, const Partition& partition, std::int64_t block) {
  at::Tensor sum = torch::zeros_like(x[0]);
  for (std::int64_t token = 0; token < partition.tokens(); ++token)
    if (partition.block_of(token) == block) sum += x[token];
  return sum / static_cast<double>(partition.block_tokens(block));
}

TEST(InputMixing, IsItsDefinitionOnRaggedBlocks) {
  const Inputs in(ragged());
  const at::Tensor mixing = in.mixing();
  const std::int64_t M = ragged().blocks();
  ASSERT_EQ(mixing.sizes(), at::IntArrayRef({2, 3, M, M}));
  for (std::int64_t b = 0; b < 2; ++b)
    for (std::int64_t h = 0; h < 3; ++h) {
      std::vector<at::Tensor> q, k;
      for (std::int64_t block = 0; block < M; ++block) {
        q.push_back(mean_of(in.q[b].select(1, h), ragged(), block));
        k.push_back(mean_of(in.k[b].select(1, h), ragged(), block));
      }
      const at::Tensor q_centre = at::stack(q).mean(0), k_centre = at::stack(k).mean(0);
      at::Tensor logits = torch::zeros({M, M}, at::kDouble);
      for (std::int64_t i = 0; i < M; ++i)
        for (std::int64_t e = 0; e < M; ++e)
          logits[i][e] =
              in.matrix[i][e].log() + in.tau[h] * at::cosine_similarity(q[static_cast<std::size_t>(i)] - q_centre,
                                                                        k[static_cast<std::size_t>(e)] - k_centre, 0);
      EXPECT_TRUE(at::allclose(mixing[b][h], at::softmax(logits, -1), 1e-9, 1e-9)) << b << ' ' << h;
    }
}

TEST(InputMixing, WithoutTauIsTheMatrixWithItsRowsNormalised) {
  for (const Partition& partition : {ragged(), Partition::grid({4, 6}, {2, 3})}) {
    Inputs in(partition, at::kFloat);
    in.tau.zero_();
    const at::Tensor expected = at::softmax(in.matrix.log(), -1).expand({2, 3, -1, -1});
    EXPECT_TRUE(at::equal(in.mixing(), expected));
    EXPECT_TRUE(at::allclose(expected[0][0], in.matrix / in.matrix.sum(1, true)));
  }
}

TEST(InputMixing, GradientsAreThoseOfFiniteDifferences) {
  Inputs in(ragged());
  const at::Tensor factors = torch::randn({2, 3, 6, 6}, at::kDouble);
  const auto value = [&] { return (in.mixing() * factors).sum(); };
  for (at::Tensor* x : {&in.matrix, &in.tau, &in.q, &in.k}) {
    *x = x->detach().requires_grad_();
    const at::Tensor gradient = torch::autograd::grad({value()}, {*x})[0].reshape({-1});
    const torch::NoGradGuard no_gradient;
    const at::Tensor numbers = x->view({-1});
    constexpr double kStep = 1e-6;
    for (std::int64_t i = 0; i < std::min<std::int64_t>(numbers.numel(), 60); ++i) {
      numbers[i] += kStep;
      const auto above = value().item<double>();
      numbers[i] -= 2.0 * kStep;
      const auto below = value().item<double>();
      numbers[i] += kStep;
      EXPECT_NEAR(gradient[i].item<double>(), (above - below) / (2.0 * kStep), 1e-7) << i;
    }
  }
}

TEST(InputMixing, HasFiniteGradientsWhereBlocksAreAlikeAndEntriesAreZero) {
  Inputs in(ragged());
  in.q = torch::ones_like(in.q).requires_grad_();
  in.matrix = torch::zeros_like(in.matrix).requires_grad_();
  const at::Tensor mixing = in.mixing();
  EXPECT_TRUE(at::allclose(mixing, torch::full_like(mixing, 1.0 / 6.0)));
  mixing[0][0][0][0].backward();
  EXPECT_TRUE(in.q.grad().isfinite().all().item<bool>());
  EXPECT_TRUE(in.matrix.grad().isfinite().all().item<bool>());
}

TEST(InputMixing, KeepsThePrecisionOfFloatUnderAutocast) {
  Inputs in(Partition::grid({8, 8}, {2, 2}), at::kFloat);
  in.q = in.q.to(at::kBFloat16), in.k = in.k.to(at::kBFloat16);
  const at::Tensor expected = in.mixing();
  const bool before = at::autocast::is_autocast_enabled(at::kCPU);
  at::autocast::set_autocast_enabled(at::kCPU, true);
  const at::Tensor mixing = in.mixing();
  at::autocast::set_autocast_enabled(at::kCPU, before);
  EXPECT_EQ(mixing.scalar_type(), at::kFloat);
  EXPECT_TRUE(at::equal(mixing, expected));
}

// Of a layer: the operator takes a matrix per image and head, and weights() has the same ones.
TEST(InputMixing, AttentionMixesByIt) {
  torch::manual_seed(12);
  const Partition partition = Partition::grid({6, 6}, {3, 3});
  const auto layer =
      std::make_shared<GridAttention>(GridAttentionOptions{.dim = 12,
                                                           .heads = 3,
                                                           .partition = partition,
                                                           .lepe_side = 0,
                                                           .mixing = mixing_tensor(partition, MixingInit::paper),
                                                           .mixing_by_input = true});
  layer->to(at::kDouble);
  const at::Tensor x = torch::randn({2, 36, 12}, at::kDouble);
  const torch::NoGradGuard no_gradient;
  const at::Tensor before = layer->forward(x, {6, 6}).sum(), weights = layer->weights(x, {6, 6});
  const at::Tensor sums = weights.sum(-1);  // one, or zero where a query has no features
  EXPECT_LT((sums * (1.0 - sums)).abs().max().item<double>(), 1e-9);
  EXPECT_GT(sums.max().item<double>(), 0.5);
  layer->named_parameters()["piece_attn.tau"].fill_(2.0);
  EXPECT_GT((layer->forward(x, {6, 6}).sum() - before).abs().max().item<double>(), 1e-6);
  EXPECT_GT((layer->weights(x, {6, 6}) - weights).abs().max().item<double>(), 1e-4);
  EXPECT_EQ(layer->forward(x.slice(1, 0, 10), {2, 5}).sum().size(1), 10);  // room for fewer blocks
}

}  // namespace
}  // namespace mhla::nn
