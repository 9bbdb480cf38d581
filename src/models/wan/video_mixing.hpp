// The learned mixing matrix of one layer on a grid of frames, rows and columns.
#pragma once

#include <torch/torch.h>

#include "mhla/partition.hpp"
#include "models/wan/video_grid.hpp"

namespace mhla::models {

// Registered as "block_attn", its parameter is the authors' block_attn.conv.weight [M, M, 1, 1].
class VideoMixingImpl : public torch::nn::Module {
 public:
  VideoMixingImpl(const Partition& partition, const at::Tensor& initial, bool frozen);  // initial: [M, M]

  // On another grid than its own the number of blocks per axis stays, and the last ones are smaller; where that grid
  // has room for fewer, the matrix is resized as by resize_mixing, and gradients reach the parameter through it.
  struct Blocks {
    Partition partition;
    at::Tensor mixing;  // [M, M]
  };
  Blocks on(VideoGrid grid);

  at::Tensor weight;

 private:
  const Partition home_;
  Partition last_;        // the last layout the matrix was resized for,
  at::Tensor positions_;  // and where its blocks lie
};
TORCH_MODULE(VideoMixing);

}  // namespace mhla::models
