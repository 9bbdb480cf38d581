// The vision linear transformer (RAVLT): four stages, linear attention or MHLA in the first two, softmax in the others.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <vector>

#include "models/base/classifier.hpp"
#include "models/vlt/vlt_block.hpp"
#include "models/vlt/vlt_design.hpp"

namespace mhla::models {

class Vlt : public Classifier {
 public:
  explicit Vlt(const ClassifierOptions& options);

  at::Tensor pooled_features(const at::Tensor& images) override;
  at::Tensor logits(const at::Tensor& pooled_features) override;
  at::Tensor mixing_parameter(std::int64_t layer) override;
  std::int64_t layers() const override { return design.depth(); }
  nn::Grid grid(std::int64_t layer) const override { return design.stage_of(layer).grid; }
  Canvas canvas(std::int64_t layer) const override;
  Partition partition(std::int64_t layer) const override { return design.stage_of(layer).partition; }
  at::Tensor attention_matrix(const at::Tensor& images, std::int64_t layer) override;

  const VltDesign design;

 protected:
  at::Tensor fitted(const std::string& name, const at::Tensor& stored,
                    const std::optional<ClassifierOptions>& from) const override;

 private:
  struct Stage {
    VltRotary rotary = nullptr;
    std::vector<std::shared_ptr<VltBlock>> blocks;
    torch::nn::Conv2d reduction = nullptr;  // none in the last stage
    torch::nn::BatchNorm2d norm = nullptr;
  };
  struct BlockPosition {
    std::int64_t layer;
    nn::Grid grid;
    const fused::RotaryTables& rotary;
  };
  // Runs the stages; `visit` is told of each block and its input before the block runs, and may stop there.
  at::Tensor run(const at::Tensor& images,
                 const std::function<bool(VltBlock&, const at::Tensor&, const BlockPosition&)>& visit);
  Stage make_stage(const VltDesign::Stage& stage, std::int64_t next_width, torch::nn::Module& parent);

  torch::nn::Sequential stem_;
  std::array<Stage, VltDesign::kStages> stages_;
  torch::nn::Conv2d proj_ = nullptr, head_ = nullptr;
  torch::nn::BatchNorm2d norm_ = nullptr;
};

}  // namespace mhla::models
