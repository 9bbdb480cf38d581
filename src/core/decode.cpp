// Decoding: what a config means and what is accepted.
#include "core/decode.hpp"

#include <string>
#include <utility>

#include "core/validate.hpp"

namespace mhla {
namespace {

void require_given(const void* data, const std::string& argument) {
  if (data == nullptr) throw Error(argument + " is null");
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
  if (config.max_tokens < 0)
    throw Error("max_tokens is " + std::to_string(config.max_tokens) + "; it must not be negative");
  if (config.beyond == BeyondTrained::interpolate && config.max_tokens == 0)
    throw Error("max_tokens is 0; beyond interpolate keeps every block, so it must say how many tokens there may be");
  if (config.beyond == BeyondTrained::error && most_blocks(config) > config.mixing_blocks)
    throw Error("max_tokens is " + std::to_string(config.max_tokens) + "; with beyond error it may be " +
                std::to_string(config.mixing_blocks * config.block_size) + ", the tokens of the " +
                std::to_string(config.mixing_blocks) +
                " blocks the matrix was trained for (or choose clamp, running-mean or interpolate)");
  if (config.block_size > (1 << 16))
    throw Error("block_size is " + std::to_string(config.block_size) +
                "; decoding takes at most 2^16, whose rows it reads for every token");
}

void validate(const DecodeConfig& config, std::int64_t tokens, const DecodeArgs& args) {
  validate(config);
  if (tokens < 0 || tokens > (1 << 16)) throw Error("tokens is " + std::to_string(tokens) + "; a step has 0 to 2^16");
  if (config.max_tokens > 0 && tokens > config.max_tokens)
    throw Error("tokens is " + std::to_string(tokens) + "; it must be at most max_tokens, " +
                std::to_string(config.max_tokens));
  if (tokens > 0)
    for (const auto& [data, argument] : {std::pair{args.q.data, "q"},
                                         {args.k.data, "k"},
                                         {args.v.data, "v"},
                                         {static_cast<const void*>(args.o.data), "o"}})
      require_given(data, argument);
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
  if (args.run.stream != nullptr && config.device == Device::cpu)
    throw Error("stream is given; it must be null with device cpu");
}

}  // namespace mhla
