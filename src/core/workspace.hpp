// Hands out aligned pieces of memory that the caller owns. With no memory behind it, it only measures.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace mhla {

[[noreturn]] void refuse_workspace();

// A piece from an element of it on; of no piece, none.
template <typename T>
T* from_element(T* piece, std::int64_t element) {
  return piece == nullptr ? nullptr : piece + element;
}

// A piece has fewer than 2^60 bytes (core/sizes.hpp); the pieces of all threads together may be too many.
template <std::size_t alignment>
class AlignedWorkspace {
 public:
  AlignedWorkspace() = default;  // measures
  explicit AlignedWorkspace(void* base) : base_(static_cast<std::byte*>(base)) {}

  template <typename T>
  T* take(std::int64_t count) {
    const std::size_t at = used_;
    const std::size_t bytes = (static_cast<std::size_t>(count) * sizeof(T) + alignment - 1) / alignment * alignment;
    used_ = std::min(at + bytes, kTooMany);
    return base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + at);
  }

  std::size_t used() const {
    if (used_ == kTooMany) refuse_workspace();
    return used_;
  }

 private:
  static constexpr std::size_t kTooMany = (std::size_t{1} << 62) + 1;

  std::byte* base_ = nullptr;
  std::size_t used_ = 0;
};

}  // namespace mhla
