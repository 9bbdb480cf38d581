// Features on pairs of two-byte elements.
#pragma once

#include "cuda/support/element.cuh"

namespace mhla::cuda {

template <typename E>
struct PairOf {
  using type = __nv_bfloat162;
};
template <>
struct PairOf<__half> {
  using type = __half2;
};

template <typename E>
__device__ std::uint32_t pack(float low, float high) {
  if constexpr (std::is_same_v<E, __half>) {
    const __half2 pair = __floats2half2_rn(low, high);
    return reinterpret_cast<const std::uint32_t&>(pair);
  } else {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return reinterpret_cast<const std::uint32_t&>(pair);
  }
}

// phi where it is the identity or relu, with or without eps: max(x, floor) + eps on pairs of elements.
template <typename E>
class PairFeature {
 public:
  using Pair = typename PairOf<E>::type;

  __host__ __device__ static bool covers(const Feature& feature) {
    return feature.map == FeatureMap::identity || feature.map == FeatureMap::relu;
  }
  __device__ explicit PairFeature(const Feature& feature)
      : is_relu_(feature.map == FeatureMap::relu), adds_(feature.eps != 0) {
    const std::uint32_t bits = pack<E>(static_cast<float>(feature.eps), static_cast<float>(feature.eps));
    eps_ = reinterpret_cast<const Pair&>(bits);
  }

  template <int kCount>
  __device__ void apply(std::uint32_t (&fragment)[kCount]) const {
    if (is_relu_) {
#pragma unroll
      for (std::uint32_t& r : fragment) {
        const std::uint32_t zero = 0;
        const Pair y = __hmax2_nan(reinterpret_cast<const Pair&>(r), reinterpret_cast<const Pair&>(zero));
        r = reinterpret_cast<const std::uint32_t&>(y);
      }
    }
    if (adds_) {
#pragma unroll
      for (std::uint32_t& r : fragment) {
        const Pair y = __hadd2(reinterpret_cast<const Pair&>(r), eps_);
        r = reinterpret_cast<const std::uint32_t&>(y);
      }
    }
  }
  // phi of a row of zeros, as padding has it.
  __device__ float of_padding() const {
    return adds_ ? to_accumulator(reinterpret_cast<const E(&)[2]>(eps_)[0]) : 0.0F;
  }

 private:
  bool is_relu_, adds_;
  Pair eps_;
};

}  // namespace mhla::cuda
