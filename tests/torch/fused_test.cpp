// The fused operators as LibTorch functions.
#include <gtest/gtest.h>

#include "mhla/fused_torch.hpp"
#include "torch/device.hpp"

namespace mhla::fused {
namespace {

at::TensorOptions in_double() { return torch::TensorOptions(torch::kDouble).device(test::device()); }

at::Tensor leaf(at::IntArrayRef sizes) { return torch::randn(sizes, in_double()).requires_grad_(); }

void expect_same_with_gradients(const at::Tensor& actual, const at::Tensor& expected,
                                const std::vector<at::Tensor>& inputs) {
  EXPECT_TRUE(torch::allclose(actual, expected, 1e-10, 1e-12));
  const at::Tensor d = torch::randn_like(actual);
  const auto ours = torch::autograd::grad({actual}, inputs, {d}),
             exact = torch::autograd::grad({expected}, inputs, {d});
  for (std::size_t i = 0; i < inputs.size(); ++i) EXPECT_TRUE(torch::allclose(ours[i], exact[i], 1e-10, 1e-12)) << i;
}

TEST(FusedTorch, GatedNormIsTheFormula) {
  torch::manual_seed(0);
  const at::Tensor x = leaf({2, 5, 3, 8}), gate = leaf({2, 5, 3, 8}), weight = leaf({24});
  const at::Tensor normed = at::rms_norm(x.flatten(2), {24}, weight, 1e-6).view_as(x);
  expect_same_with_gradients(gated_norm(x, weight, gate, NormScope::channels), normed * at::silu(gate),
                             {x, gate, weight});
}

TEST(FusedTorch, ModulateIsTheFormula) {
  torch::manual_seed(0);
  const at::Tensor x = leaf({2, 5, 12}), scale = leaf({2, 12}), shift = leaf({2, 12}), weight = leaf({12}),
                   bias = leaf({12});
  const at::Tensor expected =
      at::layer_norm(x, {12}, weight, bias, 1e-6) * (1 + scale.unsqueeze(1)) + shift.unsqueeze(1);
  expect_same_with_gradients(modulate(x, scale, shift, weight, bias), expected, {x, scale, shift, weight, bias});
}

TEST(FusedTorch, RotaryFeaturesAreTheFormula) {
  torch::manual_seed(0);
  const at::Tensor x = leaf({2, 7, 3, 8}), weight = leaf({8});
  const RotaryTables rotary = RotaryTables::line(7, 8, RotaryLayout::half, in_double(), 10000.0, 3);
  const auto [y, plain] =
      rotary_features(x, rotary, {.norm = NormScope::head, .weight = weight, .feature_eps = 1e-3, .plain = true});
  const at::Tensor features = at::relu(at::rms_norm(x, {8}, weight, 1e-6)) + 1e-3;
  const at::Tensor frequencies = at::pow(10000.0, -at::arange(4, in_double()) / 4.0);
  const at::Tensor angles = at::outer(at::arange(3, 10, in_double()), frequencies).unsqueeze(1);  // [N, 1, P]
  const auto halves = features.chunk(2, -1);
  const at::Tensor turned = at::cat(
      {halves[0] * angles.cos() - halves[1] * angles.sin(), halves[0] * angles.sin() + halves[1] * angles.cos()}, -1);
  expect_same_with_gradients(at::cat({y, plain}, -1), at::cat({turned, features}, -1), {x, weight});
}

TEST(FusedTorch, TablesEqualThoseOfTheLibraryBelow) {
  const RotaryTables tables = RotaryTables::grid({2, 3, 5}, 128, RotaryLayout::adjacent, in_double());
  EXPECT_EQ(tables.pairs, (std::vector<std::int64_t>{22, 21, 21}));
  const Rotary rotary{.layout = RotaryLayout::adjacent, .axes = 3, .sizes = {2, 3, 5}, .pairs = {22, 21, 21}};
  at::Tensor cos = torch::empty({rotary.table_elements()}, torch::kDouble), sin = torch::empty_like(cos);
  rotary_table(rotary, 10000.0, 0, DType::f64, cos.mutable_data_ptr(), sin.mutable_data_ptr());
  EXPECT_TRUE(torch::allclose(tables.cos.cpu(), cos, 0, 1e-14));
  EXPECT_TRUE(torch::allclose(tables.sin.cpu(), sin, 0, 1e-14));
  EXPECT_EQ(RotaryTables::line(4, 8, RotaryLayout::half).cos.scalar_type(), torch::kFloat);
}

}  // namespace
}  // namespace mhla::fused
