// One execution of the operator as the CPU algorithms see it: sizes, layout, kernels, and tiles of tokens.
#pragma once

#include <array>
#include <cstdint>
#include <numeric>

#include "core/layout.hpp"
#include "cpu/element.hpp"
#include "cpu/kernels.hpp"
#include "cpu/team.hpp"
#include "cpu/workspace.hpp"
#include "mhla/attention.hpp"

namespace mhla::cpu {

// Up to kTileTokens tokens of one block as runs of consecutive tokens.
struct Chunk {
  std::array<Partition::Run, kTileTokens> runs;
  std::int64_t run_count = 0;
  std::int64_t tokens = 0;
};

// Cuts the blocks of a sequence into chunks, one after the other.
class ChunkCursor {
 public:
  ChunkCursor(const Layout& layout, const Sequence& sequence, std::int64_t local)
      : layout_(layout), sequence_(sequence), block_(local), runs_(layout.runs(sequence, local)) {}

  std::int64_t block() const { return block_; }

  // The next chunk of this block, or the first of the next block; no tokens at the end of the sequence.
  void next(Chunk& chunk) {
    chunk.run_count = chunk.tokens = 0;
    if (run_ == runs_.size()) {
      if (++block_ >= sequence_.blocks) return;
      runs_ = layout_.runs(sequence_, block_);
      run_ = taken_ = 0;
    }
    while (run_ < runs_.size() && chunk.tokens < kTileTokens) {
      const Partition::Run run = runs_[run_];
      const std::int64_t count = std::min(run.count - taken_, kTileTokens - chunk.tokens);
      chunk.runs[static_cast<std::size_t>(chunk.run_count++)] = {run.token + taken_, run.slot + taken_, count};
      chunk.tokens += count;
      taken_ += count;
      if (taken_ == run.count) ++run_, taken_ = 0;
    }
  }

 private:
  const Layout& layout_;
  const Sequence& sequence_;
  std::int64_t block_;
  Layout::Runs runs_;
  std::int64_t run_ = 0;
  std::int64_t taken_ = 0;
};

// Rows of up to kTileTokens tokens in the arithmetic type; columns in panels (kernels.hpp).
template <typename T>
struct Tile {
  T* data = nullptr;
  std::int64_t dim = 0;

  Tile() = default;
  Tile(Workspace& workspace, std::int64_t width)
      : data(workspace.take<T>(panel_count(width) * kTileTokens * kTileStride<T>)), dim(width) {}

  static std::int64_t panel_count(std::int64_t width) { return (width + kPanel<T> - 1) / kPanel<T>; }
  std::int64_t panels() const { return panel_count(dim); }
  std::int64_t width(std::int64_t p) const { return std::min(kPanel<T>, dim - p * kPanel<T>); }
  std::int64_t padded_width(std::int64_t p) const { return padded<T>(width(p)); }
  T* panel(std::int64_t p) const { return data + p * kTileTokens * kTileStride<T>; }
};

template <typename T>
class CpuCall {
 public:
  explicit CpuCall(const Problem& problem)
      : p(problem), layout(problem), kernel(kernels<T>()),
        query_features{p.options.feature_map, p.options.scale, p.options.feature_eps},
        key_features{p.options.feature_map, 1.0, p.options.feature_eps}, group(p.heads / p.kv_heads),
        token_causal(p.options.masking == Masking::token_causal), final_blocks(p.final_blocks()) {}

  const Problem& p;
  const Layout layout;
  const Kernels<T>& kernel;
  const Features query_features;
  const Features key_features;
  const Features no_features{FeatureMap::identity, 1.0, 0.0};
  const std::int64_t group;  // query heads of a kv head
  const bool token_causal;
  const std::int64_t final_blocks;  // of the final state

  bool has_paper_denominator() const { return p.options.normalizer == Normalizer::paper; }
  bool has_authors_denominator() const { return p.options.normalizer == Normalizer::authors; }
  bool has_denominator() const { return p.options.normalizer != Normalizer::none; }

  // Independent pieces of work: (sequence, kv head); none where there are no tokens, now or before.
  std::int64_t units() const {
    return p.partition.tokens() == 0 && p.initial_tokens == 0 ? 0 : p.sequences() * p.kv_heads;
  }
  Sequence sequence(std::int64_t unit) const { return layout.sequence(unit / p.kv_heads); }
  std::int64_t kv_head(std::int64_t unit) const { return unit % p.kv_heads; }

  // Largest number of blocks a unit mixes, initial ones included.
  std::int64_t most_blocks() const { return layout.first_block() + std::max<std::int64_t>(layout.most_blocks(), 1); }

  const T* mixing(const Inputs& in, const Sequence& s, std::int64_t head) const {
    return static_cast<const T*>(in.mixing) + p.matrix_of(s.batch, head) * p.mixing_blocks * p.mixing_blocks;
  }

  // Sources mixed for query block i: [0, limit). Token-causal calls treat the block itself apart.
  std::int64_t mixing_limit(std::int64_t i, std::int64_t blocks) const {
    switch (p.options.masking) {
      case Masking::none:
        return blocks;
      case Masking::block_causal:
        return i + 1;
      case Masking::token_causal:
        return i;
    }
    return blocks;
  }

  // visit(chunk, next) over the tokens of block `local`; `next` is the chunk a worker is likely to want after it.
  template <typename Visit>
  void for_each_chunk(const Sequence& s, std::int64_t local, Visit&& visit) const {
    ChunkCursor cursor(layout, s, local);
    std::array<Chunk, 2> chunks;
    cursor.next(chunks[0]);
    for (std::size_t now = 0; cursor.block() == local; now = 1 - now) {
      cursor.next(chunks[1 - now]);
      visit(static_cast<const Chunk&>(chunks[now]), static_cast<const Chunk&>(chunks[1 - now]));
    }
  }

  // The same in descending order, for partitions along a line.
  template <typename Visit>
  void for_each_chunk_reversed(const Sequence& s, std::int64_t local, Visit&& visit) const {
    const Partition::Run run = layout.runs(s, local)[0];
    for (std::int64_t c = (run.count + kTileTokens - 1) / kTileTokens - 1; c >= 0; --c) {
      Chunk chunk;
      chunk.tokens = std::min(kTileTokens, run.count - c * kTileTokens);
      chunk.run_count = 1;
      chunk.runs[0] = {run.token + c * kTileTokens, run.slot + c * kTileTokens, chunk.tokens};
      visit(static_cast<const Chunk&>(chunk));
    }
  }

  // Asks for the chunk's rows of a tensor while the next products run.
  template <typename Pointer>
  void prefetch(const BasicTensor<Pointer>& x, const Sequence& s, std::int64_t head, const Chunk& chunk,
                std::int64_t dim, Prefetch& list) const {
    const auto size = static_cast<std::int64_t>(element_size(p.dtype));
    for (std::int64_t r = 0; r < chunk.run_count; ++r) {
      const auto& run = chunk.runs[static_cast<std::size_t>(r)];
      list.add(address(x, s, head, run.token, 0), x.token_stride * size, run.count, dim * size);
    }
  }

  // Whether rows of this width can be used where they lie: arithmetic type, whole vectors, and not so many bytes apart
  // that a chunk's rows fall into a few sets of the first-level cache.
  bool usable_in_place(const ConstTensor& x, std::int64_t dim) const {
    constexpr std::int64_t kSets = 64, kFewestSets = 8;
    return element_size(p.dtype) == sizeof(T) && dim % kLine<T> == 0 &&
           kSets / std::gcd(x.token_stride / kLine<T>, kSets) >= kFewestSets;
  }
  void rows_in_place(const ConstTensor& x, const Sequence& s, std::int64_t head, const Chunk& chunk,
                     const T** rows) const {
    for (std::int64_t r = 0; r < chunk.run_count; ++r) {
      const auto& run = chunk.runs[static_cast<std::size_t>(r)];
      const auto* row = reinterpret_cast<const T*>(address(x, s, head, run.token, 0));
      for (std::int64_t n = 0; n < run.count; ++n, row += x.token_stride) *rows++ = row;
    }
  }

  void load(const ConstTensor& x, const Features& features, const Sequence& s, std::int64_t head, const Chunk& chunk,
            const Tile<T>& tile) const {
    for_each_piece(x, s, head, chunk, tile, [&](const Rows& rows, const std::byte* at, T* to, std::int64_t) {
      kernel.load(rows, features, at, to);
    });
  }

  void store(const Tensor& x, const Sequence& s, std::int64_t head, const Chunk& chunk, const Tile<T>& tile,
             const T* factor) const {
    for_each_piece(x, s, head, chunk, tile, [&](const Rows& rows, std::byte* at, const T* from, std::int64_t row) {
      kernel.store(rows, from, factor == nullptr ? nullptr : factor + row, at);
    });
  }

  // Stores a gradient with respect to features(x) as one with respect to x.
  void store_gradient(const Tensor& d_x, const ConstTensor& x, const Features& features, const Sequence& s,
                      std::int64_t head, const Chunk& chunk, const Tile<T>& tile) const {
    if (features.map == FeatureMap::identity && features.scale == 1.0) return store(d_x, s, head, chunk, tile, nullptr);
    for (std::int64_t panel = 0; panel < tile.panels(); ++panel) {
      std::int64_t row = 0;
      for (std::int64_t r = 0; r < chunk.run_count; ++r) {
        const auto& run = chunk.runs[static_cast<std::size_t>(r)];
        const Rows rows{p.dtype, run.count, d_x.token_stride, tile.width(panel)};
        kernel.store_gradient(rows, features, tile.panel(panel) + row * kTileStride<T>,
                              address(x, s, head, run.token, panel), x.token_stride,
                              address(d_x, s, head, run.token, panel));
        row += run.count;
      }
    }
  }

 private:
  template <typename Pointer>
  auto address(const BasicTensor<Pointer>& x, const Sequence& s, std::int64_t head, std::int64_t token,
               std::int64_t panel) const {
    using Byte = std::conditional_t<std::is_const_v<std::remove_pointer_t<Pointer>>, const std::byte, std::byte>;
    const std::int64_t at =
        s.batch * x.batch_stride + token * x.token_stride + head * x.head_stride + panel * kPanel<T>;
    return static_cast<Byte*>(x.data) + at * static_cast<std::int64_t>(element_size(p.dtype));
  }

  template <typename Pointer, typename Visit>
  void for_each_piece(const BasicTensor<Pointer>& x, const Sequence& s, std::int64_t head, const Chunk& chunk,
                      const Tile<T>& tile, Visit&& visit) const {
    for (std::int64_t panel = 0; panel < tile.panels(); ++panel) {
      std::int64_t row = 0;
      for (std::int64_t r = 0; r < chunk.run_count; ++r) {
        const auto& run = chunk.runs[static_cast<std::size_t>(r)];
        visit(Rows{p.dtype, run.count, x.token_stride, tile.width(panel)}, address(x, s, head, run.token, panel),
              tile.panel(panel) + row * kTileStride<T>, row);
        row += run.count;
      }
    }
  }
};

}  // namespace mhla::cpu
