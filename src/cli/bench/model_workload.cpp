// Classifiers with cross entropy, generators with the loss of diffusion.
#include "cli/bench/model_workload.hpp"

#include <algorithm>

#include "diffusion/gaussian.hpp"
#include "models/classifiers.hpp"
#include "models/generators.hpp"

namespace mhla::cli::bench {
namespace {

constexpr std::int64_t kLatentFactor = 8, kUsualPatch = 16;

class ClassifyWorkload : public Workload {
 public:
  ClassifyWorkload(const WorkloadOptions& options, std::int64_t batch, at::Device device)
      : Workload(options), model_(make(options)) {
    model_->to(device);
    input = torch::randn({batch, 3, options.size, options.size}).to(device);
    labels_ = torch::randint(model_->options.classes, {batch}, torch::kLong).to(device);
  }

  models::Model& model() override { return *model_; }
  at::Tensor forward(const at::Tensor& x) override { return model_->forward(x); }
  at::Tensor loss(const at::Tensor& output) override { return torch::nn::functional::cross_entropy(output, labels_); }
  std::int64_t tokens() override { return model_->grid(0).tokens(); }
  at::Tensor first_mixing() override { return model_->mixing_parameter(0); }

 private:
  static std::shared_ptr<models::Classifier> make(const WorkloadOptions& options) {
    models::ClassifierOptions result;
    result.model = options.model;
    result.preset = options.preset;
    result.attention = {options.attention};
    result.image_size = {options.size, options.size};
    result.patch = patch_pixels(options);
    result.blocks = {options.blocks, options.blocks};
    result.lepe = options.local;
    result.recompute = options.recompute;
    if (options.tiny) result.width = 64, result.depth = options.model.starts_with("vlt") ? 1 : 2, result.heads = 1;
    return models::make_classifier(result);
  }

  std::shared_ptr<models::Classifier> model_;
  at::Tensor labels_;
};

class GenerateWorkload : public Workload {
 public:
  GenerateWorkload(const WorkloadOptions& options, std::int64_t batch, at::Device device)
      : Workload(options), model_(make(options)), gaussian_(diffusion::linear_schedule()) {
    model_->to(device);
    const std::int64_t side = options.size / kLatentFactor;
    x_0_ = torch::randn({batch, model_->options.channels, side, side}).to(device);
    noise_ = torch::randn_like(x_0_);
    t_ = torch::randint(gaussian_.schedule().steps(), {batch}, torch::kLong).to(device);
    labels_ = torch::randint(model_->options.classes, {batch}, torch::kLong).to(device);
    input = gaussian_.noised(x_0_, t_, noise_);
  }

  models::Model& model() override { return *model_; }
  at::Tensor forward(const at::Tensor& x) override {
    return model_->forward(x, t_.narrow(0, 0, x.size(0)), labels_.narrow(0, 0, x.size(0)));
  }
  at::Tensor loss(const at::Tensor& output) override {
    return gaussian_.loss(output.to(at::kFloat), x_0_, input, t_, noise_).total.mean();
  }
  std::int64_t tokens() override {
    const std::int64_t side = options.size / patch_pixels(options);
    return side * side;
  }
  at::Tensor first_mixing() override { return model_->mixing_parameters().front(); }

 private:
  static std::shared_ptr<models::Generator> make(const WorkloadOptions& options) {
    models::GeneratorOptions result;
    result.model = options.model;
    result.preset = options.preset;
    result.attention = {options.attention};
    result.size = {options.size / kLatentFactor, options.size / kLatentFactor};
    result.patch = options.patch;
    result.blocks = {options.blocks, options.blocks};
    result.recompute = options.recompute;
    if (options.tiny) result.width = 64, result.depth = 2, result.heads = 1;
    const auto model = models::make_generator(result);
    // What starts at zero would hide the rest of the network from the check.
    const torch::NoGradGuard no_gradient;
    for (at::Tensor& parameter : model->parameters())
      if (parameter.count_nonzero().item<std::int64_t>() == 0) parameter.normal_(0.0, 0.1);
    return model;
  }

  std::shared_ptr<models::Generator> model_;
  diffusion::Gaussian gaussian_;
  at::Tensor x_0_, noise_, t_, labels_;
};

}  // namespace

bool is_generator(const std::string& model) {
  const std::vector<std::string> names = models::generator_names();
  return std::ranges::find(names, model) != names.end();
}

std::int64_t patch_pixels(const WorkloadOptions& options) {
  if (!is_generator(options.model)) return options.patch > 0 ? options.patch : kUsualPatch;
  // Names of generators end in the patch, in latents: dit_s2.
  return kLatentFactor * (options.patch > 0 ? options.patch : options.model.back() - '0');
}

std::unique_ptr<Workload> make_workload(const WorkloadOptions& options, std::int64_t batch, at::Device device) {
  torch::manual_seed(1);
  if (is_generator(options.model)) return std::make_unique<GenerateWorkload>(options, batch, device);
  return std::make_unique<ClassifyWorkload>(options, batch, device);
}

}  // namespace mhla::cli::bench
