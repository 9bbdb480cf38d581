// What is behind mhla::State: the memory of a causal layer in one arithmetic type.
//
// Finished summaries never change, so copies of a stream share them. The blocks before the open one are, oldest first,
// `folded` blocks known only by their sum, then the `recent` ones; which are folded, KeptBlocks says.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "core/beyond_trained.hpp"
#include "core/saved_state.hpp"
#include "mhla/state.hpp"

namespace mhla::cpu {

// Tensors of one token or of a piece of prefill.
struct StreamTensors {
  ConstTensor q, k, v;
  Tensor o;
};

class Stream {
 public:
  virtual ~Stream() = default;
  virtual void prefill(std::int64_t tokens, const StreamTensors& x, const Parallel& parallel) = 0;
  virtual void step(const StreamTensors& x, const Parallel& parallel) = 0;
  virtual std::unique_ptr<Stream> clone() const = 0;
  virtual std::vector<std::byte> serialize() const = 0;
  virtual std::int64_t tokens() const = 0;
  virtual std::size_t bytes() const = 0;
  virtual const StateConfig& config() const = 0;
};

// Both validate. `restore_stream` takes what Stream::serialize or a decoding state made (core/saved_state.hpp).
std::unique_ptr<Stream> make_stream(const StateConfig& config, const void* mixing);
std::unique_ptr<Stream> restore_stream(std::span<const std::byte> bytes);

// S [batch, kv_heads, Dk, Dv] and z [batch, kv_heads, Dk] of one block; z is empty without a normaliser.
template <typename T>
struct BlockSummary {
  std::vector<T> S, z;
};

template <typename T>
class StreamOf final : public Stream {
 public:
  StreamOf(const StateConfig& config, const T* mixing);

  void prefill(std::int64_t tokens, const StreamTensors& x, const Parallel& parallel) override;
  void step(const StreamTensors& x, const Parallel& parallel) override;
  std::unique_ptr<Stream> clone() const override { return std::make_unique<StreamOf>(*this); }
  std::vector<std::byte> serialize() const override;
  void read(const SavedState& saved, ByteReader& in);  // into a stream that has seen nothing
  std::int64_t tokens() const override { return open_block() * config_.block_size + filled_; }
  std::size_t bytes() const override;
  const StateConfig& config() const override { return config_; }

 private:
  struct Piece;  // one forward() call of a prefill

  std::int64_t open_block() const { return folded_ + static_cast<std::int64_t>(recent_.size()); }
  std::int64_t trained() const { return config_.mixing_blocks; }
  std::int64_t mixing_heads() const { return config_.mixing_per_head ? config_.heads : 1; }
  std::int64_t mixed_heads() const { return config_.mixing_per_head ? config_.heads : config_.kv_heads; }
  std::int64_t groups() const { return config_.batch * config_.kv_heads; }
  std::int64_t summary_size() const { return config_.key_dim * config_.value_dim; }
  bool normalized() const { return config_.options.normalizer != Normalizer::none; }
  BlockSummary<T> empty_summary(std::int64_t heads) const;

  MixingRow<T> weights_of(std::int64_t mixing_head, std::int64_t block) const;
  void check_room(std::int64_t tokens) const;
  void close_block();
  void fold(std::int64_t count);
  BlockSummary<double> left_sum() const;  // of the blocks that KeptBlocks::leaving names
  void read_open_rows(const SavedState& saved, ByteReader& in);
  void mix(const Parallel& parallel);

  void prefill_trained(std::int64_t tokens, const StreamTensors& x, const Parallel& parallel);
  void prefill_beyond(std::int64_t tokens, const StreamTensors& x, const Parallel& parallel);
  void run(const Piece& piece, const StreamTensors& x, const Parallel& parallel);
  void gather(BlockSummary<T>& history) const;
  void absorb(const Piece& piece, const BlockSummary<T>& final_state);

  template <typename Element>
  void step_group(std::int64_t group, const StreamTensors& x);

  StateConfig config_;
  KeptBlocks kept_;
  std::shared_ptr<const std::vector<T>> mixing_;

  std::int64_t folded_ = 0;
  BlockSummary<double> folded_sum_;  // double: it may gather any number of blocks
  std::deque<std::shared_ptr<const BlockSummary<T>>> recent_;
  BlockSummary<T> open_;
  std::int64_t filled_ = 0;  // tokens in the open block

  BlockSummary<T> P_;              // [batch, mixed_heads, Dk, Dv] and [batch, mixed_heads, Dk]
  std::vector<T> diagonal_;        // m[i, i] of each mixing head
  std::int64_t mixed_block_ = -1;  // the block P_ and diagonal_ are for
  std::vector<T> scratch_;         // of step: per group phi(q), phi(k), v and o in the arithmetic type
};

}  // namespace mhla::cpu
