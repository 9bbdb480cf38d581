// Sana, the text-to-image transformer with linear attention, or with MHLA in its place. Weights under the names of
// NVlabs, and under those of diffusers.
#pragma once

#include <torch/torch.h>

#include <memory>
#include <vector>

#include "models/base/conditioning.hpp"
#include "models/base/model.hpp"
#include "models/sana/sana_block.hpp"
#include "models/sana/sana_options.hpp"
#include "nn/patch_embedding.hpp"

namespace mhla::models {

// A text as all layers see it: the same in every step of sampling.
struct SanaText {
  std::vector<sana::TextKeys> layers;
  at::Tensor bias;  // [B, 1, 1, L], for the tokens that are padding; undefined: none
};

class Sana : public Model {
 public:
  using Config = SanaOptions;

  explicit Sana(const SanaOptions& options) : Sana(SanaDesign(options)) {}
  explicit Sana(const SanaDesign& design);

  // states: [B, L, caption_width], of the text encoder; mask: [B, L], 0 where a token is padding; undefined: none is.
  SanaText text(const at::Tensor& states, const at::Tensor& mask = {});

  // x: [B, channels, H, W], latents; t: [B], 0 to 1000. Returns the velocity of the flow, like x. Latents need not have
  // the size of the options; height and width must be multiples of the patch.
  at::Tensor forward(const at::Tensor& x, const at::Tensor& t, const SanaText& text);

  io::Json config() const override { return options; }
  bool decays(const std::string& name) const override;  // not mixing matrices
  void after_step() override;                           // mixing matrices stay in [0, 1]
  void convert(const NamedTensors& targets, NamedTensors& stored, LoadReport& report) const override;
  Fit fit_from(const io::Json& from) const override;  // matrices of other numbers of blocks

  std::vector<at::Tensor> mixing_parameters() const;  // [M, M, 1, 1], of the layers that have one

  const SanaOptions options;

 private:
  void initialise();
  void check_latents(const at::Tensor& x, const at::Tensor& t, const SanaText& text) const;

  const std::int64_t width_;
  nn::PatchEmbedding patches_;
  TimeEmbedding times_;
  torch::nn::Linear time_modulation_, out_;
  torch::nn::Linear caption_in_, caption_out_;
  nn::Norm caption_norm_;
  std::vector<std::shared_ptr<sana::Block>> blocks_;
  at::Tensor scale_shift_table_;  // [2, C], of the last layer
};

}  // namespace mhla::models
