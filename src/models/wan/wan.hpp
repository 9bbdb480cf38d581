// The video transformer Wan2.1 with softmax, linear attention or MHLA per layer: the velocity of a rectified flow in
// latents of a video, given the time and a text.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "models/base/model.hpp"
#include "models/wan/wan_block.hpp"
#include "models/wan/wan_design.hpp"

namespace mhla::models {

// Keys and values of texts in all layers: made once, used at all times.
using WanText = std::vector<WanKeysValues>;

std::span<const SameLayer> wan_weight_names();  // Wan's and diffusers'

class Wan : public Model {
 public:
  using Config = WanOptions;

  explicit Wan(const WanOptions& options) : Wan(WanDesign(options)) {}
  explicit Wan(const WanDesign& design);

  // Texts as the states of a text encoder, one [tokens, text_width] per batch row.
  WanText text(const std::vector<at::Tensor>& states);

  // x: [B, channels, frames, height, width], of any size that patches divide; times t: [B], those of noise are 1000.
  // Returns the velocity, of the same size.
  at::Tensor forward(const at::Tensor& x, const at::Tensor& t, const WanText& text);
  at::Tensor forward(const at::Tensor& x, const at::Tensor& t, const std::vector<at::Tensor>& states);

  const std::vector<std::shared_ptr<WanBlock>>& blocks() const { return blocks_; }

  io::Json config() const override { return options; }
  bool decays(const std::string& name) const override;
  void after_step() override;
  std::span<const SameLayer> weight_names() const override;
  Fit fit_from(const io::Json& from) const override;

  const WanOptions options;

 private:
  struct Condition {
    at::Tensor e, e0;  // of the time: [B, C] for the head, [B, 6, C] for the blocks, in float32
  };
  using BlockCall = std::function<at::Tensor(std::size_t layer, const at::Tensor& x, const Condition&, VideoGrid,
                                             const fused::RotaryTables&)>;

  void initialise();
  VideoGrid grid_of(const at::Tensor& x) const;
  at::Tensor embedded(const std::vector<at::Tensor>& states);  // [B, text_tokens, C]
  Condition condition(const at::Tensor& t);
  const fused::RotaryTables& rotary(VideoGrid grid, const at::Tensor& like);
  at::Tensor run(const at::Tensor& x, const at::Tensor& t, const BlockCall& block);
  at::Tensor head(const at::Tensor& x, const at::Tensor& e, VideoGrid grid);

  const std::int64_t head_width_;
  torch::nn::Conv3d patch_embedding_;
  torch::nn::Linear text_in_, text_out_, time_in_, time_out_, time_projection_, head_;
  at::Tensor head_modulation_;  // [1, 2, C]
  std::vector<std::shared_ptr<WanBlock>> blocks_;

  VideoGrid rotary_for_;  // the grid of
  fused::RotaryTables rotary_;
};

}  // namespace mhla::models
