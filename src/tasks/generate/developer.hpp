// From what a generator draws to pixels: directly, or through the autoencoder of its latents.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <memory>

#include "models/generator_file.hpp"
#include "models/sd_vae/sd_vae.hpp"

namespace mhla::tasks {

class Developer {
 public:
  // `autoencoder`: of a generator of latents, else null. Throws an Error where the two do not fit.
  Developer(const models::LoadedGenerator& generator, std::shared_ptr<models::SdVae> autoencoder);

  std::int64_t factor() const;  // pixels per height and width of what is drawn

  // [N, channels, h, w] -> uint8 [N, H, W, 3] on the CPU. On a CPU a picture depends on nothing but itself. Values that
  // are not finite are an Error.
  at::Tensor pixels(const at::Tensor& drawn) const;

 private:
  at::Tensor decoded(const at::Tensor& latents) const;

  std::shared_ptr<models::SdVae> autoencoder_;
  double scale_;
};

}  // namespace mhla::tasks
