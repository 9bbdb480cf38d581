// Tensors of a fuzzed call: memory of exactly the size it needs, read and written as doubles.
#pragma once

#include <bit>
#include <cmath>
#include <cstring>

#include "mhla/attention.hpp"
#include "support/target.hpp"

namespace mhla::fuzz {

class Numbers {
 public:
  Numbers() = default;
  Numbers(DType dtype, std::int64_t count)
      : dtype_(dtype), bytes_(static_cast<std::size_t>(count) * element_size(dtype), std::byte{0xff}) {}

  std::int64_t size() const { return static_cast<std::int64_t>(bytes_.size() / element_size(dtype_)); }
  void* data() { return bytes_.empty() ? nullptr : bytes_.data(); }
  const void* data() const { return bytes_.empty() ? nullptr : bytes_.data(); }

  double operator[](std::int64_t i) const {
    switch (dtype_) {
      case DType::f64:
        return read<double>(i);
      case DType::f32:
        return read<float>(i);
      case DType::f16:
        return static_cast<double>(read<_Float16>(i));
      case DType::bf16:
        break;
    }
    return std::bit_cast<float>(static_cast<std::uint32_t>(read<std::uint16_t>(i)) << 16U);
  }
  void set(std::int64_t i, double value) {
    switch (dtype_) {
      case DType::f64:
        return write(i, value);
      case DType::f32:
        return write(i, static_cast<float>(value));
      case DType::f16:
        return write(i, static_cast<_Float16>(value));
      case DType::bf16:
        break;
    }
    write(i, static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(static_cast<float>(value)) >> 16U));
  }

 private:
  template <typename T>
  T read(std::int64_t i) const {
    T value;
    std::memcpy(&value, bytes_.data() + static_cast<std::size_t>(i) * sizeof(T), sizeof(T));
    return value;
  }
  template <typename T>
  void write(std::int64_t i, T value) {
    std::memcpy(bytes_.data() + static_cast<std::size_t>(i) * sizeof(T), &value, sizeof(T));
  }

  DType dtype_ = DType::f32;
  Bytes bytes_;
};

// Between -1 and 1, the same in every run.
inline double number_of(std::uint64_t seed, std::int64_t i) {
  std::uint64_t x = seed * 0x9e3779b97f4a7c15U + static_cast<std::uint64_t>(i) * 0xbf58476d1ce4e5b9U + 1;
  x ^= x >> 29U;
  x *= 0x94d049bb133111ebU;
  return static_cast<double>(static_cast<std::int64_t>(x)) * 0x1p-63;
}

inline Numbers filled(DType dtype, std::int64_t count, std::uint64_t seed, bool positive = false) {
  Numbers numbers(dtype, count);
  for (std::int64_t i = 0; i < count; ++i)
    numbers.set(i, positive ? 0.1 + std::abs(number_of(seed, i)) : number_of(seed, i));
  return numbers;
}

inline double feature(FeatureMap map, double x) {
  switch (map) {
    case FeatureMap::identity:
      return x;
    case FeatureMap::relu:
      return x < 0 ? 0 : x;
    case FeatureMap::elu_plus_one:
      return x > 0 ? x + 1 : std::exp(x);
    case FeatureMap::exp:
      return std::exp(x);
    case FeatureMap::squared_relu:
      return x < 0 ? 0 : x * x;
  }
  return 0;
}

// A value and what rounding may have done to it.
struct Sum {
  double value = 0, size = 0;
  void add(double term) { value += term, size += std::abs(term); }
};

// Relative errors: of one rounding of an output, and of the sums.
inline double output_unit(DType dtype) {
  return dtype == DType::f64 ? 0x1p-50 : dtype == DType::f32 ? 0x1p-21 : dtype == DType::f16 ? 0x1p-9 : 0x1p-6;
}
inline double sum_unit(DType dtype) { return dtype == DType::f64 ? 0x1p-46 : 0x1p-17; }

// numerator / denominator as the operator may have rounded it; nothing is said where the denominator is lost in
// rounding.
inline bool agrees(double actual, const Sum& numerator, const Sum& denominator, double eps, DType dtype) {
  const double unit = sum_unit(dtype), divisor = denominator.value + eps;
  const double lost = unit * (denominator.size + std::abs(eps)) + 1e-36;
  if (lost > 0.25 * std::abs(divisor)) return true;
  const double expected = numerator.value / divisor;
  const double largest = dtype == DType::f16 ? 6e4 : dtype == DType::f64 ? 1e300 : 1e37;
  if (!(numerator.size < largest && denominator.size < largest && std::abs(expected) < largest)) return true;
  const double error = (unit * numerator.size + 1e-36 + std::abs(expected) * lost) / (0.75 * std::abs(divisor));
  return std::abs(actual - expected) <=
         error + output_unit(dtype) * std::abs(expected) + (dtype == DType::f16 ? 1e-7 : 1e-36);
}

}  // namespace mhla::fuzz
