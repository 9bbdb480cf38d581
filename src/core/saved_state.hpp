// A streaming state as bytes: one format for mhla::State and for decoding states, so for the CPU and for CUDA.
//
//   magic, format number
//   configuration; how the open block is kept; tokens seen, [batch]
//   mixing         T [M, M] or [H, M, M]
//   folded sums    f64 S [batch, kv_heads, Dk, Dv], z [batch, kv_heads, Dk]: blocks that left, where the policy folds
//   blocks         of each batch row those with a summary of their own, oldest first: A S [kv_heads, Dk, Dv], T z
//   open block     T S and z of the batch; or of each batch row its tokens so far: E k [kv_heads, filled, Dk], E v
//   checksum of all before it
//
// T is the accumulation type, A the summary_dtype, E the element type. There is no z without a normaliser. P_i is not
// saved; it is mixed again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "core/bytes.hpp"
#include "core/decode.hpp"

namespace mhla {

enum class OpenBlock : std::uint32_t {
  summary,  // mhla::State
  rows      // a decoding state
};

// What comes before the arrays.
struct SavedState {
  DecodeConfig config;  // no device is saved; of an mhla::State summary_dtype is T and max_tokens 0
  OpenBlock open = OpenBlock::summary;
  std::vector<std::int64_t> tokens;  // [batch]

  bool normalized() const { return config.options.normalizer != Normalizer::none; }
  KeptBlocks kept() const {
    return open == OpenBlock::rows ? kept_blocks(config) : KeptBlocks(config.beyond, config.mixing_blocks);
  }
  // Of a batch row: its open block, the first block with a summary of its own, the tokens of the open block.
  std::int64_t block(std::size_t row) const { return tokens[row] / config.block_size; }
  std::int64_t first(std::size_t row) const { return kept().folds ? kept().first(block(row)) : 0; }
  std::int64_t filled(std::size_t row) const { return tokens[row] % config.block_size; }
};

// To write a state: begin, write the arrays in their order, finish. Begin throws an Error for what could not be read.
ByteWriter begin_saved_state(const SavedState& state);
std::vector<std::byte> finish_saved_state(ByteWriter out);

// The state and a reader of its arrays. Throws an Error unless the checksum is right, every field and position is one
// that a state can have, and the arrays are as long as that says.
std::pair<SavedState, ByteReader> open_saved_state(std::span<const std::byte> bytes);

}  // namespace mhla
