// The border between token tensors (any element type, any stride) and tiles (arithmetic type, padded): feature maps and
// their derivatives are applied while crossing it.
#include <bit>
#include <cmath>
#include <type_traits>

#if defined(__F16C__)
#include <immintrin.h>
#endif

#include "cpu/element.hpp"
#include "cpu/kernels/simd.hpp"
#include "cpu/kernels/table.hpp"

namespace mhla::cpu::MHLA_ISA {
namespace {

// e^x by 2^n e^r with |r| <= ln(2) / 2 and a polynomial for e^r; branch-free so that loops over it vectorise.
// Relative error below 2e-7; overflows to infinity, underflows gradually, keeps NaN.
inline float exponential(float x) {
  constexpr float kLog2E = 1.44269504F, kLn2High = 0.693359375F, kLn2Low = -2.12194440e-4F;
  const float bounded = x > 89.0F ? 89.0F : (x < -104.0F ? -104.0F : x);
  constexpr float kRound = 12582912.0F;  // 1.5 * 2^23: adding it rounds to an integer in the low bits
  const float shifted = bounded * kLog2E + kRound;
  const float n = shifted - kRound;
  const float r = (bounded - n * kLn2High) - n * kLn2Low;
  float p = 1.9875691500e-4F;
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = p * r * r + r + 1.0F;
  const auto whole = std::bit_cast<std::int32_t>(shifted) - std::bit_cast<std::int32_t>(kRound);
  const std::int32_t half = whole >> 1;
  const float scale_a = std::bit_cast<float>((half + 127) << 23);
  const float scale_b = std::bit_cast<float>((whole - half + 127) << 23);
  const float result = p * scale_a * scale_b;
  return x != x ? x : result;
}
inline double exponential(double x) { return std::exp(x); }

template <FeatureMap map, typename T>
inline T phi(T x) {
  if constexpr (map == FeatureMap::relu) return x < T(0) ? T(0) : x;
  if constexpr (map == FeatureMap::elu_plus_one) {
    const T e = exponential(x);
    return x > T(0) ? x + T(1) : e;
  }
  if constexpr (map == FeatureMap::exp) return exponential(x);
  if constexpr (map == FeatureMap::squared_relu) return x < T(0) ? T(0) : x * x;
  return x;
}

template <FeatureMap map, typename T>
inline T phi_derivative(T x) {
  if constexpr (map == FeatureMap::relu) return x > T(0) ? T(1) : T(0);
  if constexpr (map == FeatureMap::elu_plus_one) {
    const T e = exponential(x);
    return x > T(0) ? T(1) : e;
  }
  if constexpr (map == FeatureMap::exp) return exponential(x);
  if constexpr (map == FeatureMap::squared_relu) return x > T(0) ? T(2) * x : T(0);
  return T(1);
}

template <typename Visit>
void with_feature_map(FeatureMap map, Visit&& visit) {
  switch (map) {
    case FeatureMap::identity:
      return visit(std::integral_constant<FeatureMap, FeatureMap::identity>{});
    case FeatureMap::relu:
      return visit(std::integral_constant<FeatureMap, FeatureMap::relu>{});
    case FeatureMap::elu_plus_one:
      return visit(std::integral_constant<FeatureMap, FeatureMap::elu_plus_one>{});
    case FeatureMap::exp:
      return visit(std::integral_constant<FeatureMap, FeatureMap::exp>{});
    case FeatureMap::squared_relu:
      return visit(std::integral_constant<FeatureMap, FeatureMap::squared_relu>{});
  }
}

// Element types whose arithmetic type is T.
template <typename T, typename Visit>
void with_element(DType dtype, Visit&& visit) {
  if constexpr (std::is_same_v<T, double>) {
    visit(TypeTag<double>{});
  } else {
    switch (dtype) {
      case DType::bf16:
        return visit(TypeTag<BFloat16>{});
      case DType::f16:
        return visit(TypeTag<Half>{});
      default:
        return visit(TypeTag<float>{});
    }
  }
}

// Element rows widened to T. Rows already of that type are used where they lie.
template <typename T, typename Element>
const T* widened(const Element* from, std::int64_t width, T* buffer) {
  if constexpr (std::is_same_v<Element, T>) {
    return from;
  } else {
    std::int64_t c = 0;
#if defined(__F16C__)
    if constexpr (std::is_same_v<Element, Half>)
      for (; c + 8 <= width; c += 8)
        _mm256_storeu_ps(buffer + c, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + c))));
#endif
    for (; c < width; ++c) buffer[c] = static_cast<T>(from[c]);
    return buffer;
  }
}

template <typename T, typename Element>
void narrow(const T* from, std::int64_t width, Element* to) {
  std::int64_t c = 0;
#if defined(__F16C__)
  if constexpr (std::is_same_v<Element, Half>)
    for (; c + 8 <= width; c += 8)
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to + c),
                       _mm256_cvtps_ph(_mm256_loadu_ps(from + c), _MM_FROUND_TO_NEAREST_INT));
#endif
  for (; c < width; ++c) to[c] = static_cast<Element>(from[c]);
}

}  // namespace

template <typename T>
void load(const Rows& rows, const Features& features, const void* from, T* tile) {
  const T scale = static_cast<T>(features.scale);
  const T shift = static_cast<T>(features.scale * features.eps);
  const std::int64_t width = rows.width;
  with_element<T>(rows.dtype, [&](auto element) {
    using Element = typename decltype(element)::type;
    with_feature_map(features.map, [&](auto map) {
      T buffer[kPanel<T>];
      for (std::int64_t r = 0; r < rows.rows; ++r) {
        const T* __restrict x = widened<T>(static_cast<const Element*>(from) + r * rows.stride, width, buffer);
        T* __restrict out = tile + r * kTileStride<T>;
        for (std::int64_t c = 0; c < width; ++c) out[c] = scale * phi<decltype(map)::value>(x[c]) + shift;
        for (std::int64_t c = width; c < padded<T>(width); ++c) out[c] = T(0);
      }
    });
  });
}

template <typename T>
void store(const Rows& rows, const T* tile, const T* factor, void* to) {
  with_element<T>(rows.dtype, [&](auto element) {
    using Element = typename decltype(element)::type;
    T buffer[kPanel<T>];
    for (std::int64_t r = 0; r < rows.rows; ++r) {
      const T* row = tile + r * kTileStride<T>;
      Element* out = static_cast<Element*>(to) + r * rows.stride;
      if (factor != nullptr) {
        for (std::int64_t c = 0; c < rows.width; ++c) buffer[c] = row[c] * factor[r];
        row = buffer;
      }
      narrow(row, rows.width, out);
    }
  });
}

template <typename T>
void store_gradient(const Rows& rows, const Features& features, const T* tile, const void* x, std::int64_t x_stride,
                    void* to) {
  const T scale = static_cast<T>(features.scale);
  with_element<T>(rows.dtype, [&](auto element) {
    using Element = typename decltype(element)::type;
    with_feature_map(features.map, [&](auto map) {
      T raw_buffer[kPanel<T>], buffer[kPanel<T>];
      for (std::int64_t r = 0; r < rows.rows; ++r) {
        const T* raw = widened<T>(static_cast<const Element*>(x) + r * x_stride, rows.width, raw_buffer);
        const T* row = tile + r * kTileStride<T>;
        for (std::int64_t c = 0; c < rows.width; ++c)
          buffer[c] = row[c] * (scale * phi_derivative<decltype(map)::value>(raw[c]));
        narrow(buffer, rows.width, static_cast<Element*>(to) + r * rows.stride);
      }
    });
  });
}

#define MHLA_INSTANTIATE(T)                                          \
  template void load(const Rows&, const Features&, const void*, T*); \
  template void store(const Rows&, const T*, const T*, void*);       \
  template void store_gradient(const Rows&, const Features&, const T*, const void*, std::int64_t, void*)
MHLA_INSTANTIATE(float);
MHLA_INSTANTIATE(double);
#undef MHLA_INSTANTIATE

}  // namespace mhla::cpu::MHLA_ISA
