// Where a classifier looks: pictures of attention and mixing laid over an image.
#pragma once

#include <torch/torch.h>

#include <array>
#include <cstddef>
#include <optional>
#include <vector>

namespace mhla::cli {

struct Overlay {
  at::Tensor image;                                  // uint8 [H, W, 3], as the model saw it
  at::Tensor attention;                              // [rows, columns] of tokens; sums to one
  at::Tensor mixing;                                 // likewise, the weight of a token's block; undefined without MHLA
  std::optional<std::array<std::int64_t, 2>> token;  // the one that looks, marked; none: all of them
};

// Side by side: the image, attention over it, mixing over it. Colour is the weight relative to uniform as in the heat
// maps of `mhla analyze`, from a tenth (dark) to ten times (bright).
std::vector<std::byte> overlay_png(const Overlay& overlay);

}  // namespace mhla::cli
