// The deep-compression autoencoder (DC-AE): pictures [B, 3, H, W] with values from -1 to 1, and latents of few pixels
// and many channels, [B, 32, H / 32, W / 32]. Weights under diffusers' names.
#pragma once

#include <torch/torch.h>

#include <memory>
#include <string>
#include <vector>

#include "models/base/model.hpp"
#include "models/dcae/layers.hpp"

namespace mhla::models {

// From a config of diffusers; members that do not concern these sizes are left alone. The defaults are those of Sana's
// autoencoder.
struct DcaeOptions {
  std::int64_t in_channels = 3, latent_channels = 32, attention_head_dim = 32;
  std::vector<std::string> encoder_block_types = {"ResBlock",          "ResBlock",          "ResBlock",
                                                  "EfficientViTBlock", "EfficientViTBlock", "EfficientViTBlock"};
  std::vector<std::string> decoder_block_types = encoder_block_types;
  std::vector<std::int64_t> encoder_block_out_channels = {128, 256, 512, 512, 1024, 1024};
  std::vector<std::int64_t> decoder_block_out_channels = encoder_block_out_channels;
  std::vector<std::int64_t> encoder_layers_per_block = {2, 2, 2, 3, 3, 3};
  std::vector<std::int64_t> decoder_layers_per_block = {3, 3, 3, 3, 3, 3};
  std::vector<std::vector<std::int64_t>> encoder_qkv_multiscales = {{}, {}, {}, {5}, {5}, {5}};
  std::vector<std::vector<std::int64_t>> decoder_qkv_multiscales = encoder_qkv_multiscales;
  std::string downsample_block_type = "Conv";       // or pixel_unshuffle
  std::string upsample_block_type = "interpolate";  // or pixel_shuffle
  double scaling_factor = 0.41407;                  // of the latents that diffusion models work on

  std::int64_t factor() const {
    return std::int64_t{1} << (encoder_block_out_channels.size() - 1);
  }  // pixels per latent
};

void to_json(io::Json& json, const DcaeOptions& options);
void from_json(const io::Json& json, DcaeOptions& options);

class Dcae : public Model {
 public:
  explicit Dcae(DcaeOptions options = {});

  // Latents are unscaled: multiply by scaling_factor for a diffusion model.
  at::Tensor encode(const at::Tensor& pictures);
  at::Tensor decode(const at::Tensor& latents);

  io::Json config() const override { return options; }

  const DcaeOptions options;

 private:
  using Stage = std::vector<std::shared_ptr<dcae::Block>>;

  void make_encoder();
  void make_decoder();

  std::vector<Stage> down_, up_;                                    // from large pictures to small ones
  std::shared_ptr<dcae::Block> encoder_start_, decoder_end_;        // where the first stage has no layers
  torch::nn::Conv2d encoder_in_ = nullptr, decoder_out_ = nullptr;  // where it has
  torch::nn::Conv2d encoder_out_ = nullptr, decoder_in_ = nullptr;
  dcae::ChannelNorm decoder_norm_ = nullptr;
};

}  // namespace mhla::models
