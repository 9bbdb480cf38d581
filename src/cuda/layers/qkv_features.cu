// A warp holds q or k of a token. The backward pass keeps the sums for the weights in registers while its warps walk
// over the rows, those of q and those of k in turns carrying the gradient of v to its place.
#include "cuda/layers/warp_rows.cuh"
#include "cuda/support/features.cuh"
#include "mhla/layers.hpp"

namespace mhla::cuda::layers {
namespace {

// blockIdx.y: 0 for q, 1 for k.
template <typename E, int K>
__global__ void __launch_bounds__(kWarps* kWarp)
    qkv_features_forward(QkvFeatures p, Feature feature, QkvFeatures::Forward args) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp;
  if (row >= p.rows) return;
  const auto channels = static_cast<int>(p.channels);
  const bool is_q = blockIdx.y == 0;
  const E* const from = static_cast<const E*>(args.qkv) + (3 * row + blockIdx.y) * p.channels;
  E* const to = static_cast<E*>(is_q ? args.q : args.k) + row * p.channels;
  const ConstVector gain = is_q ? args.q_weight : args.k_weight;
  float x[K][V] = {}, squares = 0.0F;
  for_each_vector<K>(channels, [&](int k, int column) {
    load<V>(from + column, x[k]);
#pragma unroll
    for (int i = 0; i < V; ++i) squares += x[k][i] * x[k][i];
  });
  const float inverse =
      p.norm ? rsqrtf(warp_sum(squares) / static_cast<float>(channels) + static_cast<float>(p.norm_eps)) : 1.0F;
  for_each_vector<K>(channels, [&](int k, int column) {
    float weight[V];
    load_any<V>(gain.data, gain.dtype, column, 1.0F, weight);
#pragma unroll
    for (int i = 0; i < V; ++i) x[k][i] *= inverse * weight[i];
    apply<V>(feature, x[k]);
    store<V>(to + column, x[k]);
  });
  if (p.norm && threadIdx.x % kWarp == 0) args.statistics[2 * row + blockIdx.y] = inverse;
}

// The gradient of v, to its place; what came from two sides is added up.
template <typename E, int K>
__device__ __forceinline__ void carry_value(const QkvFeatures& p, const QkvFeatures::Backward& args, std::int64_t row) {
  for_each_vector<K>(static_cast<int>(p.channels), [&](int, int column) {
    float d[V], more[V] = {};
    load<V>(static_cast<const E*>(args.d_v) + row * p.channels + column, d);
    if (args.d_v_more != nullptr) load<V>(static_cast<const E*>(args.d_v_more) + row * p.channels + column, more);
#pragma unroll
    for (int i = 0; i < V; ++i) d[i] += more[i];
    store<V>(static_cast<E*>(args.d_qkv) + (3 * row + 2) * p.channels + column, d);
  });
}

// blockIdx.y: 0 for q, 1 for k.
template <typename E, int K>
__global__ void __launch_bounds__(kWarps* kWarp, K <= 3 ? 4 : 1)
    qkv_features_backward(QkvFeatures p, Feature feature, QkvFeatures::Backward args) {
  __shared__ Meeting<K> meeting;
  alignas(16) __shared__ float weights[K * kWarp * V];  // registers are short
  const auto channels = static_cast<int>(p.channels);
  const bool is_q = blockIdx.y == 0;
  const ConstVector gain = is_q ? args.q_weight : args.k_weight;
  if (threadIdx.x < kWarp)
    for_each_vector<K>(channels,
                       [&](int, int column) { load_any<V>(gain.data, gain.dtype, column, 1.0F, weights + column); });
  __syncthreads();
  float d_weight[K][V] = {};
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kWarps;
  bool carries = is_q;
  for (std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp; row < p.rows;
       row += step, carries = !carries) {
    const std::int64_t begin = (3 * row + blockIdx.y) * p.channels;
    const E* const d_row = static_cast<const E*>(is_q ? args.d_q : args.d_k) + row * p.channels;
    const float inverse = p.norm ? args.statistics[2 * row + blockIdx.y] : 1.0F;
    float xhat[K][V] = {}, d[K][V] = {}, slope = 0.0F;
    for_each_vector<K>(channels, [&](int k, int column) {
      load<V>(static_cast<const E*>(args.qkv) + begin + column, xhat[k]);
      load<V>(d_row + column, d[k]);
    });
    if (carries) carry_value<E, K>(p, args, row);
    for_each_vector<K>(channels, [&](int k, int column) {
      float u[V], weight[V];
      load<V>(weights + column, weight);
#pragma unroll
      for (int i = 0; i < V; ++i) {
        xhat[k][i] *= inverse;
        u[i] = xhat[k][i] * weight[i];
      }
      multiply_by_derivative<V>(feature, u, d[k]);
#pragma unroll
      for (int i = 0; i < V; ++i) {
        d_weight[k][i] += d[k][i] * xhat[k][i];
        d[k][i] *= weight[i];
        slope += d[k][i] * xhat[k][i];
      }
    });
    slope = p.norm ? warp_sum(slope) / static_cast<float>(channels) : 0.0F;
    for_each_vector<K>(channels, [&](int k, int column) {
#pragma unroll
      for (int i = 0; i < V; ++i) d[k][i] = inverse * (d[k][i] - xhat[k][i] * slope);
      store<V>(static_cast<E*>(args.d_qkv) + begin + column, d[k]);
    });
  }
  write_partial<K>(channels, d_weight, meeting, args.partial + (blockIdx.y * kSlots + blockIdx.x) * p.channels);
}

template <typename Run>
void with_types(const QkvFeatures& p, Run&& run) {
  with_element(p.dtype, "qkv_features", [&]<typename E>() {
    with_width(p.channels, [&]<int K>() { run.template operator()<E, K>(Feature{p.feature_map, p.feature_eps}); });
  });
}

}  // namespace

std::int64_t QkvFeatures::partial_elements() const { return 2 * kSlots * channels; }

void forward(const QkvFeatures& p, const QkvFeatures::Forward& args, void* stream) {
  if (p.rows == 0) return;
  with_types(p, [&]<typename E, int K>(const Feature& feature) {
    const dim3 grid(rows::grid_of((p.rows + kWarps - 1) / kWarps, "qkv_features"), 2);
    qkv_features_forward<E, K><<<grid, kWarps * kWarp, 0, static_cast<cudaStream_t>(stream)>>>(p, feature, args);
  });
  check(cudaGetLastError(), "qkv_features");
}

void backward(const QkvFeatures& p, const QkvFeatures::Backward& args, void* stream) {
  with_types(p, [&]<typename E, int K>(const Feature& feature) {
    const dim3 grid(static_cast<unsigned>(kSlots), 2);
    qkv_features_backward<E, K><<<grid, kWarps * kWarp, 0, static_cast<cudaStream_t>(stream)>>>(p, feature, args);
  });
  check(cudaGetLastError(), "qkv_features_backward");
  launch_column_sums(
      {{args.partial, p.channels, args.d_q_weight}, {args.partial + kSlots * p.channels, p.channels, args.d_k_weight}},
      kSlots, static_cast<cudaStream_t>(stream));
}

}  // namespace mhla::cuda::layers
