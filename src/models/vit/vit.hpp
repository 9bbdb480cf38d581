// The vision transformer (DeiT) with softmax, linear attention or MHLA per layer.
#pragma once

#include <string>
#include <vector>

#include "models/base/classifier.hpp"
#include "models/vit/vit_block.hpp"
#include "models/vit/vit_design.hpp"
#include "nn/patch_embedding.hpp"

namespace mhla::models {

class Vit : public Classifier {
 public:
  explicit Vit(const ClassifierOptions& options);

  at::Tensor pooled_features(const at::Tensor& images) override;
  at::Tensor logits(const at::Tensor& pooled_features) override { return head_->forward(pooled_features); }
  at::Tensor mixing_parameter(std::int64_t layer) override;
  std::int64_t layers() const override { return static_cast<std::int64_t>(blocks_.size()); }
  nn::Grid grid(std::int64_t /*layer*/) const override { return design.grid; }
  Canvas canvas(std::int64_t layer) const override;
  at::Tensor attention_matrix(const at::Tensor& images, std::int64_t layer) override;
  std::span<const SameLayer> weight_names() const override;
  void convert(const NamedTensors& targets, NamedTensors& stored, LoadReport& report) const override;

  // Output of the last block, [B, N, C], a class token (where there is one) first.
  at::Tensor features(const at::Tensor& images);

  const VitDesign design;

 protected:
  at::Tensor fitted(const std::string& name, const at::Tensor& stored,
                    const std::optional<ClassifierOptions>& from) const override;

 private:
  struct Tokens {
    at::Tensor x;
    nn::Grid grid;
  };
  Tokens embed(const at::Tensor& images);
  at::Tensor positions_on(nn::Grid grid);
  void initialise();

  nn::PatchEmbedding patches_;
  at::Tensor position_, class_token_;
  std::vector<std::shared_ptr<VitBlock>> blocks_;
  nn::Norm norm_ = nullptr;
  torch::nn::Linear head_ = nullptr;
};

}  // namespace mhla::models
