// Warps walk down strips of 256 columns, 8 columns to a lane, so that the bias and its gradient stay in registers.
//
// gelu(x) = x Phi(x). With t = 1 / (1 + p |x| / sqrt 2), Phi(-|x|) = poly(t) exp(-x^2 / 2) / 2 to 1.5e-7 (Abramowitz
// and Stegun 7.1.26); the exponential serves the derivative, Phi(x) + x phi(x), as well.
//
// The approximation by tanh, x (1 + tanh u) / 2 with u = sqrt(2 / pi) (x + 0.044715 x^3), is x s with s = 1 / (1 +
// exp(-2 u)); its derivative is s + x s (1 - s) 2 u'.
#include "cuda/layers/warp_rows.cuh"
#include "mhla/layers.hpp"

namespace mhla::cuda::layers {
namespace {

constexpr int kVector = 8, kStrip = kVector * kWarp;

struct Tail {
  float probability, exponential;  // Phi(-|x|), exp(-x^2 / 2)
};

__device__ __forceinline__ Tail tail(float x) {
  constexpr float kHalfRoot = 0.70710678F, kMinusHalfLog2E = -0.72134752F;
  const float t = __fdividef(1.0F, 1.0F + 0.3275911F * kHalfRoot * fabsf(x));
  float e;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(kMinusHalfLog2E * x * x));
  const float poly =
      t * (0.127414796F + t * (-0.142248368F + t * (0.7107068705F + t * (-0.7265760135F + t * 0.5307027145F))));
  return {poly * e, e};
}

// x Phi(x) = max(x, 0) - |x| Phi(-|x|); infinity stays what it is.
struct Exact {
  static __device__ __forceinline__ float value(float x) {
    return fmaxf(x, 0.0F) - fminf(fabsf(x), 1e30F) * tail(x).probability;
  }
  static __device__ __forceinline__ float derivative(float x) {
    constexpr float kInverseRootTwoPi = 0.39894228F;
    const Tail at = tail(x);
    return (x > 0.0F ? 1.0F - at.probability : at.probability) + kInverseRootTwoPi * x * at.exponential;
  }
};

struct ByTanh {
  static constexpr float kTwoRoots = 1.59576912F, kCubic = 0.044715F;  // 2 sqrt(2 / pi)

  static __device__ __forceinline__ float share(float x) {
    const float exponent = -kTwoRoots * (x + kCubic * x * x * x);
    return __fdividef(1.0F, 1.0F + __expf(exponent > 80.0F ? 80.0F : exponent));
  }
  // Far below zero the share is 1e-35, and -infinity becomes zero as in the exact form.
  static __device__ __forceinline__ float value(float x) { return x < -1e4F ? 0.0F : x * share(x); }
  static __device__ __forceinline__ float derivative(float x) {
    const float s = share(x), near = x > 1e4F ? 1e4F : x < -1e4F ? -1e4F : x;
    return s + near * s * (1.0F - s) * kTwoRoots * (1.0F + 3.0F * kCubic * near * near);
  }
};

template <typename E, typename Gelu>
__global__ void __launch_bounds__(kWarps* kWarp) bias_gelu_forward(BiasGelu p, BiasGelu::Forward args) {
  const std::int64_t column = (static_cast<std::int64_t>(blockIdx.x) * kWarp + threadIdx.x % kWarp) * kVector;
  if (column >= p.channels) return;
  float bias[kVector];
  load_any<kVector>(args.bias.data, args.bias.dtype, column, 0.0F, bias);
  const std::int64_t step = static_cast<std::int64_t>(gridDim.y) * kWarps;
#pragma unroll 2
  for (std::int64_t row = blockIdx.y * kWarps + threadIdx.x / kWarp; row < p.rows; row += step) {
    const std::int64_t at = row * p.channels + column;
    float x[kVector];
    load<kVector>(static_cast<const E*>(args.x) + at, x);
#pragma unroll
    for (int i = 0; i < kVector; ++i) x[i] = Gelu::value(x[i] + bias[i]);
    store<kVector>(static_cast<E*>(args.y) + at, x);
  }
}

template <typename E, typename Gelu>
__global__ void __launch_bounds__(kWarps* kWarp) bias_gelu_backward(BiasGelu p, BiasGelu::Backward args) {
  __shared__ float shared[kWarps][kStrip];
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  const std::int64_t column = (static_cast<std::int64_t>(blockIdx.x) * kWarp + lane) * kVector;
  float bias[kVector] = {}, d_bias[kVector] = {};
  if (column < p.channels) {
    load_any<kVector>(args.bias.data, args.bias.dtype, column, 0.0F, bias);
    const std::int64_t step = static_cast<std::int64_t>(gridDim.y) * kWarps;
#pragma unroll 2
    for (std::int64_t row = blockIdx.y * kWarps + warp; row < p.rows; row += step) {
      const std::int64_t at = row * p.channels + column;
      float x[kVector], d[kVector];
      load<kVector>(static_cast<const E*>(args.x) + at, x);
      load<kVector>(static_cast<const E*>(args.d_y) + at, d);
#pragma unroll
      for (int i = 0; i < kVector; ++i) {
        d[i] *= Gelu::derivative(x[i] + bias[i]);
        d_bias[i] += d[i];
      }
      store<kVector>(static_cast<E*>(args.d_x) + at, d);
    }
  }
#pragma unroll
  for (int i = 0; i < kVector; ++i) shared[warp][lane * kVector + i] = d_bias[i];
  __syncthreads();
  const std::int64_t mine = static_cast<std::int64_t>(blockIdx.x) * kStrip + threadIdx.x;
  if (mine >= p.channels) return;
  float sum = 0.0F;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) sum += shared[w][threadIdx.x];
  args.partial[blockIdx.y * p.channels + mine] = sum;
}

// run.operator()<Element, Gelu>().
template <typename Run>
void with_kinds(const BiasGelu& p, Run&& run) {
  with_element(p.dtype, "bias_gelu", [&]<typename E>() {
    if (p.tanh)
      run.template operator()<E, ByTanh>();
    else
      run.template operator()<E, Exact>();
  });
}

dim3 grid_of(const BiasGelu& p) { return {static_cast<unsigned>((p.channels + kStrip - 1) / kStrip), kSlots}; }

}  // namespace

std::int64_t BiasGelu::partial_elements() const { return kSlots * channels; }

void forward(const BiasGelu& p, const BiasGelu::Forward& args, void* stream) {
  with_kinds(p, [&]<typename E, typename Gelu>() {
    bias_gelu_forward<E, Gelu><<<grid_of(p), kWarps * kWarp, 0, static_cast<cudaStream_t>(stream)>>>(p, args);
  });
  check(cudaGetLastError(), "bias_gelu");
}

void backward(const BiasGelu& p, const BiasGelu::Backward& args, void* stream) {
  with_kinds(p, [&]<typename E, typename Gelu>() {
    bias_gelu_backward<E, Gelu><<<grid_of(p), kWarps * kWarp, 0, static_cast<cudaStream_t>(stream)>>>(p, args);
  });
  check(cudaGetLastError(), "bias_gelu_backward");
  launch_column_sums({{args.partial, p.channels, args.d_bias}}, kSlots, static_cast<cudaStream_t>(stream));
}

}  // namespace mhla::cuda::layers
