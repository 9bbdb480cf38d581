// Noise of a picture is a function of (seed, number of the picture), whatever batch it is drawn in.
#pragma once
#include <torch/torch.h>

#include <vector>

namespace mhla::diffusion {

class PictureNoise {
 public:
  // Pictures first, first + 1, ..., first + count - 1.
  PictureNoise(std::uint64_t seed, std::int64_t first, std::int64_t count);
  PictureNoise(std::uint64_t seed, const std::vector<std::int64_t>& numbers);

  // The next normal numbers of every picture: [count, shape...] in float32 on the CPU.
  torch::Tensor draw(torch::IntArrayRef shape);

 private:
  std::vector<torch::Generator> generators_;
};

}  // namespace mhla::diffusion
