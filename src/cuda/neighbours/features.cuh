// phi and its derivative over a few elements in registers.
#pragma once

#include <cuda_runtime.h>

#include "mhla/types.hpp"

namespace mhla::cuda {

template <int kCount, typename T>
__device__ __forceinline__ void apply_phi(FeatureMap map, T* x) {
  switch (map) {
    case FeatureMap::identity:
      return;
    case FeatureMap::relu:
#pragma unroll
      for (int i = 0; i < kCount; ++i) x[i] = x[i] < T(0) ? T(0) : x[i];
      return;
    case FeatureMap::elu_plus_one:
#pragma unroll
      for (int i = 0; i < kCount; ++i) x[i] = x[i] > T(0) ? x[i] + T(1) : exp(x[i]);
      return;
    case FeatureMap::exp:
#pragma unroll
      for (int i = 0; i < kCount; ++i) x[i] = exp(x[i]);
      return;
    case FeatureMap::squared_relu:
#pragma unroll
      for (int i = 0; i < kCount; ++i) x[i] = x[i] < T(0) ? T(0) : x[i] * x[i];
      return;
  }
}

// d[i] *= phi'(x[i])
template <int kCount, typename T>
__device__ __forceinline__ void multiply_by_phi_derivative(FeatureMap map, const T* x, T* d) {
  switch (map) {
    case FeatureMap::identity:
      return;
    case FeatureMap::relu:
#pragma unroll
      for (int i = 0; i < kCount; ++i) d[i] *= x[i] > T(0) ? T(1) : T(0);
      return;
    case FeatureMap::elu_plus_one:
#pragma unroll
      for (int i = 0; i < kCount; ++i) d[i] *= x[i] > T(0) ? T(1) : exp(x[i]);
      return;
    case FeatureMap::exp:
#pragma unroll
      for (int i = 0; i < kCount; ++i) d[i] *= exp(x[i]);
      return;
    case FeatureMap::squared_relu:
#pragma unroll
      for (int i = 0; i < kCount; ++i) d[i] *= x[i] > T(0) ? T(2) * x[i] : T(0);
      return;
  }
}

}  // namespace mhla::cuda
