// Room for twice as many rows is made when there is none left: a sequence that comes is copied once, and so is the last
// one into the place of one that goes.
#include "tasks/language/running_rows.hpp"

#include <numeric>
#include <vector>

namespace mhla::tasks {

void RunningRows::add(const models::LmState& sequence) {
  if (!state_) {
    state_ = sequence.fork();
  } else {
    if (count_ == state_->batch()) {
      std::vector<std::int64_t> rows(static_cast<std::size_t>(2 * count_), 0);  // what the spare ones hold is no matter
      std::iota(rows.begin(), rows.begin() + count_, std::int64_t{0});
      state_ = state_->rows(rows);
    }
    state_->put(count_, sequence);
  }
  ++count_;
}

void RunningRows::remove(std::int64_t row) {
  --count_;
  if (count_ == 0)
    state_.reset();
  else if (row != count_)
    state_->put(row, state_->row(count_));
}

at::Tensor RunningRows::step(const at::Tensor& ids) {
  models::LmState running = state_->first(count_);
  model_->reserve(*state_, running.most_seen() + 1);  // rows of a larger state cannot grow on their own
  running = state_->first(count_);
  at::Tensor logits = model_->step(running, ids);
  std::vector<std::int64_t> seen = running.seen();
  seen.resize(static_cast<std::size_t>(state_->batch()));
  state_->set_seen(std::move(seen));
  return logits;
}

}  // namespace mhla::tasks
