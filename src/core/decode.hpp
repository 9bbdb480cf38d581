// What a decoding config means, for the CPU and for CUDA.
#pragma once

#include <cstdint>

#include "core/beyond_trained.hpp"
#include "core/sizes.hpp"
#include "mhla/decode.hpp"

namespace mhla {

constexpr std::int64_t kMostDecodeTokens = 1 << 16;  // of a step, and of a block, whose rows every token reads

// Also throws unless every pointer is there that a step of `tokens` tokens needs (0: decode_open).
void validate(const DecodeConfig& config, std::int64_t tokens, const DecodeArgs& args);

// Blocks the longest batch row may reach.
inline std::int64_t most_blocks(const DecodeConfig& config) {
  require_size("block_size", config.block_size, 1, kMostBlockTokens);
  if (config.max_tokens > 0) return divide_up(config.max_tokens, config.block_size);
  return config.beyond == BeyondTrained::error ? config.mixing_blocks : KeptBlocks::kAny;
}

// Tokens a batch row may have; 0: any number.
inline std::int64_t most_tokens(const DecodeConfig& config) {
  if (config.max_tokens > 0) return config.max_tokens;
  return config.beyond == BeyondTrained::error ? config.mixing_blocks * config.block_size : 0;
}

inline KeptBlocks kept_blocks(const DecodeConfig& config) {
  return {config.beyond, config.mixing_blocks, most_blocks(config)};
}

// A step of `tokens` tokens falls into at most this many blocks.
constexpr std::int64_t most_pieces(std::int64_t tokens, std::int64_t block_size) {
  return (tokens + 2 * block_size - 2) / block_size;
}

}  // namespace mhla
