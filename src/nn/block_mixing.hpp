// The learned mixing matrix of one layer, with the blocks it mixes.
#pragma once

#include <torch/torch.h>

#include <vector>

#include "mhla/partition.hpp"
#include "nn/grid.hpp"

namespace mhla::nn {

// Registered as "piece_attn", its parameter is the authors' piece_attn.conv.weight [M, M, 1, 1].
class BlockMixingImpl : public torch::nn::Module {
 public:
  BlockMixingImpl() = default;  // linear attention: one block of weight one, nothing to learn
  BlockMixingImpl(const Partition& partition, const at::Tensor& initial, bool frozen);  // initial: [M, M]

  // On another grid than its own the number of blocks per axis stays; where that grid has room for fewer, the matrix is
  // resized as by resize_mixing, and gradients reach the parameter through it.
  struct Blocks {
    Partition partition;
    at::Tensor mixing;  // [M, M]
  };
  Blocks on(Grid grid, at::Device device);

  at::Tensor weight;  // undefined for linear attention

 private:
  // Of the blocks of another layout among those at home, [M', M] in double.
  const at::Tensor& positions_of(const Partition& here, at::Device device);

  Partition home_ = Partition::grid({1, 1}, {1, 1});
  at::Tensor one_;
  at::Tensor positions_;  // of the last layout asked for
  Grid positions_for_;    // its blocks per axis
};
TORCH_MODULE(BlockMixing);

// As project_mixing_ of mhla/torch.hpp, for the matrices of all layers together.
void project_mixing_(const std::vector<at::Tensor>& matrices);

}  // namespace mhla::nn
