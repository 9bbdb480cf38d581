// Decoding on CUDA; arguments are checked already. Everything is enqueued on args.run.stream of the current device.
#pragma once

#include "mhla/decode.hpp"

namespace mhla::cuda {

void decode_step(const DecodeConfig& config, std::int64_t tokens, const DecodeArgs& args);
void decode_open(const DecodeConfig& config, const DecodeArgs& args);

}  // namespace mhla::cuda
