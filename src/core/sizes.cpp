// The messages of sizes.hpp.
#include "core/sizes.hpp"

#include <bit>
#include <string>

#include "core/workspace.hpp"
#include "mhla/types.hpp"

namespace mhla {
namespace {

// 2^48 rather than its fifteen digits.
std::string limit(std::int64_t value) {
  const auto bits = static_cast<std::uint64_t>(value);
  const bool is_long_power = value >= (1 << 16) && std::has_single_bit(bits);
  return is_long_power ? "2^" + std::to_string(std::countr_zero(bits)) : std::to_string(value);
}

}  // namespace

void refuse_size(const char* argument, std::int64_t value, std::int64_t low, std::int64_t high) {
  throw Error(std::string(argument) + " is " + std::to_string(value) + "; it must be at " +
              (value < low ? "least " + limit(low) : "most " + limit(high)));
}

void refuse_elements(const char* factors, std::initializer_list<std::int64_t> sizes, std::int64_t most) {
  std::string text;
  for (const std::int64_t size : sizes) text += (text.empty() ? "" : " x ") + std::to_string(size);
  throw Error(std::string(factors) + " is " + text + "; it must be at most " + limit(most));
}

void refuse_workspace() {
  throw Error("the workspace of this call is more than 2^62 bytes; it needs fewer threads, blocks or heads");
}

}  // namespace mhla
