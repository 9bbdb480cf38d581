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
  // initial: [M, M]; input_heads: heads whose mixing depends on the input (input_mixing.hpp), or 0.
  BlockMixingImpl(const Partition& partition, const at::Tensor& initial, bool frozen, std::int64_t input_heads = 0);

  // On another grid than its own the number of blocks per axis stays; where that grid has room for fewer, the matrix is
  // resized as by resize_mixing, and gradients reach the parameter through it.
  struct Blocks {
    Partition partition;
    at::Tensor mixing;  // [M, M], or [B, H, M, M] where it depends on the input
  };
  Blocks on(Grid grid, at::Device device);                         // the learned matrix
  Blocks on(Grid grid, const at::Tensor& q, const at::Tensor& k);  // what attention of these features mixes by

  at::Tensor weight;  // undefined for linear attention
  at::Tensor tau;     // [H], how much the input counts; undefined where it does not

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
void project_mixing_(const std::vector<at::Tensor>& matrices, double low = 0.0);

}  // namespace mhla::nn
