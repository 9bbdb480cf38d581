// What a language model remembers of the tokens of a batch of sequences: the states of its layers.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <span>
#include <vector>

#include "nn/causal/attention.hpp"

namespace mhla::models {

// A value but for its tensors, which copies share: fork() makes an independent one. One thread at a time uses it.
class LmState {
 public:
  LmState(std::vector<nn::LayerState> layers, std::int64_t batch, at::Device device);

  std::int64_t batch() const { return static_cast<std::int64_t>(seen_.size()); }
  const std::vector<std::int64_t>& seen() const { return seen_; }  // tokens each row has seen
  std::int64_t most_seen() const;
  std::size_t bytes() const;  // memory it holds

  LmState fork() const;
  // A state of its own of some rows, in this order; a row may come several times.
  LmState rows(std::span<const std::int64_t> indices) const;
  // One row, or the first ones, in the same memory.
  LmState row(std::int64_t index) const;
  LmState first(std::int64_t count) const;
  // One state of the rows of several, which are of the same model.
  static LmState joined(std::span<const LmState> states);
  // One row becomes a copy of that of a state with one row, of the same model. Makes room where it needs more.
  void put(std::int64_t index, const LmState& one);

  // For the model, and for files.
  std::vector<nn::LayerState>& layers() { return layers_; }
  const std::vector<nn::LayerState>& layers() const { return layers_; }
  const at::Tensor& positions() const { return positions_; }  // seen(), int64 [B] on the device
  bool same_position() const;                                 // of all rows
  void advance(std::int64_t tokens);
  void set_seen(std::vector<std::int64_t> seen);

 private:
  // Every tensor of the batch through `change`.
  template <typename Change>
  LmState changed(std::vector<std::int64_t> seen, const Change& change) const;

  std::vector<nn::LayerState> layers_;
  std::vector<std::int64_t> seen_;
  at::Tensor positions_;
};

}  // namespace mhla::models
