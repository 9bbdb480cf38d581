// Element types on the device: conversions and the feature map.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "mhla/types.hpp"

namespace mhla::cuda {

template <typename E>
struct AccumulatorOf {
  using type = float;
};
template <>
struct AccumulatorOf<double> {
  using type = double;
};
template <typename E>
using Accumulator = typename AccumulatorOf<E>::type;

__device__ inline float to_accumulator(float x) { return x; }
__device__ inline double to_accumulator(double x) { return x; }
__device__ inline float to_accumulator(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ inline float to_accumulator(__half x) { return __half2float(x); }

template <typename E>
__device__ inline E to_element(Accumulator<E> x) {
  return static_cast<E>(x);
}
template <>
__device__ inline __nv_bfloat16 to_element<__nv_bfloat16>(float x) {
  return __float2bfloat16_rn(x);
}
template <>
__device__ inline __half to_element<__half>(float x) {
  return __float2half_rn(x);
}

// max(x, floor), but NaN stays NaN.
__device__ inline float at_least(float floor, float x) {
  float y;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(x), "f"(floor));
  return y;
}
__device__ inline double at_least(double floor, double x) { return x < floor ? floor : x; }

// phi(x) + eps as every kernel applies it to queries and keys; the default, the identity, serves values and gradients.
struct Feature {
  FeatureMap map = FeatureMap::identity;
  double eps = 0;

  // identity and relu are max(x, floor()), which products apply to their fragments; other maps go over the tile first.
  __device__ bool is_floor() const { return eps == 0 && (map == FeatureMap::identity || map == FeatureMap::relu); }
  __device__ float floor() const { return map == FeatureMap::relu && eps == 0 ? 0.0F : -INFINITY; }

  template <typename T>
  __device__ T operator()(T x) const {
    T y = x;
    switch (map) {
      case FeatureMap::identity:
        break;
      case FeatureMap::relu:
        y = x > T(0) || x != x ? x : T(0);
        break;
      case FeatureMap::elu_plus_one:
        y = x > T(0) ? x + T(1) : exp(x);
        break;
      case FeatureMap::exp:
        y = exp(x);
        break;
      case FeatureMap::squared_relu:
        y = x > T(0) || x != x ? x * x : T(0);
        break;
    }
    return y + static_cast<T>(eps);
  }

  template <typename T>
  __device__ T derivative(T x) const {
    switch (map) {
      case FeatureMap::identity:
        return T(1);
      case FeatureMap::relu:
        return x > T(0) ? T(1) : T(0);
      case FeatureMap::elu_plus_one:
        return x > T(0) ? T(1) : exp(x);
      case FeatureMap::exp:
        return exp(x);
      case FeatureMap::squared_relu:
        return x > T(0) ? x + x : T(0);
    }
    return T(1);
  }
};

}  // namespace mhla::cuda
