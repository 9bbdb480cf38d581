// A warp holds a row. In the backward pass a block walks over tokens of one batch row, with the sums for that row in
// registers; two more launches add up the blocks of a batch row, and the batch rows for the bias.
#include "cuda/layers/warp_rows.cuh"
#include "mhla/layers.hpp"

namespace mhla::cuda::layers {
namespace {

using Part = AddModulate::Part;

__device__ __forceinline__ void load_part(const Part& part, std::int64_t batch, int column, float* values) {
  load_any<V>(part.data, part.dtype, batch * part.stride + column, 0.0F, values);
}

template <typename X, typename Y, int K>
__global__ void __launch_bounds__(kWarps* kWarp) add_modulate_forward(AddModulate p, AddModulate::Forward args) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp;
  if (row >= p.batch * p.tokens) return;
  const auto channels = static_cast<int>(p.channels);
  const std::int64_t begin = row * p.channels;
  std::int64_t batch, token;
  rows::divide(row, p.tokens, batch, token);
  float x[K][V] = {}, total = 0.0F;
  for_each_vector<K>(channels, [&](int k, int column) {
    load<V>(static_cast<const X*>(args.x) + begin + column, x[k]);
    if (args.branch != nullptr) {
      float branch[V], bias[V], gate[V];
      load<V>(static_cast<const Y*>(args.branch) + begin + column, branch);
      load_any<V>(args.branch_bias.data, args.branch_bias.dtype, column, 0.0F, bias);
      load_part(args.gate, batch, column, gate);
#pragma unroll
      for (int i = 0; i < V; ++i) x[k][i] += gate[i] * (branch[i] + bias[i]);
      store<V>(static_cast<X*>(args.sum) + begin + column, x[k]);
    }
#pragma unroll
    for (int i = 0; i < V; ++i) total += x[k][i];
  });
  if (args.y == nullptr) return;
  const float mean = warp_sum(total) / static_cast<float>(channels);
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
    float scale[V], shift[V];
    load_part(args.scale, batch, column, scale);
    load_part(args.shift, batch, column, shift);
#pragma unroll
    for (int i = 0; i < V; ++i) x[k][i] = x[k][i] * inverse * (1.0F + scale[i]) + shift[i];
    store<V>(static_cast<Y*>(args.y) + begin + column, x[k]);
  });
  if (threadIdx.x % kWarp == 0) reinterpret_cast<float2*>(args.statistics)[row] = make_float2(mean, inverse);
}

// What is summed over the tokens of a batch row, for every channel.
enum Sum { kOfScale, kOfShift, kOfGate, kOfBranch, kSums };

// From d_y to the gradient of the sum, in d; adds to the sums for scale and shift.
template <typename X, typename Y, int K>
__device__ __forceinline__ void through_norm(const AddModulate& p, const AddModulate::Backward& args, std::int64_t row,
                                             const float* scales, float (&d)[K][V], float (&d_scale)[K][V],
                                             float (&d_shift)[K][V]) {
  const auto channels = static_cast<int>(p.channels);
  const float2 statistics = reinterpret_cast<const float2*>(args.statistics)[row];
  float xhat[K][V] = {}, mean = 0.0F, slope = 0.0F;
  for_each_vector<K>(channels, [&](int k, int column) {
    load<V>(static_cast<const X*>(args.sum) + row * p.channels + column, xhat[k]);
    load<V>(static_cast<const Y*>(args.d_y) + row * p.channels + column, d[k]);
  });
  for_each_vector<K>(channels, [&](int k, int column) {
    float scale[V];
    load<V>(scales + column, scale);
#pragma unroll
    for (int i = 0; i < V; ++i) {
      xhat[k][i] = (xhat[k][i] - statistics.x) * statistics.y;
      d_scale[k][i] += d[k][i] * xhat[k][i];
      d_shift[k][i] += d[k][i];
      d[k][i] *= 1.0F + scale[i];
      mean += d[k][i];
      slope += d[k][i] * xhat[k][i];
    }
  });
  mean = warp_sum(mean) / static_cast<float>(channels);
  slope = warp_sum(slope) / static_cast<float>(channels);
  for_each_vector<K>(channels, [&](int k, int) {
#pragma unroll
    for (int i = 0; i < V; ++i) d[k][i] = statistics.y * (d[k][i] - mean - xhat[k][i] * slope);
  });
}

template <typename X, typename Y, int K>
__global__ void __launch_bounds__(kWarps* kWarp)
    add_modulate_backward(AddModulate p, AddModulate::Backward args, std::int64_t slots) {
  __shared__ Meeting<K> meeting;
  alignas(16) __shared__ float scales[K * kWarp * V];
  alignas(16) __shared__ float gates[K * kWarp * V];
  const auto channels = static_cast<int>(p.channels);
  std::int64_t batch, slot;
  rows::divide(blockIdx.x, slots, batch, slot);
  if (threadIdx.x < kWarp)
    for_each_vector<K>(channels, [&](int, int column) {
      load_part(args.scale, batch, column, scales + column);
      load_part(args.gate, batch, column, gates + column);
    });
  __syncthreads();
  float d_scale[K][V] = {}, d_shift[K][V] = {}, d_gate[K][V] = {}, d_branch[K][V] = {};
  for (std::int64_t token = slot * kWarps + threadIdx.x / kWarp; token < p.tokens; token += slots * kWarps) {
    const std::int64_t row = batch * p.tokens + token, begin = row * p.channels;
    float d[K][V] = {};
    if (args.d_y != nullptr) through_norm<X, Y, K>(p, args, row, scales, d, d_scale, d_shift);
    for_each_vector<K>(channels, [&](int k, int column) {
      if (args.d_sum != nullptr) {
        float more[V];
        load<V>(static_cast<const X*>(args.d_sum) + begin + column, more);
#pragma unroll
        for (int i = 0; i < V; ++i) d[k][i] += more[i];
      }
      if (args.d_x != nullptr) store<V>(static_cast<X*>(args.d_x) + begin + column, d[k]);
      if (args.branch == nullptr) return;
      float branch[V], bias[V], gate[V];
      load<V>(static_cast<const Y*>(args.branch) + begin + column, branch);
      load_any<V>(args.branch_bias.data, args.branch_bias.dtype, column, 0.0F, bias);
      load<V>(gates + column, gate);
#pragma unroll
      for (int i = 0; i < V; ++i) {
        d_gate[k][i] += d[k][i] * (branch[i] + bias[i]);
        d[k][i] *= gate[i];
        d_branch[k][i] += d[k][i];
      }
      store<V>(static_cast<Y*>(args.d_branch) + begin + column, d[k]);
    });
  }
  const auto partial = [&](Sum which) { return args.partial + (which * gridDim.x + blockIdx.x) * p.channels; };
  if (args.d_y != nullptr) {
    write_partial<K>(channels, d_scale, meeting, partial(kOfScale));
    write_partial<K>(channels, d_shift, meeting, partial(kOfShift));
  }
  if (args.branch != nullptr) {
    write_partial<K>(channels, d_gate, meeting, partial(kOfGate));
    write_partial<K>(channels, d_branch, meeting, partial(kOfBranch));
  }
}

// Adds up the blocks of a batch row. blockIdx.y: which sum.
template <int = 0>
__global__ void modulation_sums(AddModulate p, AddModulate::Backward args, std::int64_t slots) {
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (at >= p.batch * p.channels) return;
  std::int64_t batch, column;
  rows::divide(at, p.channels, batch, column);
  const auto which = static_cast<std::int64_t>(blockIdx.y);
  const float* const partial = args.partial + (which * p.batch + batch) * slots * p.channels + column;
  float sum = 0.0F;
  for (std::int64_t slot = 0; slot < slots; ++slot) sum += partial[slot * p.channels];
  if (which == kOfBranch) {
    args.partial[kSums * p.batch * slots * p.channels + at] = sum;
    return;
  }
  const Vector& to = which == kOfScale ? args.d_scale : which == kOfShift ? args.d_shift : args.d_gate;
  if (to.data != nullptr) rows::store_any<1>(to.data, to.dtype, at, &sum);
}

// Blocks of a batch row: enough to fill a large GPU twice, and no more than there are tokens for.
std::int64_t slots_of(const AddModulate& p) {
  return std::clamp<std::int64_t>(kSlots / std::max<std::int64_t>(p.batch, 1), 1,
                                  std::max<std::int64_t>((p.tokens + kWarps - 1) / kWarps, 1));
}

// run.operator()<K>(). Fewer widths than with_width() has: these kernels take long to compile.
template <typename Run>
void with_few_widths(std::int64_t columns, Run&& run) {
  const std::int64_t needed = (columns + V * kWarp - 1) / (V * kWarp);
  if (needed <= 2) return run.template operator()<2>();
  if (needed <= 3) return run.template operator()<3>();
  if (needed <= 6) return run.template operator()<6>();
  run.template operator()<9>();
}

// run.operator()<X, Y, K>() for the types and the width of a call.
template <typename Run>
void with_types(const AddModulate& p, Run&& run) {
  if (p.stream_dtype != p.dtype && p.stream_dtype != DType::f32)
    throw Error("add_modulate: the stream must be in float32 or in the type of the output");
  with_element(p.dtype, "add_modulate", [&]<typename Y>() {
    with_few_widths(p.channels, [&]<int K>() {
      if (p.stream_dtype == p.dtype)
        run.template operator()<Y, Y, K>();
      else
        run.template operator()<float, Y, K>();
    });
  });
}

}  // namespace

std::int64_t AddModulate::partial_elements() const { return (kSums * slots_of(*this) + 1) * batch * channels; }

void forward(const AddModulate& p, const AddModulate::Forward& args, void* stream) {
  if (p.batch * p.tokens == 0) return;
  const unsigned blocks = rows::grid_of((p.batch * p.tokens + kWarps - 1) / kWarps, "add_modulate");
  with_types(p, [&]<typename X, typename Y, int K>() {
    add_modulate_forward<X, Y, K><<<blocks, kWarps * kWarp, 0, static_cast<cudaStream_t>(stream)>>>(p, args);
  });
  check(cudaGetLastError(), "add_modulate");
}

void backward(const AddModulate& p, const AddModulate::Backward& args, void* stream) {
  const std::int64_t slots = slots_of(p);
  const auto cuda_stream = static_cast<cudaStream_t>(stream);
  with_types(p, [&]<typename X, typename Y, int K>() {
    add_modulate_backward<X, Y, K>
        <<<rows::grid_of(p.batch * slots, "add_modulate"), kWarps * kWarp, 0, cuda_stream>>>(p, args, slots);
  });
  check(cudaGetLastError(), "add_modulate_backward");
  constexpr int kThreads = 256;
  const dim3 grid(rows::grid_of((p.batch * p.channels + kThreads - 1) / kThreads, "add_modulate"), kSums);
  modulation_sums<><<<grid, kThreads, 0, cuda_stream>>>(p, args, slots);
  check(cudaGetLastError(), "sums for modulation");
  if (args.d_branch_bias.data != nullptr)
    launch_column_sums({{args.partial + kSums * slots * p.batch * p.channels, p.channels, args.d_branch_bias}}, p.batch,
                       cuda_stream);
}

}  // namespace mhla::cuda::layers
