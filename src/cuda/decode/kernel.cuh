// The kernels of decoding and their launch for one element type.
//
// A step is one launch for each block it can reach into: one for a single token. Every launch decides by the positions
// in device memory what there is to do, so the launches of a step are always the same.
//
// Bytes of a token and kv head: P (Dk Dv of A), the open block's rows of k and v, q, o. At D = 128 and blocks of 64
// that is 32 KiB + 16 KiB on average in bfloat16. Thread blocks of the same kv head read the rows of k again, from the
// L2 cache.
#pragma once

#include <cuda_runtime.h>

#include <bit>
#include <string>

#include "cuda/decode/close.cuh"
#include "cuda/decode/read.cuh"
#include "cuda/support/launch.hpp"

namespace mhla::cuda::decode {

// Whether this thread block is the last of `count` to get here; all threads get the answer.
__device__ inline bool last_to_arrive(std::int32_t* counter, int count) {
  __shared__ bool is_last;
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    is_last = atomicAdd(counter, 1) == count - 1;
    if (is_last) *counter = 0;
  }
  __syncthreads();
  return is_last;
}

// The piece's rows of k and v go to where later steps look for them.
template <typename E, typename A, int V>
__device__ void append(const Call<E, A>& c, const Part<E, V>& part) {
  const auto& [slice, piece, k, v] = part;
  const std::int64_t first = slice.group * c.block_size + piece.filled;
  const int count = static_cast<int>(piece.count);
  if (slice.split == 0)
    for (int x = static_cast<int>(threadIdx.x); x < count * c.key_dim; x += kThreads)
      c.k_rows[first * c.key_dim + x] = k[k.filled + x / c.key_dim][x % c.key_dim];
  for (int x = static_cast<int>(threadIdx.x); x < count * c.width; x += kThreads) {
    const int t = x / c.width, column = slice.split * c.width + x % c.width;
    if (column < c.value_dim) c.v_rows[(first + t) * c.value_dim + column] = v[v.filled + t][column];
  }
}

// The last thread block of a batch row, by when all have read how many tokens there were, adds those of the step.
template <typename E, typename A>
__device__ void count_tokens(const Call<E, A>& c, std::int64_t batch, std::int32_t* counter) {
  __syncthreads();
  if (threadIdx.x != 0) return;
  const auto last = static_cast<unsigned>(c.kv_heads * c.splits - 1);
  if (atomicInc(reinterpret_cast<unsigned*>(counter), last) == last) c.tokens[batch] += c.step_tokens;
}

// What the outputs do not wait for.
template <typename E, typename A, int V>
__device__ void update_state(const Call<E, A>& c) {
  const Part<E, V> part(c);
  const auto& [slice, piece, k, v] = part;
  if (piece.count > 0) append(c, part);
  std::int32_t* const arrivals = c.arrivals + slice.batch * (c.kv_heads + 1);
  if (part.closes(c)) {
    close_summary(c, slice, piece.block, k, v);
    mix_summaries(c, slice, piece.block + 1);
    if (last_to_arrive(arrivals + slice.kv_head, c.splits)) {
      close_sums(c, slice.group, piece.block, k);
      mix_sums(c, slice.group, piece.block + 1);
    }
  }
  if (c.is_last) count_tokens(c, slice.batch, arrivals + c.kv_heads);
}

// Registers for four thread blocks on a multiprocessor when one row is read at a time, three with four rows: at 16 KiB
// of P each, more in flight than the memory needs. Without the bound ptxas takes 161 and leaves room for three.
template <typename E, typename A, int V, int R>
__global__ void __launch_bounds__(kThreads, R == 1 ? 4 : 3) step_kernel(const __grid_constant__ Call<E, A> c) {
  extern __shared__ double shared[];
  const Part<E, V> part(c);
  if (part.piece.count == 0 && !c.is_last) return;
  if (part.piece.count > 0) {
    Reader<E, A, V, R> reader(c, part, reinterpret_cast<Accumulator<E>*>(shared));
    for (int m = 0; m < c.mixed_in_group(); ++m) reader.read(m);
  }
  update_state<E, A, V>(c);
}

template <typename E, typename A, int V>
__global__ void __launch_bounds__(kThreads) open_kernel(const __grid_constant__ Call<E, A> c) {
  const Slice<V> slice(c);
  const std::int64_t block = c.tokens[slice.batch] / c.block_size;
  mix_summaries(c, slice, block);
  if (slice.split == 0) mix_sums(c, slice.group, block);
}

template <typename E, typename A>
Call<E, A> make_call(const DecodeConfig& config, const DecodeArgs& args) {
  using T = Accumulator<E>;
  const DecodeMemory& memory = args.memory;
  Call<E, A> c{};
  c.heads = static_cast<int>(config.heads);
  c.kv_heads = static_cast<int>(config.kv_heads);
  c.mixed_heads = static_cast<int>(config.mixed_heads());
  c.key_dim = static_cast<int>(config.key_dim);
  c.value_dim = static_cast<int>(config.value_dim);
  c.block_size = static_cast<int>(config.block_size);
  c.mixing_per_head = config.mixing_per_head;
  c.policy = policy_of(config);
  c.feature = {config.options.feature_map, config.options.feature_eps};
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
bool fits_vectors(const Call<E, A>& c) {
  constexpr int kValues = 16 / sizeof(A), kKeys = 16 / sizeof(E);
  return c.value_dim % kValues == 0 && c.key_dim % kKeys == 0 && is_aligned(c.S) && is_aligned(c.P) &&
         is_aligned(c.folded_S) && is_aligned(c.k_rows) && is_aligned(c.v_rows) && is_aligned(c.k, kKeys) &&
         is_aligned(c.v, kValues);
}

// 64 columns, so that a thread has all its part of P on its way at once (bfloat16, Dk = 128); narrower where there are
// few heads, for four thread blocks on each multiprocessor, down to 32 bytes in a row of P.
template <typename A>
unsigned divide_columns(std::int64_t groups, int value_dim, int& width, int& splits) {
  int device = 0, processors = 0;
  check(cudaGetDevice(&device), "decode");
  check(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device), "decode");
  const auto splits_of = [&](int columns) { return (value_dim + columns - 1) / columns; };
  width = static_cast<int>(std::bit_ceil(static_cast<unsigned>(value_dim < 64 ? value_dim : 64)));
  while (groups * splits_of(width) < 4 * processors && width * sizeof(A) > 32) width /= 2;
  splits = splits_of(width);
  const std::int64_t blocks = groups * splits;
  if (blocks >= (std::int64_t{1} << 31))
    throw Error("batch x kv_heads is " + std::to_string(groups) + "; decoding takes at most 2^31 / " +
                std::to_string(splits));
  return static_cast<unsigned>(blocks);
}

template <typename E, typename A, int V, int R>
void launch_pieces(Call<E, A> c, unsigned blocks, cudaStream_t stream) {
  constexpr int kKeys = V == 1 ? 1 : static_cast<int>(16 / sizeof(E));
  const unsigned lanes = std::bit_ceil(static_cast<unsigned>((c.key_dim + kKeys - 1) / kKeys));
  c.key_lanes = static_cast<int>(lanes < 32 ? lanes : 32);
  const auto pieces = static_cast<int>(most_pieces(c.step_tokens, c.block_size));
  for (c.piece = 0; c.piece < pieces; ++c.piece) {
    c.is_last = c.piece + 1 == pieces;
    launch("decode step", step_kernel<E, A, V, R>, dim3(blocks), kThreads,
           read_shared<V, R>(c.key_dim) * sizeof(Accumulator<E>), stream, c);
  }
}

template <typename E, typename A>
void step(const DecodeConfig& config, std::int64_t tokens, const DecodeArgs& args) {
  constexpr int kVector = 16 / sizeof(A);
  Call<E, A> c = make_call<E, A>(config, args);
  const unsigned blocks = divide_columns<A>(config.batch * config.kv_heads, c.value_dim, c.width, c.splits);
  c.step_tokens = static_cast<int>(tokens);
  const auto stream = static_cast<cudaStream_t>(args.run.stream);
  if (!fits_vectors(c)) return launch_pieces<E, A, 1, 1>(c, blocks, stream);
  if (tokens * c.heads / c.mixed_heads > 1) return launch_pieces<E, A, kVector, 4>(c, blocks, stream);
  launch_pieces<E, A, kVector, 1>(c, blocks, stream);
}

template <typename E, typename A>
void open(const DecodeConfig& config, const DecodeArgs& args) {
  Call<E, A> c = make_call<E, A>(config, args);
  c.k = c.v = {};
  const unsigned blocks = divide_columns<A>(config.batch * config.kv_heads, c.value_dim, c.width, c.splits);
  const auto stream = static_cast<cudaStream_t>(args.run.stream);
  if (fits_vectors(c))
    launch("decode open", open_kernel<E, A, 16 / sizeof(A)>, dim3(blocks), kThreads, 0, stream, c);
  else
    launch("decode open", open_kernel<E, A, 1>, dim3(blocks), kThreads, 0, stream, c);
}

}  // namespace mhla::cuda::decode

#define MHLA_INSTANTIATE_DECODE(E, A)                                             \
  template void step<E, A>(const DecodeConfig&, std::int64_t, const DecodeArgs&); \
  template void open<E, A>(const DecodeConfig&, const DecodeArgs&);
