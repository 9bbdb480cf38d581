// The loss in pieces against torch's own on whole logits.
#include "nn/linear_cross_entropy.hpp"

#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>

#include "support/expect_error.hpp"
#include "support/relative_error.hpp"

namespace mhla::nn {
namespace {

using mhla::testing::relative_error;

struct LossCase {
  at::Tensor hidden = torch::randn({3, 7, 6}, at::kDouble), weight = torch::randn({11, 6}, at::kDouble);
  at::Tensor labels = torch::randint(0, 11, {3, 7}, at::kLong);
};

// Loss and both gradients of three times the loss.
template <typename Loss>
std::vector<at::Tensor> everything(const LossCase& c, const Loss& loss) {
  const at::Tensor hidden = c.hidden.clone().requires_grad_(), weight = c.weight.clone().requires_grad_();
  const at::Tensor value = loss(hidden, weight);
  (3.0 * value).backward();
  return {value.detach(), hidden.grad(), weight.grad()};
}

TEST(LinearCrossEntropy, EqualsTheLossOfWholeLogits) {
  torch::manual_seed(1);
  LossCase c;
  for (const bool some_ignored : {false, true}) {
    if (some_ignored) c.labels.slice(1, 2, 4).fill_(-100);
    for (const LossReduction reduction : {LossReduction::mean, LossReduction::sum}) {
      const auto expected = everything(c, [&](const at::Tensor& hidden, const at::Tensor& weight) {
        return at::cross_entropy_loss(at::linear(hidden, weight).flatten(0, 1), c.labels.flatten(), {},
                                      reduction == LossReduction::mean ? at::Reduction::Mean : at::Reduction::Sum);
      });
      for (const std::int64_t chunk : {0, 1, 4, 100}) {
        const auto found = everything(c, [&](const at::Tensor& hidden, const at::Tensor& weight) {
          return linear_cross_entropy(hidden, weight, c.labels, {.reduction = reduction, .chunk = chunk});
        });
        for (std::size_t i = 0; i < 3; ++i)
          EXPECT_LT(relative_error(found[i], expected[i]), 1e-12) << i << " " << chunk;
      }
    }
  }
}

// By the kernel, where the words are a multiple of 8, and by torch's.
TEST(GpuLinearCrossEntropy, EqualsThatInDoubleOnTheCpu) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no CUDA device: GPU tests not run";
  torch::manual_seed(2);
  for (const auto& [type, tolerance] : {std::pair{at::kFloat, 2e-5}, {at::kBFloat16, 2e-2}})
    for (const std::int64_t words : {8, 1000, 8008, 9001})
      for (const LossReduction reduction : {LossReduction::mean, LossReduction::sum}) {
        LossCase c{torch::randn({3, 41, 64}).to(type).to(at::kDouble),
                   (0.1 * torch::randn({words, 64})).to(type).to(at::kDouble),
                   torch::randint(0, words, {3, 41}, at::kLong)};
        c.labels.slice(1, 5, 9).fill_(-100);
        const LinearCrossEntropyOptions options{.reduction = reduction, .chunk = 50};
        const auto expected = everything(c, [&](const at::Tensor& hidden, const at::Tensor& weight) {
          return linear_cross_entropy(hidden, weight, c.labels, options);
        });
        const LossCase on_gpu{c.hidden.to(at::kCUDA, type), c.weight.to(at::kCUDA, type), c.labels.to(at::kCUDA)};
        const auto loss = [&](const at::Tensor& hidden, const at::Tensor& weight) {
          return linear_cross_entropy(hidden, weight, on_gpu.labels, options);
        };
        const auto found = everything(on_gpu, loss);
        for (std::size_t i = 0; i < 3; ++i)
          EXPECT_LT(relative_error(found[i].cpu().to(at::kDouble), expected[i]), tolerance) << i << ", " << words;
        const torch::NoGradGuard no_gradient;
        EXPECT_TRUE(at::equal(loss(on_gpu.hidden, on_gpu.weight), found[0]));
      }
}

TEST(LinearCrossEntropy, OneOperandAloneMayNeedAGradient) {
  const LossCase c;
  const at::Tensor hidden = c.hidden.clone().requires_grad_();
  linear_cross_entropy(hidden, c.weight, c.labels).backward();
  EXPECT_TRUE(hidden.grad().defined());
  const at::Tensor weight = c.weight.clone().requires_grad_();
  linear_cross_entropy(c.hidden, weight, c.labels).backward();
  EXPECT_TRUE(weight.grad().defined());
  const torch::NoGradGuard no_gradient;
  EXPECT_FALSE(linear_cross_entropy(hidden, weight, c.labels).requires_grad());
}

TEST(LinearCrossEntropy, NothingThatCountsIsZero) {
  LossCase c;
  c.labels.fill_(-1);
  const auto found = everything(c, [&](const at::Tensor& hidden, const at::Tensor& weight) {
    return linear_cross_entropy(hidden, weight, c.labels, {.ignored = -1});
  });
  for (const at::Tensor& value : found) EXPECT_EQ(value.abs().max().item<double>(), 0.0);
}

TEST(LinearCrossEntropy, LargeLogitsDoNotOverflow) {
  LossCase c;
  c.hidden *= 1e4;
  EXPECT_TRUE(linear_cross_entropy(c.hidden.to(at::kFloat), c.weight.to(at::kFloat), c.labels).isfinite().item<bool>());
}

TEST(LinearCrossEntropy, ProductsAreInTheTypeOfAutocast) {
  torch::manual_seed(2);
  LossCase c;
  c.hidden = c.hidden.to(at::kFloat), c.weight = c.weight.to(at::kFloat);
  const auto loss = [&](const at::Tensor& hidden, const at::Tensor& weight) {
    return linear_cross_entropy(hidden, weight, c.labels, {.chunk = 5});
  };
  const auto expected = everything(c, loss);
  at::autocast::set_autocast_enabled(at::kCPU, true);
  at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
  const auto found = everything(c, loss);
  at::autocast::set_autocast_enabled(at::kCPU, false);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(found[i].scalar_type(), at::kFloat);
    EXPECT_LT(relative_error(found[i], expected[i]), 2e-2) << i;
    EXPECT_GT(relative_error(found[i], expected[i]), 1e-5) << i;
  }
}

TEST(LinearCrossEntropy, WrongArgumentsAreNamed) {
  const LossCase c;
  expect_error([&] { linear_cross_entropy(c.hidden, c.weight.t(), c.labels); }, {"hidden is", "weight [6, 11]"});
  expect_error([&] { linear_cross_entropy(c.hidden, c.weight, c.labels.flatten()); }, {"labels [21]"});
  expect_error([&] { linear_cross_entropy(c.hidden, c.weight, c.labels.to(at::kInt)); }, {"labels are of Int"});
  expect_error([&] { linear_cross_entropy(c.hidden, c.weight, c.labels + 11); }, {"labels hold one", "0 to 10"});
}

}  // namespace
}  // namespace mhla::nn
