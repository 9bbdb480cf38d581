// A thread has 8 elements. silu(a) = a s with s = 1 / (1 + exp(-a)); its derivative is s (1 + a (1 - s)).
#include "cuda/layers/warp_rows.cuh"
#include "mhla/layers.hpp"

namespace mhla::cuda::layers {
namespace {

constexpr int kVector = 8, kThreads = 256;

__device__ __forceinline__ float share(float a) { return __fdividef(1.0F, 1.0F + __expf(-a)); }

__device__ __forceinline__ std::int64_t first_element() {
  return (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kVector;
}

template <typename E>
__global__ void __launch_bounds__(kThreads) swiglu_forward(SwiGlu p, SwiGlu::Forward args) {
  const std::int64_t at = first_element();
  if (at >= p.elements) return;
  float a[kVector], b[kVector];
  load<kVector>(static_cast<const E*>(args.a) + at, a);
  load<kVector>(static_cast<const E*>(args.b) + at, b);
#pragma unroll
  for (int i = 0; i < kVector; ++i) a[i] *= share(a[i]) * b[i];
  store<kVector>(static_cast<E*>(args.y) + at, a);
}

template <typename E>
__global__ void __launch_bounds__(kThreads) swiglu_backward(SwiGlu p, SwiGlu::Backward args) {
  const std::int64_t at = first_element();
  if (at >= p.elements) return;
  float a[kVector], b[kVector], d[kVector];
  load<kVector>(static_cast<const E*>(args.a) + at, a);
  load<kVector>(static_cast<const E*>(args.b) + at, b);
  load<kVector>(static_cast<const E*>(args.d_y) + at, d);
#pragma unroll
  for (int i = 0; i < kVector; ++i) {
    const float s = share(a[i]), d_b = d[i] * a[i] * s;
    a[i] = d[i] * b[i] * s * (1.0F + a[i] * (1.0F - s));
    b[i] = d_b;
  }
  store<kVector>(static_cast<E*>(args.d_a) + at, a);
  store<kVector>(static_cast<E*>(args.d_b) + at, b);
}

unsigned grid_of(const SwiGlu& p) {
  return rows::grid_of((p.elements + kThreads * kVector - 1) / (kThreads * kVector), "swiglu");
}

}  // namespace

void forward(const SwiGlu& p, const SwiGlu::Forward& args, void* stream) {
  if (p.elements == 0) return;
  with_element(p.dtype, "swiglu", [&]<typename E>() {
    swiglu_forward<E><<<grid_of(p), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(p, args);
  });
  check(cudaGetLastError(), "swiglu");
}

void backward(const SwiGlu& p, const SwiGlu::Backward& args, void* stream) {
  if (p.elements == 0) return;
  with_element(p.dtype, "swiglu", [&]<typename E>() {
    swiglu_backward<E><<<grid_of(p), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(p, args);
  });
  check(cudaGetLastError(), "swiglu_backward");
}

}  // namespace mhla::cuda::layers
