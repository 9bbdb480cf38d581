// Decoding: the way to the device.
#include "mhla/decode.hpp"

#include <string>

#include "core/decode.hpp"
#include "cpu/decode.hpp"
#include "cuda/decode/decode.hpp"

namespace mhla {
namespace {

// On CUDA only the device knows the positions.
void check_positions(const DecodeConfig& config, std::int64_t tokens, const DecodeMemory& memory) {
  const std::int64_t most = most_tokens(config) > 0 ? most_tokens(config) : std::int64_t{1} << 61;
  for (std::int64_t row = 0; row < config.batch; ++row)
    if (memory.tokens[row] < 0 || memory.tokens[row] > most - tokens)
      throw Error("memory.tokens of batch row " + std::to_string(row) + " is " + std::to_string(memory.tokens[row]) +
                  "; before " + std::to_string(tokens) + " more it may be 0 to " + std::to_string(most - tokens));
}

}  // namespace

void decode_step(const DecodeConfig& config, std::int64_t tokens, const DecodeArgs& args) {
  validate(config, tokens, args);
  if (tokens == 0) return;
  if (config.device == Device::cuda) return cuda::decode_step(config, tokens, args);
  check_positions(config, tokens, args.memory);
  cpu::decode_step(config, tokens, args);
}

void decode_open(const DecodeConfig& config, const DecodeArgs& args) {
  validate(config, 0, args);
  if (config.device == Device::cuda) return cuda::decode_open(config, args);
  check_positions(config, 0, args.memory);
  cpu::decode_open(config, args);
}

}  // namespace mhla
