// phi over the elements of a chunk: which map it is is asked once, not for each element.
#pragma once

#include "cuda/support/element.cuh"

namespace mhla::cuda {

// Calls visit with a Feature whose map is a constant.
template <typename Visit>
__device__ __forceinline__ void with_constant_map(const Feature& feature, Visit&& visit) {
  switch (feature.map) {
    case FeatureMap::identity:
      return visit(Feature{FeatureMap::identity, feature.eps});
    case FeatureMap::relu:
      return visit(Feature{FeatureMap::relu, feature.eps});
    case FeatureMap::elu_plus_one:
      return visit(Feature{FeatureMap::elu_plus_one, feature.eps});
    case FeatureMap::exp:
      return visit(Feature{FeatureMap::exp, feature.eps});
    case FeatureMap::squared_relu:
      return visit(Feature{FeatureMap::squared_relu, feature.eps});
  }
}

// x[i] = phi(x[i]) + eps
template <int kCount, typename T>
__device__ __forceinline__ void apply(const Feature& feature, T* x) {
  with_constant_map(feature, [&](const Feature& f) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) x[i] = f(x[i]);
  });
}

// d[i] *= phi'(x[i])
template <int kCount, typename T>
__device__ __forceinline__ void multiply_by_derivative(const Feature& feature, const T* x, T* d) {
  with_constant_map(feature, [&](const Feature& f) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) d[i] *= f.derivative(x[i]);
  });
}

}  // namespace mhla::cuda
