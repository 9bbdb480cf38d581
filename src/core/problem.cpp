// Sizes that follow from a Problem.
#include <algorithm>

#include "mhla/attention.hpp"

namespace mhla {

std::int64_t Problem::initial_blocks() const {
  const std::int64_t capacity = partition.block_capacity();
  return (initial_tokens + capacity - 1) / capacity;
}

std::int64_t Problem::final_blocks() const {
  if (!partition.is_line()) return partition.blocks();
  std::int64_t longest = cu_seqlens.empty() ? partition.tokens() : 0;
  for (std::size_t s = 1; s < cu_seqlens.size(); ++s) longest = std::max(longest, cu_seqlens[s] - cu_seqlens[s - 1]);
  const std::int64_t capacity = partition.block_capacity();
  return (initial_tokens + longest + capacity - 1) / capacity;
}

}  // namespace mhla
