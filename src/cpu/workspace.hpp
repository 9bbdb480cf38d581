// Hands out aligned pieces of the caller's workspace. With no memory behind it, it only measures.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/kernels.hpp"

namespace mhla::cpu {

class Workspace {
 public:
  Workspace() = default;  // measures
  explicit Workspace(void* base) : base_(static_cast<std::byte*>(base)) {}

  template <typename T>
  T* take(std::int64_t count) {
    const std::size_t at = used_;
    used_ += (static_cast<std::size_t>(count) * sizeof(T) + kLineBytes - 1) / kLineBytes * kLineBytes;
    return base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + at);
  }

  std::size_t used() const { return used_; }

 private:
  std::byte* base_ = nullptr;
  std::size_t used_ = 0;
};

}  // namespace mhla::cpu
