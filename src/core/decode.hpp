// Which blocks a decoding state keeps and how they are weighed, for the CPU and for CUDA: what is constexpr runs on
// both.
#pragma once

#include <cstdint>

#include "core/causal_weights.hpp"
#include "mhla/decode.hpp"

namespace mhla {

// Also throws unless every pointer is there that a step of `tokens` tokens needs (0: decode_open).
void validate(const DecodeConfig& config, std::int64_t tokens, const DecodeArgs& args);

namespace cpu {
void decode_step(const DecodeConfig& config, std::int64_t tokens, const DecodeArgs& args);
void decode_open(const DecodeConfig& config, const DecodeArgs& args);
}  // namespace cpu

// How far the blocks of a state reach and what its policy does with them.
struct DecodePolicy {
  BeyondTrained beyond = BeyondTrained::error;
  std::int64_t trained = 0;
  std::int64_t slots = 0;
  bool folds = false;

  // Blocks [first, block) are mixed one by one while `block` is open; with is_folded() also the sum of those before.
  constexpr std::int64_t first(std::int64_t block) const {
    std::int64_t first = 0;
    if (block >= trained && beyond == BeyondTrained::running_mean) first = block;
    if (block >= trained && beyond == BeyondTrained::clamp) first = block - trained + 1;
    return first > block - slots ? first : block - slots;
  }
  constexpr bool is_folded(std::int64_t block) const { return folds && block >= trained; }

  // The block that joins the folded sum when `block` is complete; negative: none.
  constexpr std::int64_t leaving(std::int64_t block) const {
    if (!folds) return -1;
    return beyond == BeyondTrained::clamp ? block + 1 - trained : block;
  }
};

inline DecodePolicy policy_of(const DecodeConfig& config) {
  return {config.beyond, config.mixing_blocks, config.slots(), config.folds()};
}

// Row `block` of a causal matrix.
template <typename T>
struct MixingRow {
  const T* matrix = nullptr;  // [trained, trained]
  std::int64_t trained = 0;
  std::int64_t block = 0;
  BeyondTrained beyond = BeyondTrained::error;
  double stretch = 1;  // of an interpolated row: keeps the sum of the last trained one

  constexpr bool is_interpolated() const { return block >= trained && beyond == BeyondTrained::interpolate; }
  constexpr double last(std::int64_t b) const { return static_cast<double>(matrix[(trained - 1) * trained + b]); }
  constexpr double interpolated(std::int64_t b) const {
    const Between at = relative_position(b, block + 1, trained);
    return (1 - at.fraction) * last(at.first) + at.fraction * last(at.second);
  }
  // Given the sums of the last trained row and of interpolated(b), b <= block.
  constexpr void set_stretch(double trained_sum, double sum) {
    const double ratio = trained_sum / sum;
    stretch = ratio > 0 && ratio - ratio == 0 ? ratio : 1;
  }
  constexpr T operator[](std::int64_t b) const {
    return is_interpolated() ? static_cast<T>(stretch * interpolated(b))
                             : causal_weight(matrix, trained, block, b, beyond);
  }
};

// The part of a step that falls into one block: tokens [first, first + count) of the step are rows [filled, filled +
// count) of block `block`. A step of `tokens` tokens has at most most_pieces() such parts, some perhaps empty.
struct DecodePiece {
  std::int64_t block = 0, filled = 0, first = 0, count = 0;
};

constexpr std::int64_t most_pieces(std::int64_t tokens, std::int64_t block_size) {
  return (tokens + 2 * block_size - 2) / block_size;
}

constexpr DecodePiece piece_of(std::int64_t seen, std::int64_t tokens, std::int64_t block_size, std::int64_t piece) {
  const std::int64_t block = seen / block_size + piece;
  const std::int64_t begin = piece == 0 ? seen : block * block_size;
  const std::int64_t room = (block + 1) * block_size - begin;
  const std::int64_t left = seen + tokens - begin;
  return {block, begin - block * block_size, begin - seen, left < 0 ? 0 : left < room ? left : room};
}

}  // namespace mhla
