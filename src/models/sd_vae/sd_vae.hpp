// The image autoencoder of Stable Diffusion (AutoencoderKL): pictures [B, 3, H, W] with values from -1 to 1, and
// latents [B, 4, H / 8, W / 8]. Weights under diffusers' names, today's and those of older files.
#pragma once

#include <torch/torch.h>

#include <vector>

#include "models/base/model.hpp"
#include "models/sd_vae/layers.hpp"

namespace mhla::models {

struct SdVaeOptions {
  std::int64_t in_channels = 3, out_channels = 3, latent_channels = 4;
  std::vector<std::int64_t> block_out_channels = {128, 256, 512, 512};
  std::int64_t layers_per_block = 2, norm_num_groups = 32;
  double scaling_factor = 0.18215;  // of the latents that diffusion models work on

  std::int64_t factor() const { return std::int64_t{1} << (block_out_channels.size() - 1); }  // pixels per latent
};

// From a config of diffusers; members that do not concern these sizes are left alone.
void to_json(io::Json& json, const SdVaeOptions& options);
void from_json(const io::Json& json, SdVaeOptions& options);

class SdVae : public Model {
 public:
  explicit SdVae(SdVaeOptions options = {});

  struct Posterior {
    at::Tensor mean, log_variance;
    at::Tensor sample(const at::Tensor& noise) const { return mean + (0.5 * log_variance).exp() * noise; }
  };
  // Latents are unscaled: multiply by scaling_factor for a diffusion model.
  Posterior encode(const at::Tensor& pictures);
  at::Tensor decode(const at::Tensor& latents);

  io::Json config() const override { return options; }
  std::span<const SameLayer> weight_names() const override;

  const SdVaeOptions options;

 private:
  void make_encoder();
  void make_decoder();

  torch::nn::Conv2d encoder_in_ = nullptr, encoder_out_ = nullptr, decoder_in_ = nullptr, decoder_out_ = nullptr;
  torch::nn::GroupNorm encoder_norm_ = nullptr, decoder_norm_ = nullptr;
  sd_vae::Middle encoder_middle_ = nullptr, decoder_middle_ = nullptr;
  std::vector<sd_vae::Stage> down_, up_;
  torch::nn::Conv2d quant_ = nullptr, post_quant_ = nullptr;
};

}  // namespace mhla::models
