// Patches in one matrix product.
#include "nn/patch_embedding.hpp"

namespace mhla::nn {

Grid patch_grid(std::int64_t height, std::int64_t width, std::int64_t patch) {
  return {(height + patch - 1) / patch, (width + patch - 1) / patch};
}

PatchEmbeddingImpl::PatchEmbeddingImpl(std::int64_t channels, std::int64_t dim, std::int64_t patch)
    : proj(register_module("proj", torch::nn::Conv2d(torch::nn::Conv2dOptions(channels, dim, patch).stride(patch)))) {}

at::Tensor PatchEmbeddingImpl::forward(const at::Tensor& images, Grid grid, Placement placement) {
  const std::int64_t channels = proj->weight.size(1), patch = proj->weight.size(2);
  const std::int64_t more_height = grid.height * patch - images.size(2),
                     more_width = grid.width * patch - images.size(3);
  at::Tensor whole = images;
  if (more_height != 0 || more_width != 0) {
    const bool centre = placement == Placement::centre;
    const std::int64_t top = centre ? more_height / 2 : 0, left = centre ? more_width / 2 : 0;
    whole = at::constant_pad_nd(images, {left, more_width - left, top, more_height - top});
  }
  // A convolution whose patches do not overlap is a matrix product, and leaves tokens in the order they are used.
  const at::Tensor pixels = whole.unflatten(3, {grid.width, patch})
                                .unflatten(2, {grid.height, patch})
                                .permute({0, 2, 4, 1, 3, 5})
                                .reshape({images.size(0), grid.tokens(), channels * patch * patch});
  return at::linear(pixels, proj->weight.flatten(1), proj->bias);
}

}  // namespace mhla::nn
