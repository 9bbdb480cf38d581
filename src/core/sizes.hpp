// Sizes from outside, multiplied and added without overflow.
//
// A call keeps to the limits below where it enters: validate(), the constructors of states, backward_workspace().
// Behind that, code multiplies sizes as it likes: with the padding of rows, the bytes of an element and a few dozen
// partial sums, 2^48 elements still fit 63 bits. Only a workspace, which has parts for every thread, is added up with
// care (core/workspace.hpp).
#pragma once

#include <cstdint>
#include <initializer_list>

namespace mhla {

constexpr std::int64_t kMostTokens = std::int64_t{1} << 48;       // of a sequence, those before the call included
constexpr std::int64_t kMostBlockTokens = std::int64_t{1} << 32;  // of a block
constexpr std::int64_t kMostBlocks = std::int64_t{1} << 24;       // of a mixing matrix
constexpr std::int64_t kMostKeptBlocks = std::int64_t{1} << 30;   // of a stream, with a summary each
constexpr std::int64_t kMostBatch = std::int64_t{1} << 32;
constexpr std::int64_t kMostHeads = std::int64_t{1} << 20;
constexpr std::int64_t kMostDim = 4096;  // of a head of q and k, or of v
constexpr std::int64_t kMostDimOnCuda = 256;
constexpr std::int64_t kMostElements = std::int64_t{1} << 48;  // of a tensor
constexpr int kMostThreads = 4096;

// value / divisor, rounded up; value >= 0, divisor >= 1.
constexpr std::int64_t divide_up(std::int64_t value, std::int64_t divisor) {
  return value / divisor + (value % divisor != 0 ? 1 : 0);
}

[[noreturn]] void refuse_size(const char* argument, std::int64_t value, std::int64_t low, std::int64_t high);
[[noreturn]] void refuse_elements(const char* factors, std::initializer_list<std::int64_t> sizes, std::int64_t most);

// Throws unless low <= value <= high.
inline void require_size(const char* argument, std::int64_t value, std::int64_t low, std::int64_t high) {
  if (value < low || value > high) refuse_size(argument, value, low, high);
}

// The product of sizes that are not negative: the elements of a tensor. `factors` names them, "batch x tokens x dim".
inline std::int64_t checked_elements(const char* factors, std::initializer_list<std::int64_t> sizes,
                                     std::int64_t most = kMostElements) {
  std::int64_t product = 1;
  bool overflow = false, empty = false;
  for (const std::int64_t size : sizes) {
    overflow |= __builtin_mul_overflow(product, size, &product);
    empty |= size == 0;
  }
  if (empty) return 0;
  if (overflow || product > most) refuse_elements(factors, sizes, most);
  return product;
}

}  // namespace mhla
