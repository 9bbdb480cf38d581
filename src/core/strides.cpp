// Checks of strides.hpp.
#include "core/strides.hpp"

#include <array>
#include <string>
#include <utility>

namespace mhla {
namespace {

struct TokenAxis {
  const char* name;
  std::int64_t count, stride;
  std::uint64_t step;  // from one to the next, whatever the direction; 0 where there is only one

  TokenAxis(const char* axis, std::int64_t n, std::int64_t given)
      : name(axis), count(n), stride(given), step(n <= 1      ? 0
                                                  : given < 0 ? -static_cast<std::uint64_t>(given)
                                                              : static_cast<std::uint64_t>(given)) {}

  // Elements from the first to the last.
  std::uint64_t reach() const { return static_cast<std::uint64_t>(count - 1) * step; }
  bool reaches_too_far() const {
    constexpr std::uint64_t kMost = std::uint64_t{1} << 59;  // so that bytes fit 63 bits
    std::uint64_t reach = 0;
    return __builtin_mul_overflow(static_cast<std::uint64_t>(count - 1), step, &reach) || reach > kMost;
  }
};

using TokenAxes = std::array<TokenAxis, 3>;

[[noreturn]] void refuse(const char* name, const TokenAxis& axis, const std::string& why) {
  throw Error(std::string(name) + " has a " + axis.name + " stride of " + std::to_string(axis.stride) + "; " + why);
}

template <typename Pointer>
TokenAxes checked_axes(const char* name, const BasicTensor<Pointer>& x, const TokenSizes& sizes) {
  const TokenAxes axes{TokenAxis("head", sizes.heads, x.head_stride), TokenAxis("token", sizes.tokens, x.token_stride),
                       TokenAxis("batch", sizes.batch, x.batch_stride)};
  for (const TokenAxis& axis : axes)
    if (axis.reaches_too_far())
      refuse(name, axis, std::to_string(axis.count) + " of them reach further than 2^59 elements");
  return axes;
}

}  // namespace

void require_any_strides(const char* name, const ConstTensor& x, const TokenSizes& sizes) {
  if (!sizes.empty()) checked_axes(name, x, sizes);
}

void require_any_apart(const char* name, const Tensor& x, const TokenSizes& sizes) {
  if (sizes.empty()) return;
  TokenAxes axes = checked_axes(name, x, sizes);
  for (const auto& [a, b] : {std::pair{0, 1}, {1, 2}, {0, 1}})
    if (axes[b].step < axes[a].step) std::swap(axes[a], axes[b]);
  auto covered = static_cast<std::uint64_t>(sizes.dim);
  for (const TokenAxis& axis : axes) {
    if (axis.count > 1 && axis.step < covered)
      refuse(name, axis, "rows of an output must not overlap, so it must be at least " + std::to_string(covered));
    covered += axis.reach();
  }
}

}  // namespace mhla
