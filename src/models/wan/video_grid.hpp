// Tokens of a video lie on a grid of frames, rows and columns; the last axis is the fastest.
#pragma once

#include <torch/torch.h>

#include <array>
#include <cstdint>

namespace mhla::models {

struct VideoGrid {
  std::int64_t frames = 0, height = 0, width = 0;

  std::int64_t tokens() const { return frames * height * width; }
  std::array<std::int64_t, 3> sizes() const { return {frames, height, width}; }
  bool operator==(const VideoGrid&) const = default;
};

// [B, N, C] tokens and [B, C, frames, height, width] videos of the same memory.
inline at::Tensor as_video(const at::Tensor& tokens, VideoGrid grid) {
  return tokens.unflatten(1, {grid.frames, grid.height, grid.width}).permute({0, 4, 1, 2, 3});
}
inline at::Tensor video_tokens(const at::Tensor& video) { return video.flatten(2).transpose(1, 2); }

}  // namespace mhla::models
