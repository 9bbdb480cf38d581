// A warp holds a row: K vectors of 4 elements per lane. An RMSNorm is a LayerNorm whose mean is zero. The backward pass
// keeps the sums for weight and bias in registers while its warps walk over the rows.
#include "cuda/layers/warp_rows.cuh"
#include "mhla/layers.hpp"

namespace mhla::cuda::layers {
namespace {

template <typename X, typename Y, int K>
__global__ void __launch_bounds__(kWarps* kWarp) add_norm_forward(AddNorm p, AddNorm::Forward args) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp;
  if (row >= p.rows) return;
  const auto channels = static_cast<int>(p.channels);
  const std::int64_t begin = row * p.channels;
  const float factor = args.factor != nullptr ? args.factor[row / p.rows_per_factor] : 1.0F;
  float x[K][V] = {}, total = 0.0F;
  for_each_vector<K>(channels, [&](int k, int column) {
    load<V>(static_cast<const X*>(args.x) + begin + column, x[k]);
    if (args.branch != nullptr) {
      float branch[V], bias[V];
      load<V>(static_cast<const Y*>(args.branch) + begin + column, branch);
      load_any<V>(args.branch_bias.data, args.branch_bias.dtype, column, 0.0F, bias);
#pragma unroll
      for (int i = 0; i < V; ++i) x[k][i] += factor * (branch[i] + bias[i]);
      store<V>(static_cast<X*>(args.sum) + begin + column, x[k]);
    }
#pragma unroll
    for (int i = 0; i < V; ++i) total += x[k][i];
  });
  const float mean = p.rms ? 0.0F : warp_sum(total) / static_cast<float>(channels);
  float squares = 0.0F;
  for_each_vector<K>(channels, [&](int k, int) {
#pragma unroll
    for (int i = 0; i < V; ++i) {
      x[k][i] -= mean;
      squares += x[k][i] * x[k][i];
    }
  });
  const float inverse = rsqrtf(warp_sum(squares) / static_cast<float>(channels) + static_cast<float>(p.eps));
  for_each_vector<K>(channels, [&](int k, int column) {
    float weight[V], bias[V];
    load_any<V>(args.weight.data, args.weight.dtype, column, 1.0F, weight);
    load_any<V>(args.bias.data, args.bias.dtype, column, 0.0F, bias);
#pragma unroll
    for (int i = 0; i < V; ++i) x[k][i] = x[k][i] * inverse * weight[i] + bias[i];
    store<V>(static_cast<Y*>(args.y) + begin + column, x[k]);
  });
  if (threadIdx.x % kWarp == 0) reinterpret_cast<float2*>(args.statistics)[row] = make_float2(mean, inverse);
}

template <typename X, typename Y, int K>
__global__ void __launch_bounds__(kWarps* kWarp) add_norm_backward(AddNorm p, AddNorm::Backward args) {
  __shared__ Meeting<K> meeting;
  const auto channels = static_cast<int>(p.channels);
  const float scale = 1.0F / static_cast<float>(channels);
  float weight[K][V] = {}, d_weight[K][V] = {}, d_bias[K][V] = {}, d_branch_bias[K][V] = {};
  for_each_vector<K>(
      channels, [&](int k, int column) { load_any<V>(args.weight.data, args.weight.dtype, column, 1.0F, weight[k]); });
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kWarps;
  for (std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp; row < p.rows;
       row += step) {
    const std::int64_t begin = row * p.channels;
    float xhat[K][V] = {}, d[K][V] = {}, more[K][V] = {};
    for_each_vector<K>(channels, [&](int k, int column) {
      load<V>(static_cast<const X*>(args.sum) + begin + column, xhat[k]);
      load<V>(static_cast<const Y*>(args.d_y) + begin + column, d[k]);
      if (args.d_sum != nullptr) load<V>(static_cast<const X*>(args.d_sum) + begin + column, more[k]);
    });
    const float2 statistics = reinterpret_cast<const float2*>(args.statistics)[row];
    const float factor = args.factor != nullptr ? args.factor[row / p.rows_per_factor] : 1.0F;
    float mean = 0.0F, slope = 0.0F;
    for_each_vector<K>(channels, [&](int k, int) {
#pragma unroll
      for (int i = 0; i < V; ++i) {
        xhat[k][i] = (xhat[k][i] - statistics.x) * statistics.y;
        d_weight[k][i] += d[k][i] * xhat[k][i];
        d_bias[k][i] += d[k][i];
        d[k][i] *= weight[k][i];
        mean += d[k][i];
        slope += d[k][i] * xhat[k][i];
      }
    });
    mean = p.rms ? 0.0F : warp_sum(mean) * scale;
    slope = warp_sum(slope) * scale;
    for_each_vector<K>(channels, [&](int k, int column) {
#pragma unroll
      for (int i = 0; i < V; ++i) more[k][i] += statistics.y * (d[k][i] - mean - xhat[k][i] * slope);
      store<V>(static_cast<X*>(args.d_x) + begin + column, more[k]);
      if (args.d_branch == nullptr) return;
#pragma unroll
      for (int i = 0; i < V; ++i) {
        more[k][i] *= factor;
        d_branch_bias[k][i] += more[k][i];
      }
      store<V>(static_cast<Y*>(args.d_branch) + begin + column, more[k]);
    });
  }
  const auto partial = [&](int which) { return args.partial + (which * kSlots + blockIdx.x) * p.channels; };
  write_partial<K>(channels, d_weight, meeting, partial(0));
  write_partial<K>(channels, d_bias, meeting, partial(1));
  if (args.d_branch_bias.data != nullptr) write_partial<K>(channels, d_branch_bias, meeting, partial(2));
}

// run.operator()<X, Y, K>() for the types and the width of a call.
template <typename Run>
void with_types(const AddNorm& p, Run&& run) {
  if (p.stream_dtype != p.dtype && p.stream_dtype != DType::f32)
    throw Error("add_norm: the stream must be in float32 or in the type of the output");
  with_element(p.dtype, "add_norm", [&]<typename Y>() {
    with_width(p.channels, [&]<int K>() {
      if (p.stream_dtype == p.dtype)
        run.template operator()<Y, Y, K>();
      else
        run.template operator()<float, Y, K>();
    });
  });
}

}  // namespace

std::int64_t AddNorm::partial_elements() const { return 3 * kSlots * channels; }

void forward(const AddNorm& p, const AddNorm::Forward& args, void* stream) {
  if (p.rows == 0) return;
  with_types(p, [&]<typename X, typename Y, int K>() {
    add_norm_forward<X, Y, K><<<rows::grid_of((p.rows + kWarps - 1) / kWarps, "add_norm"), kWarps * kWarp, 0,
                                static_cast<cudaStream_t>(stream)>>>(p, args);
  });
  check(cudaGetLastError(), "add_norm");
}

void backward(const AddNorm& p, const AddNorm::Backward& args, void* stream) {
  with_types(p, [&]<typename X, typename Y, int K>() {
    add_norm_backward<X, Y, K>
        <<<static_cast<unsigned>(kSlots), kWarps * kWarp, 0, static_cast<cudaStream_t>(stream)>>>(p, args);
  });
  check(cudaGetLastError(), "add_norm_backward");
  const auto sum = [&](int which, const Vector& of) {
    return ColumnSum{args.partial + which * kSlots * p.channels, p.channels, of};
  };
  launch_column_sums({sum(0, args.d_weight), sum(1, args.d_bias), sum(2, args.d_branch_bias)}, kSlots,
                     static_cast<cudaStream_t>(stream));
}

}  // namespace mhla::cuda::layers
