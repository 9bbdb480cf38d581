// The video autoencoder of Wan2.1: videos [B, 3, 1 + 4 n, H, W] with values from -1 to 1, and latents
// [B, 16, 1 + n, H / 8, W / 8]. No frame depends on a later one, so that videos can pass piece by piece.
#pragma once

#include <torch/torch.h>

#include <string>
#include <utility>
#include <vector>

#include "models/base/model.hpp"
#include "models/wan_vae/coders.hpp"
#include "models/wan_vae/wan_vae_options.hpp"

namespace mhla::models {

// One video on its way through encoder or decoder: what is kept of its earlier frames, whose size does not depend on
// their number.
class WanVaeStream {
 public:
  explicit WanVaeStream(std::int64_t tile = 0) : tile(tile) {}

  const std::int64_t tile;  // side of a tile in latents; 0: whole frames. Results differ in their last bits

 private:
  friend class WanVae;
  wan_vae::FrameCache small_;
  std::vector<wan_vae::FrameCache> large_;  // of each tile
};

class WanVae : public Model {
 public:
  explicit WanVae(const WanVaeOptions& options = {});

  // The next frames of a video, the first time 1 + 4 n of them, then 4 n; and its next latents, any number of them.
  // Decoded values may lie outside of -1 to 1.
  at::Tensor encode_next(const at::Tensor& frames, WanVaeStream& stream);
  at::Tensor decode_next(const at::Tensor& latents, WanVaeStream& stream);

  // A whole video, a latent after the other: the same bits as through a stream. Latents are the mean of the posterior.
  at::Tensor encode(const at::Tensor& video, std::int64_t tile = 0);
  at::Tensor decode(const at::Tensor& latents, std::int64_t tile = 0);

  // Latents as video models work on them, and back.
  at::Tensor scaled(const at::Tensor& latents) const {
    return (latents - per_channel(options.mean, latents)) / deviation(latents);
  }
  at::Tensor unscaled(const at::Tensor& latents) const {
    return latents * deviation(latents) + per_channel(options.mean, latents);
  }

  io::Json config() const override { return options; }
  std::span<const SameLayer> weight_names() const override { return same_layers_; }

  const WanVaeOptions options;

 private:
  void name_layers();
  at::Tensor deviation(const at::Tensor& latents) const { return per_channel(options.deviation, latents); }
  static at::Tensor per_channel(const std::vector<double>& values, const at::Tensor& latents);

  wan_vae::Encoder encoder_;
  wan_vae::Decoder decoder_;
  wan_vae::CausalConvolution conv1_, conv2_;
  std::vector<std::pair<std::string, std::string>> names_;  // diffusers' and Wan's
  std::vector<SameLayer> same_layers_;                      // of them
};

}  // namespace mhla::models
