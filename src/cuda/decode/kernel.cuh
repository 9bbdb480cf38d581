// The kernels of decoding and their launch for one element type.
//
// A step is one launch for each block it can reach into: one for a single token. Every launch decides by the positions
// in device memory what there is to do, so the launches of a step are always the same.
//
// Bytes of a token and kv head: P (Dk Dv of A), the open block's rows of k and v, q, o. At D = 128 and blocks of 64
// that is 64 KiB of float32 + 16 KiB on average of bfloat16.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <limits>
#include <string>

#include "cuda/decode/close.cuh"
#include "cuda/decode/read.cuh"
#include "cuda/support/hopper/device.hpp"
#include "cuda/support/launch_early.hpp"

namespace mhla::cuda::decode {

// Whether this thread block is the last of `count` to get here; all threads get the answer.
__device__ inline bool last_to_arrive(std::int32_t* counter, int count) {
  __shared__ bool is_last;
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    is_last = atomicAdd(counter, 1) == count - 1;
    if (is_last) *counter = 0;
    __threadfence();
  }
  __syncthreads();
  return is_last;
}

// The piece's rows of k and v go to where later steps look for them.
template <typename E, typename A, int V, int D>
__device__ void append(const DecodeParams<E, A>& c, const Slice<E, V, D>& slice, const Piece& piece) {
  const auto thread = static_cast<int>(threadIdx.x);
  const int end = piece.filled + piece.count, column = slice.split * slice.width + thread;
  const std::int64_t first = static_cast<std::int64_t>(slice.group) * c.block_size + piece.filled;
  if (slice.split == 0)
    open_keys(c, slice, piece).template for_each<0>(piece.filled, end, 1, [&](int n, const E* k) {
      for (int d = thread; d < slice.key_dim; d += kThreads) c.k_rows[(first + n) * slice.key_dim + d] = k[d];
    });
  if (thread < slice.width && column < slice.value_dim)
    open_values(c, slice, piece).template for_each<0>(piece.filled, end, 1, [&](int n, const E* v) {
      c.v_rows[(first + n) * slice.value_dim + column] = v[column];
    });
}

// The last thread block of a batch row, by when all have read how many tokens there were, adds those of the step.
template <typename E, typename A>
__device__ void count_tokens(const DecodeParams<E, A>& c, std::int64_t batch, std::int32_t* counter) {
  __syncthreads();
  if (threadIdx.x != 0) return;
  const auto last = static_cast<unsigned>(c.kv_heads * c.layout.splits - 1);
  if (atomicInc(reinterpret_cast<unsigned*>(counter), last) == last) c.tokens[batch] += c.step_tokens;
}

// What the outputs do not wait for.
template <typename E, typename A, int V, int D>
__device__ void update_state(const DecodeParams<E, A>& c, const Slice<E, V, D>& slice, const Piece& piece,
                             Accumulator<E>* shared) {
  std::int32_t* const arrivals = c.arrivals + slice.batch * (std::int64_t{c.kv_heads} + 1);
  if (piece.count > 0) append(c, slice, piece);
  if (piece.count > 0 && piece.filled + piece.count == c.block_size) {
    const std::int64_t block = block_of(c, c.tokens[slice.batch]) + c.piece;
    close_summary(c, slice, piece, block, shared);
    mix_summaries(c, slice, block + 1);
    if (slice.splits == 1 || last_to_arrive(arrivals + slice.kv_head, slice.splits)) mix_sums(c, slice, block + 1);
  }
  if (c.is_last) count_tokens(c, slice.batch, arrivals + c.kv_heads);
}

// Registers for two thread blocks on a multiprocessor, whose 128 KiB of P in flight are more than the memory needs.
template <typename E, typename A, int V, int R, int D>
__global__ void __launch_bounds__(kThreads, 2) step_kernel(const __grid_constant__ DecodeParams<E, A> c) {
  extern __shared__ __align__(16) double shared[];
  // Only as far as the L2 cache, where what the work ahead may still write to it arrives as well.
  if (D > 0 && threadIdx.x == 0 && blockIdx.x < static_cast<unsigned>(c.at_once))
    prefetch(c.P + static_cast<std::int64_t>(blockIdx.x) * D * D, D * D * sizeof(A));
  wait_for_work_ahead();
  const Slice<E, V, D> slice(c);
  Piece piece;
  // The first piece has tokens: P is asked for before it is known where they are.
  if (D > 0 || c.piece == 0 || Piece(c, c.tokens[slice.batch]).count > 0)
    piece = Reader<E, A, V, R, D>(c, slice, shared).read();
  update_state(c, Slice<E, V, D>(c), piece, reinterpret_cast<Accumulator<E>*>(shared));
}

template <typename E, typename A, int V>
__global__ void __launch_bounds__(kThreads, 2) open_kernel(const __grid_constant__ DecodeParams<E, A> c) {
  const Slice<E, V> slice(c);
  const std::int64_t block = block_of(c, c.tokens[slice.batch]);
  mix_summaries(c, slice, block);
  if (slice.split == 0) mix_sums(c, slice, block);
}

template <typename E, typename A>
DecodeParams<E, A> make_params(const DecodeConfig& config, const DecodeArgs& args) {
  using T = Accumulator<E>;
  const DecodeMemory& memory = args.memory;
  DecodeParams<E, A> c{};
  c.heads = static_cast<int>(config.heads);
  c.kv_heads = static_cast<int>(config.kv_heads);
  c.mixed_heads = static_cast<int>(config.mixed_heads());
  c.layout.key_dim = static_cast<int>(config.key_dim);
  c.layout.value_dim = static_cast<int>(config.value_dim);
  c.block_size = static_cast<int>(config.block_size);
  c.mixing_per_head = config.mixing_per_head;
  c.queries = c.heads / c.mixed_heads;
  c.mixed_in_group = c.mixed_heads / c.kv_heads;
  c.by_kv_heads = Divider(c.kv_heads);
  c.by_queries = Divider(c.queries);
  c.by_block_size = Divider(c.block_size);
  c.policy = kept_blocks(config);
  c.feature = {config.options.feature_map, config.options.feature_eps};
  const bool is_relu = config.options.feature_map == FeatureMap::relu;
  c.is_floor = config.options.feature_eps == 0 && (is_relu || config.options.feature_map == FeatureMap::identity);
  c.floor = c.is_floor && is_relu ? T(0) : -std::numeric_limits<T>::infinity();
  c.scale = static_cast<T>(config.options.scale);
  c.eps = static_cast<T>(config.options.eps);
  c.mixing = static_cast<const T*>(args.mixing);
  c.q = args.q, c.k = args.k, c.v = args.v, c.o = args.o;
  c.S = static_cast<A*>(memory.S);
  c.P = static_cast<A*>(memory.P);
  c.diagonal = static_cast<T*>(memory.diagonal);
  c.folded_S = static_cast<T*>(memory.folded_S);
  if (config.options.normalizer != Normalizer::none) {
    c.z = static_cast<T*>(memory.z);
    c.P_z = static_cast<T*>(memory.P_z);
    c.folded_z = static_cast<T*>(memory.folded_z);
  }
  c.k_rows = static_cast<E*>(memory.k);
  c.v_rows = static_cast<E*>(memory.v);
  c.tokens = memory.tokens;
  c.arrivals = memory.arrivals;
  return c;
}

inline bool is_aligned(const void* data) { return reinterpret_cast<std::uintptr_t>(data) % 16 == 0; }

inline bool is_aligned(const ConstTensor& x, int elements) {
  return is_aligned(x.data) && x.batch_stride % elements == 0 && x.token_stride % elements == 0 &&
         x.head_stride % elements == 0;
}

// Whether everything a thread loads at once lies on vectors.
template <typename E, typename A>
bool fits_vectors(const DecodeParams<E, A>& c) {
  constexpr int kValues = 16 / sizeof(A), kKeys = 16 / sizeof(E);
  return c.layout.value_dim % kValues == 0 && c.layout.key_dim % kKeys == 0 && is_aligned(c.S) && is_aligned(c.P) &&
         is_aligned(c.folded_S) && is_aligned(c.k_rows) && is_aligned(c.v_rows) && is_aligned(c.k, kKeys) &&
         is_aligned(c.v, kValues);
}

// Two on each multiprocessor.
inline int blocks_at_once() {
  int device = 0, processors = 0;
  check(cudaGetDevice(&device), "decode");
  check(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device), "decode");
  return 2 * processors;
}

// Columns of a thread block: 128, fewer where there are few heads, down to 32 bytes in a row of P.
template <typename A>
int width_of(std::int64_t groups, int value_dim, int at_once) {
  int width = 1 << log2_ceil(std::min(value_dim, 128));
  while (groups * ((value_dim + width - 1) / width) < at_once && width * sizeof(A) > 32) width /= 2;
  return width;
}

// Lays the work out for threads of V columns; returns how many thread blocks there are.
template <int V, typename E, typename A>
unsigned lay_out(DecodeParams<E, A>& c, const DecodeConfig& config) {
  const std::int64_t groups = config.batch * config.kv_heads, size = config.key_dim * config.value_dim;
  c.at_once = blocks_at_once();
  c.layout = layout_of<E, V>(c.layout.key_dim, c.layout.value_dim, width_of<A>(groups, c.layout.value_dim, c.at_once));
  c.by_splits = Divider(c.layout.splits);
  if (groups * c.layout.splits >= (std::int64_t{1} << 31))
    throw Error("batch x kv_heads is " + std::to_string(groups) + "; decoding takes at most 2^31 / " +
                std::to_string(c.layout.splits));
  if (size >= (std::int64_t{1} << 31))
    throw Error("key_dim x value_dim is " + std::to_string(size) + "; decoding takes less than 2^31");
  return static_cast<unsigned>(groups * c.layout.splits);
}

template <typename E, typename A, int V, int R, int D = 0>
void launch_pieces(DecodeParams<E, A> c, unsigned blocks, cudaStream_t stream) {
  const ThreadLayout& l = c.layout;
  const int read = read_shared<V, R>(l.key_dim), closing = closing_rows(l.key_dim, l.width) * (l.key_dim + l.width);
  const std::size_t bytes = std::max(l.rows_bytes + read * sizeof(Accumulator<E>), closing * sizeof(Accumulator<E>));
  const auto pieces = static_cast<int>(most_pieces(c.step_tokens, c.block_size));
  const bool early = hopper::available();
  for (c.piece = 0; c.piece < pieces; ++c.piece) {
    c.is_last = c.piece + 1 == pieces;
    if (early)
      launch_early("decode step", step_kernel<E, A, V, R, D>, dim3(blocks), kThreads, bytes, stream, c);
    else
      launch("decode step", step_kernel<E, A, V, R, D>, dim3(blocks), kThreads, bytes, stream, c);
  }
}

template <typename E, typename A>
void step(const DecodeConfig& config, std::int64_t tokens, const DecodeArgs& args) {
  constexpr int kVector = 16 / sizeof(A);
  DecodeParams<E, A> c = make_params<E, A>(config, args);
  c.step_tokens = static_cast<int>(tokens);
  const auto stream = static_cast<cudaStream_t>(args.run.stream);
  if (!fits_vectors(c)) {
    const unsigned blocks = lay_out<1>(c, config);
    return launch_pieces<E, A, 1, 1>(c, blocks, stream);
  }
  const unsigned blocks = lay_out<kVector>(c, config);
  if (tokens * c.queries > 1) return launch_pieces<E, A, kVector, 4>(c, blocks, stream);
  const auto is_square = [&](int dim) {
    return c.layout.key_dim == dim && c.layout.value_dim == dim && c.layout.width == dim && c.mixed_in_group == 1;
  };
  if (is_square(128)) return launch_pieces<E, A, kVector, 1, 128>(c, blocks, stream);
  if (is_square(64)) return launch_pieces<E, A, kVector, 1, 64>(c, blocks, stream);
  launch_pieces<E, A, kVector, 1>(c, blocks, stream);
}

template <typename E, typename A>
void open(const DecodeConfig& config, const DecodeArgs& args) {
  DecodeParams<E, A> c = make_params<E, A>(config, args);
  c.k = c.v = {};
  const auto stream = static_cast<cudaStream_t>(args.run.stream);
  const auto launch_with = [&]<int V>() {
    const unsigned blocks = lay_out<V>(c, config);
    launch("decode open", open_kernel<E, A, V>, dim3(blocks), kThreads, 0, stream, c);
  };
  if (fits_vectors(c))
    launch_with.template operator()<16 / sizeof(A)>();
  else
    launch_with.template operator()<1>();
}

}  // namespace mhla::cuda::decode

#define MHLA_INSTANTIATE_DECODE(E, A)                                             \
  template void step<E, A>(const DecodeConfig&, std::int64_t, const DecodeArgs&); \
  template void open<E, A>(const DecodeConfig&, const DecodeArgs&);
