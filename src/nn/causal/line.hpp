// The tokens of a call of a causal model, in their order: where each stands, and which ones see each other.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "mhla/fused_torch.hpp"

namespace mhla::nn {

class Line {
 public:
  // Rows of whole sequences, from position 0 on.
  Line(std::int64_t tokens, at::Device device);

  // One row of documents that do not see each other, each from position 0 on: document d is [offsets[d], offsets[d +
  // 1]) of its tokens.
  Line(std::vector<std::int64_t> offsets, at::Device device);

  // Rows that go on from a state. `seen`: tokens before these, int64 [B] on the model's device; `most`: the
  // largest of them; `same`: whether all are that.
  Line(std::int64_t tokens, const at::Tensor& seen, std::int64_t most, bool same);

  const at::Tensor& positions() const { return positions_; }                 // int64, [1 or B, T]
  const std::vector<std::int64_t>& documents() const { return documents_; }  // offsets; empty: rows are sequences
  const at::Tensor& cu_seqlens() const { return cu_seqlens_; }  // the same, on the CPU; undefined: likewise
  std::optional<std::int64_t> seen() const { return seen_; }    // before the first token; none: rows differ
  std::int64_t end() const { return end_; }                     // one more than the largest position

  // Rotations of the first `dim` elements of a head, in float32 or float64. Made once for all layers.
  const fused::RotaryTables& rotary(std::int64_t dim, double base, at::ScalarType type) const;

 private:
  using Key = std::pair<std::pair<std::int64_t, double>, at::ScalarType>;

  at::Tensor positions_, cu_seqlens_;
  std::vector<std::int64_t> documents_;
  std::optional<std::int64_t> seen_ = 0;
  std::int64_t end_ = 0;
  std::shared_ptr<std::map<Key, fused::RotaryTables>> tables_ = std::make_shared<std::map<Key, fused::RotaryTables>>();
};

// Offsets of documents in rows of `tokens` tokens, one row after the other: from 0 to batch x tokens, ascending, and a
// document ends where a row does. Throws an Error that names `documents` otherwise.
void check_documents(const std::vector<std::int64_t>& documents, std::int64_t batch, std::int64_t tokens);

}  // namespace mhla::nn
