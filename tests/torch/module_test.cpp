// mhla::nn::MultiHeadLinearAttention and the tensor helpers for mixing matrices.
#include <gtest/gtest.h>

#include "mhla/torch.hpp"
#include "torch/device.hpp"

namespace mhla {
namespace {

using nn::MultiHeadLinearAttention;
using nn::MultiHeadLinearAttentionOptions;

TEST(Module, TrainsAndProjectionKeepsTheMatrixValid) {
  torch::manual_seed(0);
  MultiHeadLinearAttention layer(
      MultiHeadLinearAttentionOptions(16, 4, Partition::grid({6, 6}, {3, 3})).qk_norm(true).qkv_bias(true));
  layer->to(test::device());
  torch::optim::AdamW optimizer(layer->parameters(), torch::optim::AdamWOptions(1e-2));
  const at::Tensor x = torch::randn({4, 36, 16}, test::device()), target = torch::randn({4, 36, 16}, test::device());
  const at::Tensor initial = layer->mixing.detach().clone();
  double first = 0, last = 0;
  for (int step = 0; step < 20; ++step) {
    const at::Tensor loss = torch::mse_loss(layer->forward(x), target);
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    layer->project_();
    last = loss.item<double>();
    if (step == 0) first = last;
  }
  EXPECT_LT(last, 0.95 * first);
  EXPECT_FALSE(torch::equal(layer->mixing, initial));
  EXPECT_GE(layer->mixing.min().item<double>(), 0.0);
  EXPECT_LE(layer->mixing.max().item<double>(), 1.0);
}

TEST(Module, IsProjectionsAroundTheOperator) {
  torch::manual_seed(0);
  const Partition partition = Partition::grid({4, 4}, {2, 2});
  MultiHeadLinearAttention layer(
      MultiHeadLinearAttentionOptions(12, 3, partition).normalizer(Normalizer::authors).mixing_per_head(true));
  layer->to(test::device());
  EXPECT_EQ(layer->mixing.sizes(), (std::vector<std::int64_t>{3, 4, 4}));
  const at::Tensor x = torch::randn({2, 16, 12}, test::device());
  const auto parts = layer->qkv(x).chunk(3, -1);
  const auto heads = [](const at::Tensor& part) { return part.reshape({2, 16, 3, 4}); };
  const at::Tensor o = attention(heads(parts[0]), heads(parts[1]), heads(parts[2]), layer->mixing,
                                 {.partition = partition, .normalizer = Normalizer::authors});
  EXPECT_TRUE(torch::allclose(layer(x), layer->proj(o.reshape({2, 16, 12}))));
}

TEST(Module, CausalLayerTakesShorterInputs) {
  torch::manual_seed(0);
  MultiHeadLinearAttention layer(MultiHeadLinearAttentionOptions(12, 3, Partition::line(32, 8))
                                     .masking(Masking::token_causal)
                                     .mixing_init(MixingInit::running_mean));
  layer->to(test::device());
  const at::Tensor x = torch::randn({1, 32, 12}, test::device());
  EXPECT_TRUE(torch::allclose(layer(x).slice(1, 0, 19), layer(x.slice(1, 0, 19)), 1e-4, 1e-6));
}

TEST(Module, CloneIsIndependent) {
  MultiHeadLinearAttention layer(MultiHeadLinearAttentionOptions(8, 2, Partition::line(8, 4)));
  layer->to(test::device());
  const auto copy = std::dynamic_pointer_cast<nn::MultiHeadLinearAttentionImpl>(layer->clone());
  const at::Tensor x = torch::randn({1, 8, 8}, test::device());
  EXPECT_TRUE(torch::equal(copy->forward(x), layer(x)));
  torch::NoGradGuard no_grad;
  copy->mixing.zero_();
  EXPECT_GT(layer->mixing.abs().sum().item<double>(), 0.0);
}

TEST(Module, NamesWrongArguments) {
  const Partition partition = Partition::line(8, 4);
  EXPECT_THROW(MultiHeadLinearAttention(MultiHeadLinearAttentionOptions(8, 3, partition)), Error);
  MultiHeadLinearAttention layer(MultiHeadLinearAttentionOptions(8, 2, partition));
  layer->to(test::device());
  EXPECT_THROW(layer(torch::zeros({1, 8, 7}, test::device())), Error);
  EXPECT_THROW(layer(torch::zeros({1, 7, 8}, test::device())), Error);
}

TEST(MixingTensor, IsTheInitialiserOfTheLibrary) {
  const Partition partition = Partition::grid({16, 16}, {4, 4});
  const at::Tensor mixing = mixing_tensor(partition, MixingInit::paper);
  EXPECT_EQ(mixing.scalar_type(), at::kFloat);
  EXPECT_NEAR(mixing[0][1].item<double>(), 0.1103345, 1e-7);
  const at::Tensor per_head = mixing.expand({2, 16, 16});
  EXPECT_TRUE(torch::allclose(resize_mixing(per_head, partition, partition), per_head));
}

TEST(MixingTensor, ProjectionWorksInPlaceForEveryPrecision) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
    const at::Tensor mixing = torch::tensor({{-1.0, 0.5}, {2.0, 0.25}}).to(test::device(), dtype);
    project_mixing_(mixing);
    EXPECT_TRUE(torch::equal(mixing.to(at::kCPU, at::kFloat), torch::tensor({{0.0F, 0.5F}, {1.0F, 0.25F}})));
    project_mixing_(mixing.copy_(torch::tensor({{3.0, 1.0}, {-1.0, 0.0}})), true, 0.0, 3.0);
    EXPECT_TRUE(torch::equal(mixing.to(at::kCPU, at::kFloat), torch::tensor({{0.75F, 0.25F}, {0.0F, 0.0F}})));
  }
}

}  // namespace
}  // namespace mhla
