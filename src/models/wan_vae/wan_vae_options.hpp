// Sizes of Wan2.1's video autoencoder.
#pragma once

#include <cstdint>
#include <vector>

#include "io/json.hpp"

namespace mhla::models {

struct WanVaeOptions {
  std::int64_t width = 96, latent_channels = 16;
  std::vector<std::int64_t> multipliers = {1, 2, 4, 4};  // of the width, level by level
  std::int64_t residuals = 2;                            // of a level; the decoder has one more
  std::vector<bool> halves_time = {false, true, true};   // between levels; height and width are always halved
  // Of the latents that video models work on: (latent - mean) / deviation.
  std::vector<double> mean = {-0.7571, -0.7089, -0.9113, 0.1075,  -0.1745, 0.9653,  -0.1517, 1.5508,
                              0.4134,  -0.0715, 0.5517,  -0.3632, -0.1922, -0.9497, 0.2503,  -0.2921};
  std::vector<double> deviation = {2.8184, 1.4541, 2.3275, 2.6558, 1.2196, 1.7708, 2.6052, 2.0743,
                                   3.2687, 2.1526, 2.8652, 1.5579, 1.6382, 1.1253, 2.8251, 1.9160};

  std::int64_t pixels() const { return std::int64_t{1} << halves_time.size(); }  // of height and of width, per latent
  std::int64_t frames() const;                                                   // per latent, but the first is one
};

// JSON as a config of diffusers has it; members that do not concern these sizes are left alone.
void to_json(io::Json& json, const WanVaeOptions& options);
void from_json(const io::Json& json, WanVaeOptions& options);
double least_elements(const WanVaeOptions& options);       // of the tensors: those of most convolutions
void check_wan_vae_options(const WanVaeOptions& options);  // throws an Error that names the wrong one

}  // namespace mhla::models
