// Sizes that follow from a Problem.
#include <algorithm>

#include "core/sizes.hpp"
#include "mhla/attention.hpp"

namespace mhla {

std::int64_t Problem::initial_blocks() const {
  require_size("initial_tokens", initial_tokens, 0, kMostTokens);
  return divide_up(initial_tokens, partition.block_capacity());
}

std::int64_t Problem::final_blocks() const {
  if (!partition.is_line()) return partition.blocks();
  for (const std::int64_t offset : cu_seqlens) require_size("an entry of cu_seqlens", offset, 0, kMostTokens);
  std::int64_t longest = cu_seqlens.empty() ? partition.tokens() : 0;
  for (std::size_t s = 1; s < cu_seqlens.size(); ++s) longest = std::max(longest, cu_seqlens[s] - cu_seqlens[s - 1]);
  require_size("initial_tokens", initial_tokens, 0, kMostTokens);
  require_size("tokens", longest, 0, kMostTokens);
  return divide_up(initial_tokens + longest, partition.block_capacity());
}

}  // namespace mhla
