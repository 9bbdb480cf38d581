// Sequences that take their steps together, as rows of one state: they come and go without the others moving.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "models/lm/lm.hpp"

namespace mhla::tasks {

class RunningRows {
 public:
  explicit RunningRows(std::shared_ptr<models::Lm> model) : model_(std::move(model)) {}

  std::int64_t count() const { return count_; }

  // `sequence`: a state of one row, which becomes the last one.
  void add(const models::LmState& sequence);
  void remove(std::int64_t row);  // the last one takes its place

  // One token for every row, int64 [count] -> the logits after it, [count, vocabulary].
  at::Tensor step(const at::Tensor& ids);

 private:
  std::shared_ptr<models::Lm> model_;
  std::optional<models::LmState> state_;  // of count_ rows and some to spare
  std::int64_t count_ = 0;
};

}  // namespace mhla::tasks
