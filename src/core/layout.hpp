// Which tokens of a call belong to which block: the partition together with packed sequences and an initial state.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "core/sizes.hpp"
#include "mhla/attention.hpp"

namespace mhla {

// One independent sequence: a batch row, or a piece of it when packed. Its blocks are numbered from `first_block`, the
// number of complete blocks in the initial state.
struct Sequence {
  std::int64_t index = 0;        // row of the state tensors
  std::int64_t batch = 0;        // row of the token tensors
  std::int64_t first_token = 0;  // in that row
  std::int64_t tokens = 0;
  std::int64_t blocks = 0;  // blocks that receive tokens in this call
};

// The partition with blocks no larger than the tokens there are. An initial state counts in full blocks: then as it is.
inline Partition fitted_partition(const Problem& problem) {
  const Partition& given = problem.partition;
  if (problem.initial_tokens > 0 || given.block_capacity() <= given.tokens()) return given;
  std::array<std::int64_t, Partition::kMaxAxes> extents{};
  const auto axes = static_cast<std::size_t>(given.axes());
  for (std::size_t axis = 0; axis < axes; ++axis)
    extents[axis] = std::clamp<std::int64_t>(given.sizes()[axis], 1, given.extents()[axis]);
  return Partition::by_extent(given.sizes(), std::span(extents).first(axes));
}

// Of a problem that validate() accepted, which must outlive it.
class Layout {
 public:
  explicit Layout(const Problem& problem)
      : partition_(fitted_partition(problem)), cu_seqlens_(problem.cu_seqlens), count_(problem.sequences()),
        first_block_(problem.initial_tokens / partition_.block_capacity()),
        filled_(problem.initial_tokens % partition_.block_capacity()) {
    for (std::int64_t s = 0; s < different_sequences(); ++s) most_blocks_ = std::max(most_blocks_, sequence(s).blocks);
  }

  std::int64_t sequences() const { return count_; }
  Sequence sequence(std::int64_t index) const {
    Sequence s{.index = index, .batch = index, .tokens = partition_.tokens()};
    if (!cu_seqlens_.empty()) {
      const auto at = static_cast<std::size_t>(index);
      s.batch = 0;
      s.first_token = cu_seqlens_[at];
      s.tokens = cu_seqlens_[at + 1] - cu_seqlens_[at];
    }
    s.blocks = partition_.is_line() ? line_blocks(s.tokens) : partition_.blocks();
    return s;
  }
  // Batch rows are all like the first; packed sequences differ.
  std::int64_t different_sequences() const { return cu_seqlens_.empty() ? std::min<std::int64_t>(count_, 1) : count_; }
  std::int64_t first_block() const { return first_block_; }
  std::int64_t filled() const { return filled_; }            // tokens of block first_block() in the initial state
  std::int64_t most_blocks() const { return most_blocks_; }  // of any sequence
  std::int64_t capacity() const { return partition_.block_capacity(); }

  // Tokens of block `local` (counted within this call) of a sequence.
  std::int64_t block_tokens(const Sequence& sequence, std::int64_t local) const {
    if (!partition_.is_line()) return partition_.block_tokens(local);
    return line_end(sequence, local) - line_begin(local);
  }

  // The runs of consecutive tokens of a block, in ascending order; tokens count from the start of the batch row.
  class Runs {
   public:
    Runs(const Layout& layout, const Sequence& sequence, std::int64_t local) {
      if (layout.partition_.is_line()) {
        const std::int64_t begin = layout.line_begin(local);
        only_ = {sequence.first_token + begin, local == 0 ? layout.filled_ : 0,
                 layout.line_end(sequence, local) - begin};
      } else {
        grid_ = layout.partition_.runs(local);
        is_grid_ = true;
      }
    }
    std::int64_t size() const { return is_grid_ ? grid_.size() : 1; }
    Partition::Run operator[](std::int64_t index) const { return is_grid_ ? grid_[index] : only_; }

   private:
    Partition::Run only_{};
    Partition::BlockRuns grid_;
    bool is_grid_ = false;
  };
  Runs runs(const Sequence& sequence, std::int64_t local) const { return {*this, sequence, local}; }

 private:
  std::int64_t line_blocks(std::int64_t tokens) const {
    return tokens == 0 ? 0 : divide_up(tokens + filled_, capacity());
  }
  std::int64_t line_begin(std::int64_t local) const { return std::max<std::int64_t>(0, local * capacity() - filled_); }
  std::int64_t line_end(const Sequence& sequence, std::int64_t local) const {
    return std::min(sequence.tokens, (local + 1) * capacity() - filled_);
  }

  Partition partition_;
  std::span<const std::int64_t> cu_seqlens_;
  std::int64_t count_;
  std::int64_t first_block_;
  std::int64_t filled_;
  std::int64_t most_blocks_ = 0;
};

}  // namespace mhla
