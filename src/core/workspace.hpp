// Hands out aligned pieces of memory that the caller owns. With no memory behind it, it only measures.
#pragma once

#include <cstddef>
#include <cstdint>

namespace mhla {

[[noreturn]] void refuse_workspace();

template <std::size_t alignment>
class AlignedWorkspace {
 public:
  AlignedWorkspace() = default;  // measures
  explicit AlignedWorkspace(void* base) : base_(static_cast<std::byte*>(base)) {}

  template <typename T>
  T* take(std::int64_t count) {
    constexpr std::size_t kMostBytes = std::size_t{1} << 62;
    const std::size_t at = used_;
    if (static_cast<std::size_t>(count) > (kMostBytes - at) / sizeof(T)) refuse_workspace();
    used_ += (static_cast<std::size_t>(count) * sizeof(T) + alignment - 1) / alignment * alignment;
    return base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + at);
  }

  std::size_t used() const { return used_; }

 private:
  std::byte* base_ = nullptr;
  std::size_t used_ = 0;
};

}  // namespace mhla
