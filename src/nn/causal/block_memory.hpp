// The state of a causal MHLA layer as tensors, on the CPU or on CUDA: the memory of mhla/decode.hpp without a
// normaliser. A step of one token takes the decoding operator, more tokens the ordinary one.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <optional>

#include "mhla/decode.hpp"
#include "nn/causal/attention.hpp"

namespace mhla::nn {

// `layer` holds what is the layer's own: heads, widths, block size, options, policy. Batch, types and the number of
// summaries are those of the memory.
LayerState new_block_memory(const DecodeConfig& layer, std::int64_t batch, const at::TensorOptions& like);

// How many tokens of a row there is room for.
std::int64_t room_of_blocks(const DecodeConfig& layer, const LayerState& state);

// Makes room for the summaries of rows of this many tokens. mixing: [M, M].
void reserve_blocks(const DecodeConfig& layer, const at::Tensor& mixing, LayerState& state, std::int64_t tokens);

// Mixes P of the open block again.
void open_block(const DecodeConfig& layer, const at::Tensor& mixing, LayerState& state);

// o of tokens that the state takes in. `seen`: tokens before them; none: rows differ, and it is one token each.
struct BlockTokens {
  at::Tensor q, k, v;  // [B, T, H, D]
};
at::Tensor through_blocks(const DecodeConfig& layer, const at::Tensor& mixing, LayerState& state,
                          const BlockTokens& tokens, std::optional<std::int64_t> seen);

}  // namespace mhla::nn
