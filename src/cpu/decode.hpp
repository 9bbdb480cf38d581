// Decoding on the CPU; arguments are checked already.
#pragma once

#include "mhla/decode.hpp"

namespace mhla::cpu {

void decode_step(const DecodeConfig& config, std::int64_t tokens, const DecodeArgs& args);
void decode_open(const DecodeConfig& config, const DecodeArgs& args);

}  // namespace mhla::cpu
