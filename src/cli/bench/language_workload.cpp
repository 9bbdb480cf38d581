// Random ids, and the loss that never holds all logits.
#include "cli/bench/language_workload.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "models/lm/lm_design.hpp"
#include "nn/linear_cross_entropy.hpp"

namespace mhla::cli::bench {
namespace {

class LanguageWorkload : public Workload {
 public:
  LanguageWorkload(const WorkloadOptions& options, std::int64_t batch, at::Device device, Shelf& shelf)
      : Workload(options),
        model_(shelf.get<models::Lm>(
            fmt::format("{} {} {}", options.model, options.attention, options.attention == "mhla" ? options.blocks : 1),
            device, [&] { return std::make_shared<models::Lm>(language_options(options)); })) {
    const at::Tensor ids = torch::randint(model_->options.vocabulary, {batch, options.size + 1}, torch::kLong);
    input = ids.slice(1, 0, -1).contiguous().to(device);
    labels_ = ids.slice(1, 1).contiguous().to(device);
  }

  models::Model& model() override { return *model_; }
  at::Tensor forward(const at::Tensor& x) override { return model_->hidden(x); }
  at::Tensor loss(const at::Tensor& output) override {
    return nn::linear_cross_entropy(output, model_->output_weight(), labels_);
  }
  std::int64_t tokens() override { return options.size; }
  at::Tensor first_mixing() override { return model_->mixing_parameters().front(); }
  at::Tensor sample() override {
    constexpr std::int64_t kSampleTokens = 1024;
    return input.slice(0, 0, 1).slice(1, 0, kSampleTokens);
  }

 private:
  std::shared_ptr<models::Lm> model_;
  at::Tensor labels_;
};

}  // namespace

bool is_language_model(const std::string& model) {
  const std::vector<std::string> names = models::lm_names();
  return std::ranges::find(names, model) != names.end();
}

models::LmOptions language_options(const WorkloadOptions& options) {
  models::LmOptions result;
  result.model = options.model;
  result.attention = {options.attention};
  result.block_size = options.block_size;
  result.blocks = options.blocks;
  result.beyond = "clamp";
  result.recompute = options.recompute;
  if (options.tiny) result.vocabulary = 256, result.width = 64, result.depth = 2, result.heads = 2;
  return result;
}

std::unique_ptr<Workload> make_language_workload(const WorkloadOptions& options, std::int64_t batch, at::Device device,
                                                 Shelf& shelf) {
  return std::make_unique<LanguageWorkload>(options, batch, device, shelf);
}

}  // namespace mhla::cli::bench
