// Images as tokens: one per patch, [B, channels, H, W] -> [B, N, C].
#pragma once

#include <torch/torch.h>

#include "nn/grid.hpp"

namespace mhla::nn {

// The patches that cover an image of this size.
Grid patch_grid(std::int64_t height, std::int64_t width, std::int64_t patch);

// Where an image lies on a grid of patches that is larger or smaller than it.
enum class Placement { corner, centre };

class PatchEmbeddingImpl : public torch::nn::Module {
 public:
  PatchEmbeddingImpl(std::int64_t channels, std::int64_t dim, std::int64_t patch);

  // What the image does not cover of the grid is zero, what hangs over is cut off.
  at::Tensor forward(const at::Tensor& images, Grid grid, Placement placement = Placement::corner);

  torch::nn::Conv2d proj;  // a convolution by name and shape of its weights
};
TORCH_MODULE(PatchEmbedding);

}  // namespace mhla::nn
