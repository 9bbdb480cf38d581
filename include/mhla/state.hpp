// Streaming: a causal call cut into pieces of any length, down to one token at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "mhla/attention.hpp"
#include "mhla/mixing.hpp"

namespace mhla {

struct StateConfig {
  DType dtype = DType::f32;  // of q, k, v, o; the state itself is in the accumulation type
  std::int64_t batch = 1;
  std::int64_t heads = 1;
  std::int64_t kv_heads = 1;
  std::int64_t key_dim = 0;
  std::int64_t value_dim = 0;
  std::int64_t block_size = 64;
  std::int64_t mixing_blocks = 0;
  bool mixing_per_head = false;
  Options options;  // masking is token_causal; normalizer none or paper
  BeyondTrained beyond = BeyondTrained::error;
};

// What a causal MHLA layer remembers: the summaries of finished blocks that may still be mixed, the running summary of
// the open block, and P_i = sum_{b < i} m[i, b] S_b, mixed once when block i opens. A token costs O(Dk Dv) per head.
//
// One thread at a time uses a state. A call on a state that another call is using throws an Error and changes nothing;
// config() may always be called. Forks are states of their own.
class State {
 public:
  // `mixing` is in the accumulation type and copied.
  State(const StateConfig& config, const void* mixing);
  ~State();
  State(State&&) noexcept;
  State& operator=(State&&) noexcept;
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  // Consumes `tokens` tokens ([batch, tokens, heads, dim] tensors) and writes their outputs.
  void prefill(std::int64_t tokens, ConstTensor q, ConstTensor k, ConstTensor v, Tensor o,
               const Parallel* parallel = nullptr);

  // One token; token strides are not used.
  void step(ConstTensor q, ConstTensor k, ConstTensor v, Tensor o, const Parallel* parallel = nullptr);

  State fork() const;  // an independent copy
  std::vector<std::byte> serialize() const;

  // The inverse of serialize; validates. Also takes the bytes of a state saved on CUDA from Python.
  static State restore(std::span<const std::byte> bytes);

  const StateConfig& config() const;
  std::int64_t tokens() const;
  std::size_t bytes() const;  // memory held by summaries

 private:
  class Memory;
  explicit State(std::unique_ptr<Memory> memory);
  Memory& memory() const;
  std::unique_ptr<Memory> memory_;
};

}  // namespace mhla
