// What waits for one thread to take it up, at most so many at a time. Without torch, so that ThreadSanitizer can watch.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <iterator>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace mhla::tasks {

enum class Admission : std::uint8_t { taken, full, closed };

template <typename Item>
class WaitingLine {
 public:
  explicit WaitingLine(std::size_t most) : most_(most) {}

  // All of them or none.
  Admission push(std::vector<Item> items) {
    {
      const std::scoped_lock lock(mutex_);
      if (closed_) return Admission::closed;
      if (items.size() > most_ - items_.size()) return Admission::full;
      items_.insert(items_.end(), std::move_iterator(items.begin()), std::move_iterator(items.end()));
    }
    arrived_.notify_one();
    return Admission::taken;
  }

  // First come, first served; nothing where none waits.
  std::optional<Item> pop() {
    const std::scoped_lock lock(mutex_);
    if (items_.empty()) return std::nullopt;
    std::optional<Item> item(std::move(items_.front()));
    items_.pop_front();
    return item;
  }

  // Until something waits; false: nothing does, and nothing comes any more.
  bool wait() {
    std::unique_lock lock(mutex_);
    arrived_.wait(lock, [&] { return closed_ || !items_.empty(); });
    return !items_.empty();
  }

  void close() {
    {
      const std::scoped_lock lock(mutex_);
      closed_ = true;
    }
    arrived_.notify_all();
  }

  std::size_t size() const {
    const std::scoped_lock lock(mutex_);
    return items_.size();
  }

 private:
  const std::size_t most_;
  mutable std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<Item> items_;
  bool closed_ = false;
};

}  // namespace mhla::tasks
