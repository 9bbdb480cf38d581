// Models on a GPU give what they give on the CPU, and train in half precision: `ctest -L gpu`.
#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>

#include "models/base/weights.hpp"
#include "models/classifiers.hpp"
#include "models/small_model.hpp"

namespace mhla::models {
namespace {

using testing::images;
using testing::relative_error;

class Gpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!torch::cuda::is_available()) GTEST_SKIP() << "no CUDA device: GPU tests not run";
    at::globalContext().setAllowTF32CuDNN(false);
  }

  static std::vector<ClassifierOptions> every_model() {
    std::vector<ClassifierOptions> result;
    for (const char* model : {"deit_tiny", "vlt_tiny"})
      for (const char* preset : {"paper", "authors"})
        for (const char* attention : {"softmax", "linear", "mhla"}) {
          ClassifierOptions options = testing::small_options();
          options.model = model;
          options.preset = preset;
          options.attention = {attention};
          options.image_size = {64, 64};
          if (model == std::string("vlt_tiny")) options.patch = 16, options.width = 32, options.heads = 1;
          result.push_back(options);
        }
    return result;
  }

  // The gradient of such a bias is zero but for rounding.
  static bool is_before_batch_norm(const ClassifierOptions& options, const std::string& parameter) {
    if (!options.model.starts_with("vlt")) return false;
    for (const char* convolution : {"patch_embed.proj.0", "patch_embed.proj.3", "patch_embed.proj.6",
                                    "patch_embed.proj.9", "downsample.reduction"})
      if (parameter.ends_with(std::string(convolution) + ".bias")) return true;
    return parameter == "proj.bias";
  }
  static std::string weight_of(const std::string& bias) { return bias.substr(0, bias.rfind('.')) + ".weight"; }

  static std::string name(const ClassifierOptions& options) {
    return options.model + " " + options.preset + " " + options.attention.front();
  }
};

TEST_F(Gpu, LogitsAndGradientsAreThoseOfTheCpu) {
  for (const ClassifierOptions& options : every_model()) {
    torch::manual_seed(1);
    const auto on_cpu = make_classifier(options), on_gpu = make_classifier(options);
    testing::shake(*on_cpu);
    load_tensors(*on_gpu, named_tensors(*on_cpu), "the other model");
    on_gpu->to(at::kCUDA);
    for (const std::int64_t width : {64, 44}) {
      const at::Tensor input = images(4, 64, width);
      on_cpu->zero_grad();
      on_gpu->zero_grad();
      const at::Tensor expected = on_cpu->forward(input), found = on_gpu->forward(input.to(at::kCUDA));
      EXPECT_LT(relative_error(found.cpu(), expected), 1e-4) << name(options);
      expected.square().sum().backward();
      found.square().sum().backward();
      const auto parameters = on_gpu->named_parameters();
      for (const auto& item : on_cpu->named_parameters()) {
        const at::Tensor& gradient = item.value().grad();
        if (!gradient.defined() || gradient.norm().item<double>() < 1e-3) continue;
        const at::Tensor found_gradient = parameters[item.key()].grad().cpu();
        if (is_before_batch_norm(options, item.key())) {
          const at::Tensor weights = parameters[weight_of(item.key())].grad().cpu();
          EXPECT_LT(found_gradient.norm().item<double>(), 1e-3 * weights.norm().item<double>()) << item.key();
        } else {
          EXPECT_LT(relative_error(found_gradient, gradient), 1e-3) << name(options) << " " << item.key();
        }
      }
    }
  }
}

TEST_F(Gpu, TrainsUnderAutocast) {
  for (ClassifierOptions options : every_model())
    for (const bool recompute : {false, true}) {
      options.recompute = recompute;
      options.drop_path = 0.1;
      torch::manual_seed(1);
      const auto model = make_classifier(options);
      model->to(at::kCUDA);
      const at::Tensor input = images(4, 64, 64).to(at::kCUDA);
      at::autocast::set_autocast_enabled(at::kCUDA, true);
      at::autocast::set_autocast_dtype(at::kCUDA, at::kBFloat16);
      const at::Tensor loss = model->forward(input).to(at::kFloat).square().sum();
      at::autocast::set_autocast_enabled(at::kCUDA, false);
      at::autocast::clear_cache();
      loss.backward();
      for (const auto& item : model->named_parameters()) {
        ASSERT_TRUE(item.value().grad().defined()) << name(options) << " " << item.key();
        EXPECT_TRUE(item.value().grad().isfinite().all().item<bool>()) << name(options) << " " << item.key();
      }
    }
}

}  // namespace
}  // namespace mhla::models
