// The shape of a call out of its public description.
#include <algorithm>

#include "core/layout.hpp"
#include "cuda/support/call_shape.hpp"

namespace mhla::cuda {

CallShape call_shape(const Problem& p) {
  const Partition partition = fitted_partition(p);
  CallShape call;
  call.tokens = p.partition.tokens();
  call.batch = p.batch;
  Shape& s = call.shape;
  const auto pad = [](std::int64_t dim) { return static_cast<int>((dim + 15) / 16 * 16); };
  s.heads = static_cast<int>(p.heads);
  s.kv_heads = static_cast<int>(p.kv_heads);
  s.key_dim = static_cast<int>(p.key_dim);
  s.value_dim = static_cast<int>(p.value_dim);
  s.key_pad = pad(p.key_dim);
  s.value_pad = pad(p.value_dim);

  const std::int64_t capacity = p.partition.block_capacity();
  s.filled = static_cast<int>(p.initial_tokens % capacity);
  s.initial_full = static_cast<int>(p.initial_tokens / capacity);
  // A single block may be longer than what comes: places past its last tile of 64 tokens are never used.
  const std::int64_t used = divide_up(std::max<std::int64_t>(s.filled + call.tokens, 1), 64) * 64;
  s.capacity = static_cast<int>(s.initial_full > 0 ? capacity : std::min(capacity, used));
  s.sequences = static_cast<int>(p.sequences());
  if (p.cu_seqlens.empty()) {
    // What Layout says of every batch row, without listing them.
    const bool filled_line = p.partition.is_line() && p.partition.tokens() > 0;
    s.uniform.tokens = p.partition.tokens();
    s.uniform.blocks =
        static_cast<int>(filled_line ? divide_up(p.partition.tokens() + s.filled, capacity) : p.partition.blocks());
    s.total_blocks = s.sequences * s.uniform.blocks;
  } else {
    const Layout layout(p);
    for (std::int64_t n = 0; n < layout.sequences(); ++n) {
      const Sequence sequence = layout.sequence(n);
      call.packed.push_back({.first_token = sequence.first_token,
                             .tokens = sequence.tokens,
                             .batch = static_cast<int>(sequence.batch),
                             .blocks = static_cast<int>(sequence.blocks),
                             .first_block = s.total_blocks,
                             .index = static_cast<int>(sequence.index)});
      s.total_blocks += static_cast<int>(sequence.blocks);
    }
    s.uniform.blocks = static_cast<int>(layout.most_blocks());
  }
  s.is_line = p.partition.is_line();
  for (int axis = 0; axis < p.partition.axes(); ++axis) {
    const auto to = static_cast<std::size_t>(3 - p.partition.axes() + axis);
    const auto from = static_cast<std::size_t>(axis);
    s.sizes[to] = static_cast<int>(p.partition.sizes()[from]);
    // An initial block may be longer than any number of tokens here.
    s.extents[to] = static_cast<int>(std::min<std::int64_t>(partition.extents()[from], 0x7fffffff));
    s.counts[to] = static_cast<int>(partition.blocks_per_axis()[from]);
  }

  s.by_blocks = Divider(s.uniform.blocks);
  s.by_heads = Divider(s.heads);
  s.by_kv_heads = Divider(s.kv_heads);
  for (int axis = 0; axis < 3; ++axis) {
    s.by_counts[axis] = Divider(s.counts[axis]);
    s.by_extents[axis] = Divider(s.extents[axis]);
  }

  s.initial = static_cast<int>(p.initial_blocks());
  s.final_blocks = static_cast<int>(p.final_blocks());
  s.mixing_blocks = static_cast<int>(p.mixing_blocks);
  // The matrices of a single row are those of its heads, also where it is cut into packed sequences.
  s.row_matrices = p.mixing_per_row && p.batch != 1 ? s.heads : 0;
  s.head_matrices = p.mixing_per_head ? 1 : 0;
  s.matrices = static_cast<int>(p.mixing_matrices());
  s.masking = p.options.masking;
  s.feature = {p.options.feature_map, p.options.feature_eps};
  s.scale = p.options.scale;
  s.eps = p.options.eps;
  return call;
}

}  // namespace mhla::cuda
