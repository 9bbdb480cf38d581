// A family as small as can be: tokens of 4 numbers -> logits of 3 labels each, with learned positions.
#pragma once

#include <memory>

#include "models/base/model.hpp"
#include "models/toy_family/toy_block.hpp"
#include "models/toy_family/toy_config.hpp"
#include "models/toy_family/toy_weight_names.hpp"

namespace mhla::models::testing {

class Toy : public Model {
 public:
  using Config = ToyConfig;

  explicit Toy(const ToyConfig& config)
      : embed(register_module("embed", torch::nn::Linear(4, config.width()))),
        block(register_module("block", std::make_shared<ToyBlock>(config))),
        head(register_module("head", torch::nn::Linear(config.width(), 3))),
        positions(register_parameter("positions", torch::randn({1, config.tokens, config.width()}))), config_(config) {}

  at::Tensor forward(const at::Tensor& x) {  // [B, N, 4] -> [B, N, 3]
    return head->forward(block->forward(embed->forward(x) + positions));
  }

  io::Json config() const override { return config_; }
  bool decays(const std::string& name) const override { return name != "positions" && !name.ends_with("mixing"); }
  void after_step() override { block->attention->project_(); }
  std::span<const SameLayer> weight_names() const override { return kToyWeightNames; }
  Fit fit_from(const io::Json& /*from*/) const override {
    return [this](const std::string& name, const at::Tensor& stored) {
      if (name != "positions") return at::Tensor();
      return at::upsample_linear1d(stored.transpose(1, 2), {config_.tokens}, false).transpose(1, 2);
    };
  }

  torch::nn::Linear embed;
  std::shared_ptr<ToyBlock> block;
  torch::nn::Linear head;
  at::Tensor positions;

 private:
  const ToyConfig config_;
};

}  // namespace mhla::models::testing
