// What a streaming state accepts.
#include <algorithm>
#include <string>

#include "core/sizes.hpp"
#include "core/strides.hpp"
#include "core/validate.hpp"

namespace mhla {

void validate(const StateConfig& config) {
  if (config.options.masking == Masking::block_causal)
    throw Error("options.masking is block-causal; a state is token-causal");
  if (config.options.normalizer == Normalizer::authors)
    throw Error("options.normalizer is authors; a state may have none or paper");
  static_cast<void>(name(config.beyond));
  if (config.mixing_blocks < 1 && config.beyond != BeyondTrained::running_mean)
    throw Error("mixing_blocks is " + std::to_string(config.mixing_blocks) + "; it must be at least 1");
  if (config.batch < 1) throw Error("batch is " + std::to_string(config.batch) + "; a state needs at least 1");
  Problem problem;
  problem.dtype = config.dtype;
  problem.batch = config.batch;
  problem.heads = config.heads;
  problem.kv_heads = config.kv_heads;
  problem.key_dim = config.key_dim;
  problem.value_dim = config.value_dim;
  require_size("block_size", config.block_size, 1, kMostBlockTokens);
  problem.partition = Partition::line(0, config.block_size);
  problem.options = config.options;
  problem.options.masking = Masking::token_causal;
  problem.mixing_blocks = config.mixing_blocks;
  problem.mixing_per_head = config.mixing_per_head;
  validate(problem);
  checked_elements("batch x heads x key_dim x value_dim",
                   {config.batch, config.heads, config.key_dim, config.value_dim});
}

void validate(const StateConfig& config, std::int64_t tokens, const ConstTensor& q, const ConstTensor& k,
              const ConstTensor& v, const Tensor& o) {
  require_size("tokens", tokens, 0, kMostTokens);
  if (tokens == 0) return;
  if (tokens > 1)  // one has fewer elements than the state
    checked_elements("batch x tokens x heads x dim",
                     {config.batch, tokens, config.heads, std::max(config.key_dim, config.value_dim)});
  const auto input = [&](const char* name, const ConstTensor& x, std::int64_t heads, std::int64_t dim) {
    if (x.data == nullptr) throw Error(std::string(name) + " is null");
    require_strides(name, x, {config.batch, tokens, heads, dim});
  };
  input("q", q, config.heads, config.key_dim);
  input("k", k, config.kv_heads, config.key_dim);
  input("v", v, config.kv_heads, config.value_dim);
  if (o.data == nullptr) throw Error("o is null");
  require_apart("o", o, {config.batch, tokens, config.heads, config.value_dim});
}

}  // namespace mhla
