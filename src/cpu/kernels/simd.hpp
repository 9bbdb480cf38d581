// Vectors of the instruction set this file is compiled for, through the compilers' portable vector extension.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace mhla::cpu::MHLA_ISA {

#if defined(__AVX512F__)
constexpr int kVectorBytes = 64;
constexpr int kTileRows = 14;  // rows of accumulators in a product, beside kTileVectors columns of vectors
#elif defined(__AVX2__)
constexpr int kVectorBytes = 32;
constexpr int kTileRows = 6;
#else
constexpr int kVectorBytes = 16;
constexpr int kTileRows = 6;
#endif
constexpr int kTileVectors = 2;

template <typename T>
struct VectorOf;
template <>
struct VectorOf<float> {
  using type [[gnu::vector_size(kVectorBytes)]] = float;
};
template <>
struct VectorOf<double> {
  using type [[gnu::vector_size(kVectorBytes)]] = double;
};
template <typename T>
using Vector = typename VectorOf<T>::type;
template <typename T>
constexpr int kLanes = kVectorBytes / sizeof(T);

template <typename T>
inline Vector<T> load_vector(const T* from) {
  Vector<T> v;
  std::memcpy(&v, from, sizeof v);
  return v;
}

template <typename T>
inline void store_vector(T* to, const Vector<T>& v) {
  std::memcpy(to, &v, sizeof v);
}

// a * b + c, always fused where the instruction set can: left to the compiler, whether it fuses may differ from one
// register tile to the next, and with it the last bit of a sum.
template <typename T>
inline Vector<T> multiply_add(T a, const Vector<T>& b, const Vector<T>& c) {
#if defined(__AVX512F__)
  if constexpr (sizeof(T) == sizeof(float))
    return (Vector<T>)_mm512_fmadd_ps(_mm512_set1_ps(a), (__m512)b, (__m512)c);
  else
    return (Vector<T>)_mm512_fmadd_pd(_mm512_set1_pd(a), (__m512d)b, (__m512d)c);
#elif defined(__AVX2__)
  if constexpr (sizeof(T) == sizeof(float))
    return (Vector<T>)_mm256_fmadd_ps(_mm256_set1_ps(a), (__m256)b, (__m256)c);
  else
    return (Vector<T>)_mm256_fmadd_pd(_mm256_set1_pd(a), (__m256d)b, (__m256d)c);
#else
  return a * b + c;
#endif
}

// The same lane by lane.
template <typename T>
inline Vector<T> multiply_add(const Vector<T>& a, const Vector<T>& b, const Vector<T>& c) {
#if defined(__AVX512F__)
  if constexpr (sizeof(T) == sizeof(float))
    return (Vector<T>)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
  else
    return (Vector<T>)_mm512_fmadd_pd((__m512d)a, (__m512d)b, (__m512d)c);
#elif defined(__AVX2__)
  if constexpr (sizeof(T) == sizeof(float))
    return (Vector<T>)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
  else
    return (Vector<T>)_mm256_fmadd_pd((__m256d)a, (__m256d)b, (__m256d)c);
#else
  return a * b + c;
#endif
}

template <typename T>
inline T sum_lanes(const Vector<T>& v) {
  T lanes[kLanes<T>];
  std::memcpy(lanes, &v, sizeof v);
  for (int step = kLanes<T> / 2; step > 0; step /= 2)
    for (int i = 0; i < step; ++i) lanes[i] += lanes[i + step];
  return lanes[0];
}

}  // namespace mhla::cpu::MHLA_ISA
