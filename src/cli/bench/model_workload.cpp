// Classifiers with cross entropy, generators with the loss of diffusion.
#include "cli/bench/model_workload.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "cli/bench/language_workload.hpp"
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

void make_tiny(models::GeneratorOptions& options) { options.width = 64, options.depth = 2, options.heads = 1; }

// Of a generator, in latents: that of a tiny one of the same name.
std::int64_t own_patch(const std::string& model) {
  models::GeneratorOptions options;
  options.model = model;
  make_tiny(options);
  return models::make_generator(options)->patch();
}

class GenerateWorkload : public Workload {
 public:
  // A generator draws pictures of any size: one model serves all.
  GenerateWorkload(const WorkloadOptions& options, std::int64_t batch, at::Device device, Shelf& shelf)
      : Workload(options),
        model_(shelf.get<models::Generator>(fmt::format("{} {} {}", options.model, options.attention, options.blocks),
                                            device, [&] { return make(options); })),
        gaussian_(diffusion::linear_schedule()) {
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
  at::Tensor guided(const at::Tensor& x) override {
    constexpr double kGuidance = 4.0;
    const at::Tensor nothing = at::full_like(labels_, model_->null_class());
    return model_->forward_with_cfg(at::cat({x, x}), at::cat({t_, t_}), at::cat({labels_, nothing}), kGuidance);
  }

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
    if (options.tiny) make_tiny(result);
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

at::Tensor Workload::guided(const at::Tensor& /*x*/) {
  throw Error(fmt::format("{} has no guidance; the pass must be infer or train", options.model));
}

bool is_generator(const std::string& model) {
  const std::vector<std::string> names = models::generator_names();
  return std::ranges::find(names, model) != names.end();
}

std::int64_t patch_pixels(const WorkloadOptions& options) {
  if (!is_generator(options.model)) return options.patch > 0 ? options.patch : kUsualPatch;
  return kLatentFactor * (options.patch > 0 ? options.patch : own_patch(options.model));
}

std::unique_ptr<Workload> make_workload(const WorkloadOptions& options, std::int64_t batch, at::Device device,
                                        Shelf& shelf) {
  torch::manual_seed(1);
  if (is_generator(options.model)) return std::make_unique<GenerateWorkload>(options, batch, device, shelf);
  if (is_language_model(options.model)) return make_language_workload(options, batch, device, shelf);
  return std::make_unique<ClassifyWorkload>(options, batch, device);
}

}  // namespace mhla::cli::bench
