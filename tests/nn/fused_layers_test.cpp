// The fused layers on a GPU against the same formula in double on the CPU, values and gradients: `ctest -L gpu`.
#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>

#include <functional>

#include "nn/convolution.hpp"
#include "nn/mlp.hpp"
#include "nn/modulated.hpp"
#include "nn/qkv_features.hpp"
#include "nn/residual.hpp"
#include "support/relative_error.hpp"

namespace mhla::nn {
namespace {

using Tensors = std::vector<at::Tensor>;
using LayerFunction = std::function<Tensors(const Tensors&)>;

class GpuLayers : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!torch::cuda::is_available()) GTEST_SKIP() << "no CUDA device: GPU tests not run";
    torch::manual_seed(3);
  }
};

at::Tensor made(at::IntArrayRef sizes) { return torch::randn(sizes, at::kDouble); }

// Outputs, then gradients of sum(outputs * fixed numbers) with respect to the inputs. The numbers are eighths, exact in
// every type: what the layer gets as gradient of its output is not rounded.
Tensors outputs_and_gradients(const LayerFunction& layer, const Tensors& inputs) {
  const Tensors outputs = layer(inputs);
  at::Tensor loss = at::zeros({}, inputs[0].options().dtype(at::kDouble));
  for (const at::Tensor& output : outputs) {
    const at::Tensor numbers = at::arange(output.numel(), at::kDouble).sin().mul(8.0).round().div(8.0);
    loss = loss + (output.to(at::kDouble) * numbers.view(output.sizes()).to(output.device())).sum();
  }
  Tensors all = outputs;
  for (const at::Tensor& gradient : torch::autograd::grad({loss}, inputs)) all.push_back(gradient);
  return all;
}

// types: of the inputs on the GPU. The inputs of the reference are rounded to them first.
void expect_equal(const LayerFunction& layer, const Tensors& inputs, const std::vector<at::ScalarType>& types,
                  const char* fused, const std::string& what) {
  Tensors exact, given;
  double tolerance = 2e-5;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const at::Tensor rounded = inputs[i].to(types[i]);
    exact.push_back(rounded.to(at::kDouble).requires_grad_());
    given.push_back(rounded.to(at::kCUDA).requires_grad_());
    if (types[i] == at::kHalf) tolerance = std::max(tolerance, 2e-3);
    if (types[i] == at::kBFloat16) tolerance = 1.2e-2;
  }
  const Tensors expected = outputs_and_gradients(layer, exact), found = outputs_and_gradients(layer, given);
  ASSERT_TRUE(found[0].grad_fn() != nullptr);
  EXPECT_NE(found[0].grad_fn()->name().find(fused), std::string::npos) << what << ": " << found[0].grad_fn()->name();
  for (std::size_t i = 0; i < expected.size(); ++i)
    EXPECT_LT(mhla::testing::relative_error(found[i].cpu().to(at::kDouble), expected[i].detach()), tolerance)
        << what << ", tensor " << i;
  const at::Tensor loss = layer(given)[0].to(at::kDouble).square().sum();
  try {
    torch::autograd::grad({loss}, given, {}, true, true, true);
    ADD_FAILURE() << what << ": a second derivative was offered";
  } catch (const std::exception& error) {
    EXPECT_NE(std::string(error.what()).find("differentiated once"), std::string::npos) << error.what();
  }
}

const std::vector<at::ScalarType> kTypes = {at::kFloat, at::kBFloat16, at::kHalf};

// Autocast says in which type the output is wanted; the reference is in double without it.
LayerFunction under_autocast(const LayerFunction& layer, at::ScalarType type) {
  return [layer, type](const Tensors& in) {
    at::autocast::set_autocast_enabled(at::kCUDA, in[0].is_cuda() && type != at::kFloat);
    at::autocast::set_autocast_dtype(at::kCUDA, type);
    Tensors out = layer(in);
    at::autocast::set_autocast_enabled(at::kCUDA, false);
    return out;
  };
}

TEST_F(GpuLayers, AddNorm) {
  for (const at::ScalarType type : kTypes)
    for (const at::ScalarType stream : {at::kFloat, type})
      for (const std::int64_t channels : {4, 24, 136, 384, 520, 1024}) {
        const at::Tensor factors = at::tensor({0.0, 1.25, 1.0}, at::kDouble);
        const LayerFunction layer = [&](const Tensors& in) -> Tensors {
          Norm norm(NormKind::layer, channels, 1e-6);
          norm->weight = in[3], norm->bias = in[4];
          Residual x(in[0]);
          x.add({in[1], in[2]}, factors.to(in[0].options()));
          const at::Tensor y = x.normed(norm);
          return {y, x.value()};
        };
        expect_equal(
            under_autocast(layer, type),
            {made({3, 37, channels}), made({3, 37, channels}), made({channels}), made({channels}), made({channels})},
            {stream, type, at::kFloat, at::kFloat, at::kFloat}, "AddNorm",
            "add_norm, " + std::to_string(channels) + " channels");
      }
}

TEST_F(GpuLayers, AddRmsNorm) {
  for (const at::ScalarType type : kTypes)
    for (const at::ScalarType stream : {at::kFloat, type})
      for (const std::int64_t channels : {4, 24, 136, 520, 1024, 1152}) {
        const LayerFunction layer = [&](const Tensors& in) -> Tensors {
          Norm norm(NormKind::rms, channels, 1e-6);
          norm->weight = in[1];
          Residual x(in[0]);
          if (in.size() > 2) x.add({in[2]});
          const at::Tensor y = x.normed(norm);
          return {y, x.value()};
        };
        const std::string what = "add_norm without a mean, " + std::to_string(channels) + " channels";
        const Tensors inputs = {made({3, 37, channels}), made({channels}), made({3, 37, channels})};
        expect_equal(under_autocast(layer, type), inputs, {stream, at::kFloat, type}, "AddNorm", what);
        expect_equal(under_autocast(layer, type), {inputs[0], inputs[1]}, {stream, at::kFloat}, "AddNorm",
                     what + ", nothing added");
      }
}

// Few batch rows of many tokens, and many of few: several blocks for a batch row, or one. Not four channels: their norm
// magnifies the rounding of the sum that is kept in half precision beyond the tolerance.
TEST_F(GpuLayers, AddModulate) {
  for (const at::ScalarType type : kTypes)
    for (const at::ScalarType stream : {at::kFloat, type})
      for (const std::int64_t channels : {12, 24, 136, 384, 1152})
        for (const auto& [batch, tokens] : {std::pair<std::int64_t, std::int64_t>{3, 37}, {270, 5}}) {
          const Tensors inputs = {made({batch, tokens, channels}), made({batch, 3 * channels}),
                                  made({batch, tokens, channels}), made({channels})};
          const std::vector<at::ScalarType> types = {stream, type, type, at::kFloat};
          const std::string sizes = ", " + std::to_string(channels) + " channels";
          const auto check = [&](const LayerFunction& layer, std::size_t used, const std::string& what) {
            expect_equal(under_autocast(layer, type), Tensors(inputs.begin(), inputs.begin() + used),
                         {types.begin(), types.begin() + used}, "AddModulate", what + sizes);
          };
          check(
              [](const Tensors& in) -> Tensors {
                const auto parts = in[1].chunk(3, 1);
                return {modulated(in[0], {parts[1], parts[2]})};
              },
              2, "modulated");
          check([](const Tensors& in) -> Tensors { return {add_gated(in[0], {in[2], in[3]}, in[1].chunk(3, 1)[0])}; },
                4, "add_gated");
          check(
              [](const Tensors& in) -> Tensors {
                const auto parts = in[1].chunk(3, 1);
                const auto [sum, y] = add_modulated(in[0], {in[2], in[3]}, parts[0], {parts[1], parts[2]});
                return {sum, y};
              },
              4, "add_modulated");
          check(
              [](const Tensors& in) -> Tensors {
                const auto parts = in[1].chunk(3, 1);
                GatedStream x(in[0]);
                x.add({in[2], in[3]}, parts[0]);
                const at::Tensor y = x.modulated({parts[1], parts[2]});
                return {y, x.value()};
              },
              4, "a gated stream");
        }
}

TEST_F(GpuLayers, BiasGelu) {
  for (const Gelu gelu : {Gelu::exact, Gelu::tanh}) {
    for (const at::ScalarType type : kTypes)
      for (const std::int64_t channels : {8, 96, 256, 1544}) {
        const at::Tensor x = made({2, 53, channels}) * 3.0;
        expect_equal([gelu](const Tensors& in) -> Tensors { return {bias_gelu(in[0], in[1], gelu)}; },
                     {x, made({channels})}, {type, at::kFloat}, "BiasGelu",
                     "bias_gelu, " + std::to_string(channels) + " channels");
      }
    const at::Tensor far = at::tensor({-INFINITY, -1e4F, -20.0F, 0.0F, 20.0F, 1e4F, INFINITY, 6.0F}).to(at::kCUDA);
    const at::Tensor y = bias_gelu(far.view({1, 8}), at::zeros({8}, far.options()), gelu).cpu().view({8});
    EXPECT_TRUE(at::allclose(y, far.cpu().clamp_min(0.0), 1e-6, 1e-6)) << y;
    const at::Tensor lost = at::full({1, 8}, NAN, far.options());
    EXPECT_TRUE(bias_gelu(lost, at::zeros({8}, far.options()), gelu).isnan().all().item<bool>());
  }
}

TEST_F(GpuLayers, SiluProduct) {
  for (const at::ScalarType type : kTypes)
    for (const std::int64_t channels : {8, 96, 2816})
      expect_equal([](const Tensors& in) -> Tensors { return {silu_product(in[0], in[1])}; },
                   {made({2, 53, channels}) * 3.0, made({2, 53, channels})}, {type, type}, "SwiGlu",
                   "silu_product, " + std::to_string(channels) + " channels");
  const at::Tensor far = at::tensor({-1e4F, -100.0F, -20.0F, 0.0F, 20.0F, 100.0F, 1e4F, INFINITY}).to(at::kCUDA);
  EXPECT_TRUE(at::allclose(silu_product(far, at::ones_like(far)).cpu(), at::silu(far.cpu()), 1e-5, 1e-6));
}

TEST_F(GpuLayers, QkvFeatures) {
  for (const at::ScalarType type : kTypes)
    for (const FeatureMap map : {FeatureMap::identity, FeatureMap::relu})
      for (const std::int64_t channels : {24, 192, 384, 1024, 1152}) {
        const QkvFeaturesOptions options{
            .heads = channels / 8, .feature_map = map, .feature_eps = map == FeatureMap::relu ? 0.25 : 0.0};
        const LayerFunction layer = [&](const Tensors& in) -> Tensors {
          const bool norm = in.size() > 1;
          const Qkv parts = qkv_features(in[0], norm ? in[1] : at::Tensor(), norm ? in[2] : at::Tensor(), options);
          return {parts.q, parts.k, parts.v, 2.0 * parts.v_again};
        };
        const std::string what = "qkv_features, " + std::to_string(channels) + " channels";
        const at::Tensor qkv = made({2, 41, 3 * channels});
        expect_equal(layer, {qkv, made({channels}) + 2.0, made({channels}) + 2.0}, {type, at::kFloat, at::kFloat},
                     "QkvFeatures", what);
        if (map == FeatureMap::relu) expect_equal(layer, {qkv}, {type}, "QkvFeatures", what + ", no norm");
      }
}

TEST_F(GpuLayers, Convolved) {
  for (const at::ScalarType type : kTypes)
    for (const std::int64_t side : {3, 5})
      for (const Grid grid : {Grid{7, 5}, Grid{8, 16}, Grid{17, 33}, Grid{1, 40}})
        for (const std::int64_t channels : {8, 72, 128}) {
          // A part of something wider, as v is.
          Tensors inputs = {made({3, grid.tokens(), 3 * channels}), made({channels, 1, side, side}), made({channels})};
          std::vector<at::ScalarType> types = {type, at::kFloat, at::kFloat};
          const LayerFunction layer = [&](const Tensors& in) -> Tensors {
            auto convolution = depthwise(channels, side);
            convolution->weight = in[1], convolution->bias = in[2];
            const at::Tensor tokens = in[0].narrow(2, channels, channels);
            return {in.size() > 3 ? add_convolved(in[3], convolution, tokens, grid)
                                  : convolved(convolution, tokens, grid)};
          };
          const std::string sizes = ", side " + std::to_string(side) + ", " + std::to_string(channels) + " channels";
          expect_equal(layer, inputs, types, "Convolved", "convolved" + sizes);
          inputs.push_back(made({3, grid.tokens(), channels}));
          types.push_back(type);
          expect_equal(layer, inputs, types, "Convolved", "add_convolved" + sizes);
        }
}

}  // namespace
}  // namespace mhla::nn
