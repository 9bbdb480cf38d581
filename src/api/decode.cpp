// Decoding: the way to the device.
#include "mhla/decode.hpp"

#include "core/decode.hpp"
#include "cpu/decode.hpp"
#include "cuda/decode/decode.hpp"

namespace mhla {
void decode_step(const DecodeConfig& config, std::int64_t tokens, const DecodeArgs& args) {
  validate(config, tokens, args);
  if (tokens == 0) return;
  if (config.device == Device::cuda) return cuda::decode_step(config, tokens, args);
  cpu::decode_step(config, tokens, args);
}

void decode_open(const DecodeConfig& config, const DecodeArgs& args) {
  validate(config, 0, args);
  if (config.device == Device::cuda) return cuda::decode_open(config, args);
  cpu::decode_open(config, args);
}

}  // namespace mhla
