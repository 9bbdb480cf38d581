// Which tokens of a call belong to which block: the partition together with packed sequences and an initial state.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

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

class Layout {
 public:
  explicit Layout(const Problem& problem)
      : partition_(problem.partition), first_block_(problem.initial_tokens / partition_.block_capacity()),
        filled_(problem.initial_tokens % partition_.block_capacity()) {
    const auto count = problem.sequences();
    sequences_.reserve(static_cast<std::size_t>(count));
    for (std::int64_t s = 0; s < count; ++s) {
      Sequence sequence{.index = s, .batch = s, .tokens = partition_.tokens()};
      if (!problem.cu_seqlens.empty()) {
        const auto at = static_cast<std::size_t>(s);
        sequence.batch = 0;
        sequence.first_token = problem.cu_seqlens[at];
        sequence.tokens = problem.cu_seqlens[at + 1] - problem.cu_seqlens[at];
      }
      sequence.blocks = partition_.is_line() ? line_blocks(sequence.tokens) : partition_.blocks();
      most_blocks_ = std::max(most_blocks_, sequence.blocks);
      sequences_.push_back(sequence);
    }
  }

  const std::vector<Sequence>& sequences() const { return sequences_; }
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
    return tokens == 0 ? 0 : (tokens + filled_ + capacity() - 1) / capacity();
  }
  std::int64_t line_begin(std::int64_t local) const { return std::max<std::int64_t>(0, local * capacity() - filled_); }
  std::int64_t line_end(const Sequence& sequence, std::int64_t local) const {
    return std::min(sequence.tokens, (local + 1) * capacity() - filled_);
  }

  Partition partition_;
  std::int64_t first_block_;
  std::int64_t filled_;
  std::int64_t most_blocks_ = 0;
  std::vector<Sequence> sequences_;
};

}  // namespace mhla
