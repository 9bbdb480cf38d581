// Latents of pictures, computed once for many trainings: from images to the folder that latents.hpp describes.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "models/sd_vae/sd_vae.hpp"

namespace mhla::tasks {

struct EncodeOptions {
  std::string data, out;
  std::vector<std::int64_t> image_size = {256, 256};
  std::int64_t batch = 16, shard = 4096;  // pictures at a time, and of a file
  std::uint64_t seed = 0;                 // of the noise of the posterior
  int workers = 0;
  bool half = false;  // store in half precision
};

struct Encoded {
  std::string split;
  std::int64_t pictures = 0, bad = 0, files = 0;
};

// progress(pictures done, pictures in all), over all splits.
std::vector<Encoded> encode_images(const EncodeOptions& options, models::SdVae& autoencoder, at::Device device,
                                   const std::function<void(std::int64_t, std::int64_t)>& progress);

}  // namespace mhla::tasks
