// phi and its derivative, one element at a time.
#pragma once

#include <cmath>

#include "mhla/types.hpp"

namespace mhla {

template <typename T>
T phi(FeatureMap map, T x) {
  switch (map) {
    case FeatureMap::identity:
      return x;
    case FeatureMap::relu:
      return x < T(0) ? T(0) : x;
    case FeatureMap::elu_plus_one:
      return x > T(0) ? x + T(1) : std::exp(x);
    case FeatureMap::exp:
      return std::exp(x);
    case FeatureMap::squared_relu:
      return x < T(0) ? T(0) : x * x;
  }
  return x;
}

template <typename T>
T phi_derivative(FeatureMap map, T x) {
  switch (map) {
    case FeatureMap::identity:
      return T(1);
    case FeatureMap::relu:
      return x > T(0) ? T(1) : T(0);
    case FeatureMap::elu_plus_one:
      return x > T(0) ? T(1) : std::exp(x);
    case FeatureMap::exp:
      return std::exp(x);
    case FeatureMap::squared_relu:
      return x > T(0) ? T(2) * x : T(0);
  }
  return T(1);
}

}  // namespace mhla
