// What a streaming state accepts.
#include <string>

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
  problem.partition = Partition::line(0, config.block_size);
  problem.options = config.options;
  problem.options.masking = Masking::token_causal;
  problem.mixing_blocks = config.mixing_blocks;
  problem.mixing_per_head = config.mixing_per_head;
  validate(problem);
  std::int64_t elements = 0;
  if (__builtin_mul_overflow(config.batch * config.heads, config.key_dim * config.value_dim, &elements) ||
      elements > (std::int64_t{1} << 48))
    throw Error("batch x heads x key_dim x value_dim is too large for a state");
}

}  // namespace mhla
