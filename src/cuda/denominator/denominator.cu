// Kernels of denominators and their gradients: a warp takes one token of a head at a time.
#include <algorithm>

#include "cuda/denominator/denominator.hpp"
#include "cuda/support/launch.hpp"
#include "cuda/support/math.cuh"

namespace mhla::cuda {
namespace {

constexpr int kWarps = 8;

// The block of tokens a thread block works on.
struct TokenBlock {
  SequenceRow s;
  int head, block;
  BlockTokens tokens;
  std::int64_t row;  // of the S~ store, or of the S store where heads are those of keys
  __device__ static TokenBlock of(const Shape& shape, bool of_queries) {
    const auto [s, head, block] = shape.item(static_cast<int>(blockIdx.x), of_queries);
    const std::int64_t row =
        of_queries ? shape.mixed_row(s, head, block) : shape.entry_row(s, head, shape.initial + block);
    return {s, head, block, BlockTokens(shape, s, block), row};
  }
};

template <typename T>
__device__ T warp_sum(T x) {
  for (int offset = 16; offset > 0; offset /= 2) x += __shfl_xor_sync(0xffffffffu, x, offset);
  return x;
}

__device__ int warp_id() { return static_cast<int>(threadIdx.x) / 32; }

// Calls f(n) for the tokens of the block, shared among the warps of blockIdx.y.
template <typename F>
__device__ void for_each_token(const TokenBlock& at, F&& f) {
  for (int n = static_cast<int>(blockIdx.y) * kWarps + warp_id(); n < at.tokens.count();
       n += kWarps * static_cast<int>(gridDim.y))
    f(n);
}

dim3 token_grid(const Shape& shape, int heads) {
  return {static_cast<unsigned>(shape.total_blocks * heads),
          static_cast<unsigned>(std::clamp((shape.capacity + kWarps - 1) / kWarps, 1, 64))};
}

template <typename E>
__global__ void feature_sum_kernel(const __grid_constant__ FeatureSumArgs<E> args) {
  using T = Accumulator<E>;
  const Shape& shape = args.shape;
  const int heads = args.of_queries ? shape.heads : shape.kv_heads;
  const TokenBlock at = TokenBlock::of(shape, args.of_queries);
  const int d = static_cast<int>(threadIdx.x);
  if (d >= shape.key_pad) return;
  const auto x = args.x.head(at.s.batch, at.head);
  T sum = 0;
  for (int n = 0; d < shape.key_dim && n < at.tokens.count(); ++n) {
    const std::int64_t token = at.tokens[n];
    const T value = shape.feature(to_accumulator(x.row(token)[d]));
    sum += args.weights ? value * args.weights.at(at.s.batch, token, at.head) : value;
  }
  args.sums[at.row * shape.key_pad + d] = sum * static_cast<T>(args.factor);
  if (args.final_z != nullptr && d < shape.key_dim) {
    const std::int64_t head = static_cast<std::int64_t>(at.s.index) * heads + at.head;
    if (shape.filled > 0 && at.block == 0)
      sum += args.initial_z[(head * shape.initial + shape.initial_full) * shape.key_dim + d];
    args.final_z[(head * shape.final_blocks + shape.initial_full + at.block) * shape.key_dim + d] = sum;
  }
}

template <typename E>
__global__ void denominator_kernel(const __grid_constant__ DenominatorArgs<E> args) {
  using T = Accumulator<E>;
  const Shape& shape = args.shape;
  const TokenBlock at = TokenBlock::of(shape, true);
  const int kv_head = at.head / (shape.heads / shape.kv_heads);
  const std::int64_t row = args.authors ? shape.entry_row(at.s, kv_head, shape.initial + at.block) : at.row;
  const T* const z = args.sums + row * shape.key_pad;
  const bool pairs = shape.masking == Masking::token_causal;
  const int own = shape.initial_full + at.block;
  const T own_weight = pairs ? shape.weight<T>(shape.matrix(at.s.index, at.head), own, own) : T(0);
  const auto q = args.q.head(at.s.batch, at.head);
  const auto k = args.k.head(at.s.batch, kv_head);
  for_each_token(at, [&](int n) {
    const std::int64_t token = at.tokens[n];
    T sum = 0;
    for (int d = lane_id(); d < shape.key_dim; d += 32) {
      T keys = 0;
      for (int key = 0; pairs && key <= n; ++key) keys += shape.feature(to_accumulator(k.row(at.tokens[key])[d]));
      sum += shape.feature(to_accumulator(q.row(token)[d])) * (z[d] + own_weight * keys);
    }
    sum = warp_sum(sum) * static_cast<T>(shape.scale);
    if (lane_id() != 0) return;
    if (args.authors) {
      args.slots[at.row * shape.capacity + at.tokens.slot(n)] = sum;
    } else {
      args.denominator.at(at.s.batch, token, at.head) = sum + static_cast<T>(shape.eps);
    }
  });
}

// out_t = sum over blocks j of m[i, j] (or m[j, i] when transposed) slots[j, w] + bias.
template <typename T>
__global__ void mix_slots_kernel(const __grid_constant__ Shape shape, const T* slots, bool transposed, T bias,
                                 TokenScalars<T> out) {
  const TokenBlock at = TokenBlock::of(shape, true);
  const std::int64_t first = shape.mixed_row(at.s, at.head, 0);
  const int matrix = shape.matrix(at.s.index, at.head);
  for_each_token(at, [&](int n) {
    const int slot = at.tokens.slot(n);
    T sum = 0;
    for (int j = lane_id(); j < at.s.blocks; j += 32) {
      const T weight = transposed ? shape.weight<T>(matrix, j, at.block) : shape.weight<T>(matrix, at.block, j);
      sum += weight * slots[(first + j) * shape.capacity + slot];
    }
    sum = warp_sum(sum);
    if (lane_id() == 0) out.at(at.s.batch, at.tokens[n], at.head) = sum + bias;
  });
}

// kLanes lanes per token, 16 bytes each at a time; enough of them for a whole row, up to a warp. With z~ given the
// denominators are found on the way.
template <typename E, int kLanes>
__global__ void normalized_gradient_kernel(const __grid_constant__ NormalizedGradientArgs<E> args) {
  using T = Accumulator<E>;
  constexpr int kVector = 16 / sizeof(E);
  const Shape& shape = args.shape;
  const TokenBlock at = TokenBlock::of(shape, true);
  const auto q = args.q.head(at.s.batch, at.head);
  const auto o = args.o.head(at.s.batch, at.head);
  const auto d_o = args.d_o.head(at.s.batch, at.head);
  const auto dU = args.dU.head(at.s.batch, at.head);
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int per_block = static_cast<int>(blockDim.x) / kLanes;
  const auto sum_lanes = [](T x) {
    for (int offset = kLanes / 2; offset > 0; offset /= 2) x += __shfl_xor_sync(0xffffffffu, x, offset);
    return x;
  };
  const auto load = [](const E* from, E(&to)[kVector], int left, bool vectors) {
    if (vectors) {
      *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(from);
    } else {
#pragma unroll
      for (int e = 0; e < kVector; ++e) to[e] = e < left ? from[e] : E(0.0F);
    }
  };
  // phi(x) = max(x, floor) + eps, without asking for every element.
  const bool is_max = shape.feature.map == FeatureMap::identity || shape.feature.map == FeatureMap::relu;
  const T floor = shape.feature.map == FeatureMap::relu ? T(0) : -static_cast<T>(INFINITY);
  const auto feature_eps = static_cast<T>(shape.feature.eps);
  T z[kVector] = {};  // zero past the keys
  const auto load_z = [&](int d) {
#pragma unroll
    for (int e = 0; e < kVector; ++e) z[e] = d + e < shape.key_dim ? args.z[at.row * shape.key_pad + d + e] : T(0);
  };
  if (args.z != nullptr && shape.key_dim <= kLanes * kVector) load_z(lane * kVector);
  const int first = static_cast<int>(blockIdx.y) * per_block;
  for (int base = first; base < at.tokens.count(); base += per_block * static_cast<int>(gridDim.y)) {
    const int n = base + static_cast<int>(threadIdx.x) / kLanes;
    const bool valid = n < at.tokens.count();
    const std::int64_t token = at.tokens[valid ? n : 0];
    alignas(16) E gradient[kVector] = {}, output[kVector] = {};
    const auto load_outputs = [&](int c) {
      load(d_o.row(token) + c, gradient, shape.value_dim - c, args.d_o.vectors);
      load(o.row(token) + c, output, shape.value_dim - c, args.o.vectors);
    };
    // Under way while the denominator is found.
    if (lane * kVector < shape.value_dim) load_outputs(lane * kVector);
    T denominator = 0;
    if (args.z != nullptr) {
      for (int d = lane * kVector; d < shape.key_dim; d += kLanes * kVector) {
        alignas(16) E x[kVector];
        load(q.row(token) + d, x, shape.key_dim - d, args.q.vectors);
        if (shape.key_dim > kLanes * kVector) load_z(d);
        if (is_max) {
#pragma unroll
          for (int e = 0; e < kVector; ++e) denominator += (at_least(floor, to_accumulator(x[e])) + feature_eps) * z[e];
        } else {
#pragma unroll
          for (int e = 0; e < kVector; ++e) denominator += shape.feature(to_accumulator(x[e])) * z[e];
        }
      }
      denominator = sum_lanes(denominator) * static_cast<T>(shape.scale) + static_cast<T>(shape.eps);
    } else {
      denominator = args.denominator.at(at.s.batch, token, at.head);
    }
    const T inverse = T(1) / denominator;
    T dot = 0;
    for (int c = lane * kVector; c < shape.value_dim; c += kLanes * kVector) {
      alignas(16) E scaled[kVector];
      if (c != lane * kVector) load_outputs(c);
#pragma unroll
      for (int e = 0; e < kVector; ++e) {
        dot += to_accumulator(gradient[e]) * to_accumulator(output[e]);
        scaled[e] = to_element<E>(to_accumulator(gradient[e]) * inverse);
      }
      if (!valid) continue;
      if (args.dU.vectors) {
        *reinterpret_cast<uint4*>(dU.row(token) + c) = *reinterpret_cast<const uint4*>(scaled);
      } else {
#pragma unroll
        for (int e = 0; e < kVector; ++e)
          if (c + e < shape.value_dim) dU.row(token)[c + e] = scaled[e];
      }
    }
    dot = sum_lanes(dot);
    if (valid && lane == 0) args.g.at(at.s.batch, token, at.head) = -dot * inverse;
  }
}

template <typename T>
__global__ void scatter_slots_kernel(const __grid_constant__ Shape shape, TokenScalars<const T> from, T* slots) {
  const TokenBlock at = TokenBlock::of(shape, true);
  for (int n = static_cast<int>(threadIdx.x); n < at.tokens.count(); n += static_cast<int>(blockDim.x))
    slots[at.row * shape.capacity + at.tokens.slot(n)] = from.at(at.s.batch, at.tokens[n], at.head);
}

// One warp per (sequence, head, i, b).
template <typename E>
__global__ void slot_pairs_kernel(const __grid_constant__ AuthorsGradientArgs<E> args) {
  using T = Accumulator<E>;
  const Shape& shape = args.shape;
  const std::int64_t M = shape.mixing_blocks;
  const std::int64_t element = static_cast<std::int64_t>(blockIdx.x) * kWarps + warp_id();
  if (element >= static_cast<std::int64_t>(shape.sequences) * shape.heads * M * M) return;
  const auto unit = static_cast<int>(element / (M * M));
  const SequenceRow s = shape.sequence(unit / shape.heads);
  const auto i = static_cast<int>(element / M % M), b = static_cast<int>(element % M);
  T sum = 0;
  if (i < s.blocks && b < s.blocks) {
    const std::int64_t first = shape.mixed_row(s, unit % shape.heads, 0);
    for (int w = lane_id(); w < shape.capacity; w += 32)
      sum += args.g_slots[(first + i) * shape.capacity + w] * args.slots[(first + b) * shape.capacity + w];
  }
  sum = warp_sum(sum);
  if (lane_id() == 0) args.pairs[element] = sum;
}

template <typename E>
__global__ void own_sums_kernel(const __grid_constant__ OwnSumsArgs<E> args) {
  using T = Accumulator<E>;
  const Shape& shape = args.shape;
  const TokenBlock at = TokenBlock::of(shape, false);
  const int d = static_cast<int>(threadIdx.x);
  if (d >= shape.key_pad) return;
  const int group = shape.heads / shape.kv_heads;
  T sum = 0;
  for (int h = 0; h < group; ++h)
    sum += args.from[shape.mixed_row(at.s, at.head * group + h, at.block) * shape.key_pad + d];
  if (args.d_final_z != nullptr && d < shape.key_dim) {
    const std::int64_t head = static_cast<std::int64_t>(at.s.index) * shape.kv_heads + at.head;
    sum += args.d_final_z[(head * shape.final_blocks + shape.initial_full + at.block) * shape.key_dim + d];
  }
  args.to[at.row * shape.key_pad + d] = sum;
}

template <typename E>
__global__ void spread_sums_kernel(const __grid_constant__ OwnSumsArgs<E> args) {
  const Shape& shape = args.shape;
  const TokenBlock at = TokenBlock::of(shape, true);
  const int d = static_cast<int>(threadIdx.x);
  if (d >= shape.key_pad) return;
  const std::int64_t from = shape.entry_row(at.s, at.head / (shape.heads / shape.kv_heads), shape.initial + at.block);
  args.to[at.row * shape.key_pad + d] = args.from[from * shape.key_pad + d];
}

template <typename E>
__global__ void separate_query_kernel(const __grid_constant__ SeparateGradientArgs<E> args) {
  using T = Accumulator<E>;
  const Shape& shape = args.shape;
  const TokenBlock at = TokenBlock::of(shape, true);
  const int kv_head = at.head / (shape.heads / shape.kv_heads);
  const bool pairs = shape.masking == Masking::token_causal;
  const int own = shape.initial_full + at.block;
  const T own_weight = pairs ? shape.weight<T>(shape.matrix(at.s.index, at.head), own, own) : T(0);
  const std::int64_t row = args.own ? shape.entry_row(at.s, kv_head, shape.initial + at.block) : at.row;
  const auto q = args.q.head(at.s.batch, at.head);
  const auto k = args.k.head(at.s.batch, kv_head);
  const auto d_q = args.d_q.head(at.s.batch, at.head);
  T diagonal = 0;
  for_each_token(at, [&](int n) {
    const std::int64_t token = at.tokens[n];
    const T g = args.g.at(at.s.batch, token, at.head) * static_cast<T>(shape.scale);
    for (int d = lane_id(); d < shape.key_dim; d += 32) {
      T keys = 0;
      for (int key = 0; pairs && key <= n; ++key) keys += shape.feature(to_accumulator(k.row(at.tokens[key])[d]));
      const T raw = to_accumulator(q.row(token)[d]);
      const T value = g * (args.q_vector[row * shape.key_pad + d] + own_weight * keys);
      d_q.row(token)[d] = to_element<E>(value * shape.feature.derivative(raw));
      diagonal += g * keys * shape.feature(raw);
    }
  });
  if (args.diagonal == nullptr) return;
  __shared__ T parts[kWarps];
  diagonal = warp_sum(diagonal);
  if (lane_id() == 0) parts[warp_id()] = diagonal;
  __syncthreads();
  if (threadIdx.x != 0) return;
  T sum = 0;
  for (const T part : parts) sum += part;
  args.diagonal[at.row * args.diagonal_parts + args.diagonal_part] = sum;
}

template <typename E>
__global__ void separate_key_kernel(const __grid_constant__ SeparateGradientArgs<E> args) {
  using T = Accumulator<E>;
  const Shape& shape = args.shape;
  const TokenBlock at = TokenBlock::of(shape, false);
  const int group = shape.heads / shape.kv_heads;
  const bool pairs = shape.masking == Masking::token_causal;
  const int own = shape.initial_full + at.block;
  const auto k = args.k.head(at.s.batch, at.head);
  const auto d_k = args.d_k.head(at.s.batch, at.head);
  for_each_token(at, [&](int n) {
    const std::int64_t token = at.tokens[n];
    for (int d = lane_id(); d < shape.key_dim; d += 32) {
      T value = args.dz[at.row * shape.key_pad + d];
      for (int head = at.head * group; pairs && head < (at.head + 1) * group; ++head) {
        const auto q = args.q.head(at.s.batch, head);
        const T weight = shape.weight<T>(shape.matrix(at.s.index, head), own, own) * static_cast<T>(shape.scale);
        for (int query = n; query < at.tokens.count(); ++query) {
          const std::int64_t other = at.tokens[query];
          value += weight * args.g.at(at.s.batch, other, head) * shape.feature(to_accumulator(q.row(other)[d]));
        }
      }
      d_k.row(token)[d] = to_element<E>(value * shape.feature.derivative(to_accumulator(k.row(token)[d])));
    }
  });
}

int row_threads(const Shape& shape) { return (shape.key_pad + 31) / 32 * 32; }

}  // namespace

template <typename E>
void sum_features(const FeatureSumArgs<E>& args, cudaStream_t stream) {
  const int heads = args.of_queries ? args.shape.heads : args.shape.kv_heads;
  launch("feature sums", feature_sum_kernel<E>, dim3(static_cast<unsigned>(args.shape.total_blocks * heads)),
         row_threads(args.shape), 0, stream, args);
}

template <typename E>
void denominators(const DenominatorArgs<E>& args, cudaStream_t stream) {
  using T = Accumulator<E>;
  const Shape& shape = args.shape;
  const dim3 grid = token_grid(shape, shape.heads);
  if (args.authors) {
    const auto bytes = sizeof(T) * static_cast<std::size_t>(shape.total_blocks) *
                       static_cast<std::size_t>(shape.heads) * static_cast<std::size_t>(shape.capacity);
    check(cudaMemsetAsync(args.slots, 0, bytes, stream), "clearing slots");
  }
  launch("denominators", denominator_kernel<E>, grid, kWarps * 32, 0, stream, args);
  if (args.authors) {
    launch("mixing of slots", mix_slots_kernel<T>, grid, kWarps * 32, 0, stream, shape,
           static_cast<const T*>(args.slots), false, static_cast<T>(shape.eps), args.denominator);
  }
}

template <typename E>
void normalized_gradient(const NormalizedGradientArgs<E>& args, cudaStream_t stream) {
  const Shape& shape = args.shape;
  const int vectors = (std::max(shape.key_dim, shape.value_dim) * static_cast<int>(sizeof(E)) + 15) / 16;
  const dim3 grid(static_cast<unsigned>(shape.total_blocks * shape.heads),
                  static_cast<unsigned>(std::clamp((shape.capacity + 127) / 128, 1, 64)));
  const auto run = [&](auto* kernel) {
    launch("gradient of the numerator", kernel, grid, kWarps * 32, 0, stream, args);
  };
  if (vectors <= 8)
    run(normalized_gradient_kernel<E, 8>);
  else if (vectors <= 16)
    run(normalized_gradient_kernel<E, 16>);
  else
    run(normalized_gradient_kernel<E, 32>);
}

template <typename E>
void authors_gradient(const AuthorsGradientArgs<E>& args, cudaStream_t stream) {
  using T = Accumulator<E>;
  const Shape& shape = args.shape;
  const auto rows = static_cast<std::int64_t>(shape.total_blocks) * shape.heads;
  check(cudaMemsetAsync(args.g_slots, 0, sizeof(T) * static_cast<std::size_t>(rows * shape.capacity), stream),
        "clearing slots");
  launch("slots of gradients", scatter_slots_kernel<T>, dim3(static_cast<unsigned>(rows)), kWarps * 32, 0, stream,
         shape, args.g, args.g_slots);
  launch("mixing of slots", mix_slots_kernel<T>, token_grid(shape, shape.heads), kWarps * 32, 0, stream, shape,
         static_cast<const T*>(args.g_slots), true, T(0), args.dy);
  if (args.pairs == nullptr) return;
  const std::int64_t elements =
      static_cast<std::int64_t>(shape.sequences) * shape.heads * shape.mixing_blocks * shape.mixing_blocks;
  launch("pairs of slots", slot_pairs_kernel<E>, grid_of("pairs of slots", (elements + kWarps - 1) / kWarps),
         kWarps * 32, 0, stream, args);
}

template <typename E>
void gather_own_sums(const OwnSumsArgs<E>& args, cudaStream_t stream) {
  launch("own sums", own_sums_kernel<E>, dim3(static_cast<unsigned>(args.shape.total_blocks * args.shape.kv_heads)),
         row_threads(args.shape), 0, stream, args);
}

template <typename E>
void spread_own_sums(const OwnSumsArgs<E>& args, cudaStream_t stream) {
  launch("own sums", spread_sums_kernel<E>, dim3(static_cast<unsigned>(args.shape.total_blocks * args.shape.heads)),
         row_threads(args.shape), 0, stream, args);
}

template <typename E>
void separate_gradient(const SeparateGradientArgs<E>& args, cudaStream_t stream) {
  dim3 grid = token_grid(args.shape, args.shape.heads);
  if (args.diagonal != nullptr) grid.y = 1;
  launch("gradient of q_den", separate_query_kernel<E>, grid, kWarps * 32, 0, stream, args);
  launch("gradient of k_den", separate_key_kernel<E>, token_grid(args.shape, args.shape.kv_heads), kWarps * 32, 0,
         stream, args);
}

#define MHLA_INSTANTIATE(E)                                                             \
  template void sum_features<E>(const FeatureSumArgs<E>&, cudaStream_t);                \
  template void denominators<E>(const DenominatorArgs<E>&, cudaStream_t);               \
  template void normalized_gradient<E>(const NormalizedGradientArgs<E>&, cudaStream_t); \
  template void authors_gradient<E>(const AuthorsGradientArgs<E>&, cudaStream_t);       \
  template void gather_own_sums<E>(const OwnSumsArgs<E>&, cudaStream_t);                \
  template void spread_own_sums<E>(const OwnSumsArgs<E>&, cudaStream_t);                \
  template void separate_gradient<E>(const SeparateGradientArgs<E>&, cudaStream_t);
MHLA_INSTANTIATE(__nv_bfloat16)
MHLA_INSTANTIATE(__half)
MHLA_INSTANTIATE(float)
MHLA_INSTANTIATE(double)
#undef MHLA_INSTANTIATE

}  // namespace mhla::cuda
