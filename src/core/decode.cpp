// Decoding: what a config means and what is accepted.
#include "core/decode.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "core/sizes.hpp"
#include "core/validate.hpp"

namespace mhla {
namespace {

void require_given(const void* data, const std::string& argument) {
  if (data == nullptr) throw Error(argument + " is null");
}

// Positions in device memory cannot be looked at from here.
void validate_positions(const DecodeConfig& config, std::int64_t tokens, const std::int64_t* positions) {
  if (config.device != Device::cpu) return;
  const std::int64_t most = most_tokens(config) > 0 ? most_tokens(config) : kMostTokens;
  for (std::int64_t b = 0; b < config.batch; ++b)
    if (positions[b] < 0 || positions[b] > most - tokens)
      throw Error("memory.tokens of batch row " + std::to_string(b) + " is " + std::to_string(positions[b]) +
                  "; before " + std::to_string(tokens) + " more it may be 0 to " + std::to_string(most - tokens));
}

}  // namespace

std::int64_t DecodeConfig::slots() const { return kept_blocks(*this).slots; }

bool DecodeConfig::folds() const { return kept_blocks(*this).folds; }

std::int64_t DecodeConfig::mixed_heads() const { return mixing_per_head ? heads : kv_heads; }

void validate(const DecodeConfig& config) {
  validate(static_cast<const StateConfig&>(config));
  const bool is_double = config.dtype == DType::f64;
  if (config.summary_dtype != (is_double ? DType::f64 : DType::f32) &&
      (is_double || config.summary_dtype != DType::bf16))
    throw Error("summary_dtype is " + std::string(name(config.summary_dtype)) + "; beside " +
                std::string(name(config.dtype)) + " it must be " + (is_double ? "f64" : "f32 or bf16"));
  require_size("block_size", config.block_size, 1, kMostDecodeTokens);
  require_size("max_tokens", config.max_tokens, 0, kMostTokens);
  if (config.beyond == BeyondTrained::interpolate && config.max_tokens == 0)
    throw Error("max_tokens is 0; beyond interpolate keeps every block, so it must say how many tokens there may be");
  if (config.beyond == BeyondTrained::error && most_blocks(config) > config.mixing_blocks)
    throw Error("max_tokens is " + std::to_string(config.max_tokens) + "; with beyond error it may be " +
                std::to_string(config.mixing_blocks * config.block_size) + ", the tokens of the " +
                std::to_string(config.mixing_blocks) +
                " blocks the matrix was trained for (or choose clamp, running-mean or interpolate)");
  require_size("max_tokens in blocks, all of which are kept,", config.slots(), 0, kMostKeptBlocks);
  const std::int64_t dim = std::max(config.key_dim, config.value_dim);
  checked_elements("batch x kv_heads x kept blocks x key_dim x value_dim",
                   {config.batch, config.kv_heads, config.slots(), config.key_dim, config.value_dim});
  checked_elements("batch x kv_heads x block_size x dim", {config.batch, config.kv_heads, config.block_size, dim});
  if (config.device == Device::cuda)  // thread blocks of a launch
    checked_elements("batch x kv_heads x value_dim", {config.batch, config.kv_heads, config.value_dim}, 0x7fffffff);
}

void validate(const DecodeConfig& config, std::int64_t tokens, const DecodeArgs& args) {
  validate(config);
  require_size("tokens", tokens, 0, kMostDecodeTokens);
  if (config.max_tokens > 0 && tokens > config.max_tokens)
    throw Error("tokens is " + std::to_string(tokens) + "; it must be at most max_tokens, " +
                std::to_string(config.max_tokens));
  validate(config, tokens, args.q, args.k, args.v, args.o);
  if (config.mixing_blocks > 0) require_given(args.mixing, "mixing");
  const DecodeMemory& memory = args.memory;
  for (const auto& [data, argument] : {std::pair<const void*, const char*>{memory.S, "S"},
                                       {memory.P, "P"},
                                       {memory.diagonal, "diagonal"},
                                       {memory.k, "k"},
                                       {memory.v, "v"},
                                       {memory.tokens, "tokens"}})
    require_given(data, std::string("memory.") + argument);
  if (config.folds()) require_given(memory.folded_S, "memory.folded_S");
  if (config.options.normalizer != Normalizer::none) {
    require_given(memory.z, "memory.z");
    require_given(memory.P_z, "memory.P_z");
    if (config.folds()) require_given(memory.folded_z, "memory.folded_z");
  }
  if (config.device == Device::cuda) require_given(memory.arrivals, "memory.arrivals");
  validate_positions(config, tokens, memory.tokens);
  if (args.run.stream != nullptr && config.device == Device::cpu)
    throw Error("stream is given; it must be null with device cpu");
}

}  // namespace mhla
