// Caller-owned device memory handed out in pieces. Without a base it only measures.
#pragma once

#include <cstddef>
#include <cstdint>

namespace mhla::cuda {

class Workspace {
 public:
  explicit Workspace(void* base = nullptr) : base_(static_cast<std::byte*>(base)) {}

  template <typename T>
  T* take(std::int64_t count) {
    constexpr std::size_t kAlignment = 256;
    const std::size_t at = used_;
    used_ += (static_cast<std::size_t>(count) * sizeof(T) + kAlignment - 1) / kAlignment * kAlignment;
    return base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + at);
  }
  std::size_t used() const { return used_; }

 private:
  std::byte* base_;
  std::size_t used_ = 0;
};

}  // namespace mhla::cuda
