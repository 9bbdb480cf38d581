// Element types of token tensors and their conversion to and from the arithmetic type.
#pragma once

#include <bit>
#include <cstdint>
#include <utility>

#include "mhla/types.hpp"

namespace mhla {

using Half = _Float16;

// bfloat16 as stored; arithmetic happens in float. Rounds to nearest even, NaN stays NaN. Always inlined: kernels for
// different instruction sets include this header, and a shared out-of-line copy would carry the wrong instructions.
struct BFloat16 {
  std::uint16_t bits = 0;

  BFloat16() = default;
  [[gnu::always_inline]] explicit BFloat16(float value) {
    const auto word = std::bit_cast<std::uint32_t>(value);
    const bool is_nan = (word & 0x7fffffffU) > 0x7f800000U;
    bits = static_cast<std::uint16_t>(is_nan ? (word >> 16U) | 0x40U : (word + 0x7fffU + ((word >> 16U) & 1U)) >> 16U);
  }
  [[gnu::always_inline]] explicit BFloat16(double value) : BFloat16(static_cast<float>(value)) {}
  [[gnu::always_inline]] explicit operator float() const {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16U);
  }
  [[gnu::always_inline]] explicit operator double() const { return static_cast<float>(*this); }
};

template <typename T>
struct TypeTag {
  using type = T;
};

// Calls visit(TypeTag<Element>{}) for the C++ type behind a dtype.
template <typename Visit>
decltype(auto) with_element_type(DType dtype, Visit&& visit) {
  switch (dtype) {
    case DType::f32:
      return std::forward<Visit>(visit)(TypeTag<float>{});
    case DType::f64:
      return std::forward<Visit>(visit)(TypeTag<double>{});
    case DType::bf16:
      return std::forward<Visit>(visit)(TypeTag<BFloat16>{});
    case DType::f16:
      return std::forward<Visit>(visit)(TypeTag<Half>{});
  }
  throw Error("dtype is not one of the enumerators of mhla::DType");
}

}  // namespace mhla
