// Rows of the fused operators on CUDA: who holds which elements, reading, writing, sums along a row and over rows.
//
// A row is cut into chunks (a 16-byte vector, or two for a rotation) that stay in registers from the first reading to
// the writing: K per thread. Rows that a warp can hold share a block of 256 threads; a longer row has a block of its
// own. Kernels with K = 0 read a chunk again whenever they need it and keep their sums in memory; with vectors of one
// element they serve every width and alignment.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <type_traits>

#include "core/fused_rows.hpp"
#include "cuda/support/element.cuh"
#include "cuda/support/launch.hpp"

namespace mhla::cuda::rows {

using fused::Rows;
using fused::Slots;

constexpr int kWarp = 32;
constexpr int kSharedBlock = 256;   // threads of a block with several rows
constexpr int kLargestBlock = 512;  // leaves a thread 128 registers
constexpr unsigned kAllLanes = 0xffffffffU;

// V elements, moved 16 bytes at a time where there are that many.
template <typename Element, int V>
struct alignas(V * sizeof(Element) < 16 ? V * sizeof(Element) : 16) Pack {
  Element at[V];
};

template <int V, typename Element, typename T>
__device__ __forceinline__ void load(const Element* from, T* values) {
  const auto pack = *reinterpret_cast<const Pack<Element, V>*>(from);
#pragma unroll
  for (int i = 0; i < V; ++i) values[i] = static_cast<T>(to_accumulator(pack.at[i]));
}

template <int V, typename Element, typename T>
__device__ __forceinline__ void store(Element* to, const T* values) {
  Pack<Element, V> pack;
#pragma unroll
  for (int i = 0; i < V; ++i) pack.at[i] = to_element<Element>(static_cast<Accumulator<Element>>(values[i]));
  *reinterpret_cast<Pack<Element, V>*>(to) = pack;
}

// The same for an element type known at run time (double beside double only); `otherwise` where nothing is given.
template <int V, typename T>
__device__ __forceinline__ void load_any(const void* data, DType dtype, std::int64_t at, T otherwise, T* values) {
  if (data == nullptr) {
#pragma unroll
    for (int i = 0; i < V; ++i) values[i] = otherwise;
    return;
  }
  switch (dtype) {
    case DType::f32:
      return load<V>(static_cast<const float*>(data) + at, values);
    case DType::f64:
      if constexpr (std::is_same_v<T, double>) load<V>(static_cast<const double*>(data) + at, values);
      return;
    case DType::bf16:
      return load<V>(static_cast<const __nv_bfloat16*>(data) + at, values);
    case DType::f16:
      return load<V>(static_cast<const __half*>(data) + at, values);
  }
}

template <int V, typename T>
__device__ __forceinline__ void store_any(void* data, DType dtype, std::int64_t at, const T* values) {
  switch (dtype) {
    case DType::f32:
      return store<V>(static_cast<float*>(data) + at, values);
    case DType::f64:
      if constexpr (std::is_same_v<T, double>) store<V>(static_cast<double*>(data) + at, values);
      return;
    case DType::bf16:
      return store<V>(static_cast<__nv_bfloat16*>(data) + at, values);
    case DType::f16:
      return store<V>(static_cast<__half*>(data) + at, values);
  }
}

// 64-bit division is slow, and almost never needed.
__device__ __forceinline__ void divide(std::int64_t a, std::int64_t b, std::int64_t& quotient, std::int64_t& rest) {
  if (((a | b) >> 32) == 0) {
    const auto q = static_cast<std::uint32_t>(a) / static_cast<std::uint32_t>(b);
    quotient = q;
    rest = static_cast<std::uint32_t>(a) - q * static_cast<std::uint32_t>(b);
  } else {
    quotient = a / b;
    rest = a - quotient * b;
  }
}

// How rows are spread over threads.
struct Geometry {
  std::int64_t batch, rows, tiles;  // rows and blocks of rows of one batch row
  std::int64_t heads, dim, width;
  int chunks;   // of a row
  int threads;  // of a row: a power of two up to 32, or a multiple of 32
  int rows_per_block;
  bool whole_tokens;

  int block() const { return threads * rows_per_block; }
};

// `chunks_per_thread` is K; 0 for the kernels that read again.
inline Geometry make_geometry(const Rows& rows, int chunks, int chunks_per_thread) {
  Geometry g{};
  g.batch = rows.batch;
  g.rows = rows.per_batch();
  g.heads = rows.heads;
  g.dim = rows.dim;
  g.width = rows.width();
  g.chunks = chunks;
  g.whole_tokens = rows.whole_tokens;
  g.rows_per_block = 1;
  if (chunks_per_thread == 0) {
    g.threads = std::min(kSharedBlock, (chunks + kWarp - 1) / kWarp * kWarp);
  } else if (chunks <= chunks_per_thread * kWarp) {
    g.threads = 1;
    while (g.threads * chunks_per_thread < chunks) g.threads *= 2;
    g.rows_per_block = kSharedBlock / g.threads;
  } else {
    const int needed = (chunks + chunks_per_thread - 1) / chunks_per_thread;
    g.threads = (needed + kWarp - 1) / kWarp * kWarp;
  }
  g.tiles = (g.rows + g.rows_per_block - 1) / g.rows_per_block;
  return g;
}

// The row a thread has a part of.
struct ThreadRow {
  std::int64_t batch, token, head;
  bool active;  // the last tile of a batch row may have fewer rows
};

__device__ __forceinline__ int lane_of(const Geometry& g) {
  return g.rows_per_block == 1 ? static_cast<int>(threadIdx.x) : static_cast<int>(threadIdx.x) & (g.threads - 1);
}

__device__ __forceinline__ ThreadRow row_of_thread(const Geometry& g, std::int64_t batch, std::int64_t tile) {
  const int group = g.rows_per_block == 1 ? 0 : static_cast<int>(threadIdx.x) / g.threads;
  const std::int64_t number = tile * g.rows_per_block + group;
  ThreadRow row{batch, number, 0, number < g.rows};
  if (!g.whole_tokens) divide(number, g.heads, row.token, row.head);
  return row;
}

template <typename Pointer>
__device__ __forceinline__ std::int64_t offset_of(const BasicTensor<Pointer>& tensor, const ThreadRow& row) {
  return row.batch * tensor.batch_stride + row.token * tensor.token_stride + row.head * tensor.head_stride;
}

// visit(slot of the register array, chunk) for the chunks of this thread.
template <int K, typename Visit>
__device__ __forceinline__ void for_each_chunk(const Geometry& g, int lane, Visit&& visit) {
  if constexpr (K == 0) {
    for (int chunk = lane; chunk < g.chunks; chunk += g.threads) visit(0, chunk);
  } else {
#pragma unroll
    for (int k = 0; k < K; ++k) {
      const int chunk = lane + k * g.threads;
      if (chunk < g.chunks) visit(k, chunk);
    }
  }
}

template <int K>
constexpr int kHeld = K == 0 ? 1 : K;  // chunks in registers
template <int K>
constexpr int kMostThreads = K == 2 ? kLargestBlock : kSharedBlock;

// A chunk of one vector: `column` in the row, element d of head `head` of the row.
struct VectorChunk {
  int column, head, d;

  template <typename Pointer>
  __device__ __forceinline__ std::int64_t in(const BasicTensor<Pointer>& tensor) const {
    return head * tensor.head_stride + d;
  }
};

template <int V>
__device__ __forceinline__ VectorChunk vector_chunk(const Geometry& g, int chunk) {
  const int column = chunk * V;
  const int head = g.whole_tokens ? column / static_cast<int>(g.dim) : 0;
  return {column, head, column - head * static_cast<int>(g.dim)};
}

// Sums over the threads of a row; each of them gets the result. Every thread of the block takes part.
template <int kCount, typename T>
__device__ __forceinline__ void row_sum(const Geometry& g, T (&values)[kCount]) {
  const int width = g.threads < kWarp ? g.threads : kWarp;
  for (int offset = width / 2; offset > 0; offset /= 2)
#pragma unroll
    for (int i = 0; i < kCount; ++i) values[i] += __shfl_xor_sync(kAllLanes, values[i], offset);
  if (g.threads <= kWarp) return;
  __shared__ T of_warps[kCount][kLargestBlock / kWarp];
  const int warps = g.threads / kWarp;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    if (threadIdx.x % kWarp == 0) of_warps[i][threadIdx.x / kWarp] = values[i];
    values[i] = T(0);
  }
  __syncthreads();
  for (int warp = 0; warp < warps; ++warp)
#pragma unroll
    for (int i = 0; i < kCount; ++i) values[i] += of_warps[i][warp];
  __syncthreads();
}

// Adds up, over the rows of a block, what its threads have summed for their columns, and writes the block's slot
// [width]. column(k, i) is the column of sums[k][i], or -1. `shared` holds [warps, width] where rows share a block.
template <int K, int kElements, typename T, typename Column>
__device__ __forceinline__ void write_slot(const Geometry& g, T (&sums)[K][kElements], T* slot, T* shared,
                                           Column&& column) {
  const bool apart = g.rows_per_block > 1;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
#pragma unroll
  for (int k = 0; k < K; ++k)
#pragma unroll
    for (int i = 0; i < kElements; ++i) {
      T value = sums[k][i];
      if (apart)
        for (int offset = g.threads; offset < kWarp; offset *= 2) value += __shfl_xor_sync(kAllLanes, value, offset);
      const std::int64_t at = column(k, i);
      if (at < 0) continue;
      if (!apart)
        slot[at] = value;
      else if (static_cast<int>(threadIdx.x) % kWarp < g.threads)
        shared[warp * g.width + at] = value;
    }
  if (!apart) return;
  __syncthreads();
  for (std::int64_t at = threadIdx.x; at < g.width; at += blockDim.x) {
    T total = T(0);
    for (int w = 0; w < kSharedBlock / kWarp; ++w) total += shared[w * g.width + at];
    slot[at] = total;
  }
  __syncthreads();
}

template <typename T>
std::size_t shared_bytes(const Geometry& g) {
  return g.rows_per_block > 1 ? kSharedBlock / kWarp * static_cast<std::size_t>(g.width) * sizeof(T) : 0;
}

// Sum of term(slot) over [0, count) by the 32 rows of a block of 32 x 32 threads; threads of row 0 get the result.
template <typename T, typename Term>
__device__ __forceinline__ T slot_sum(std::int64_t count, Term&& term) {
  __shared__ T sums[kWarp][kWarp + 1];
  T sum = T(0);
#pragma unroll 4
  for (std::int64_t slot = threadIdx.y; slot < count; slot += kWarp) sum += term(slot);
  __syncthreads();
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0) return T(0);
  sum = T(0);
  for (int row = 0; row < kWarp; ++row) sum += sums[row][threadIdx.x];
  return sum;
}

inline unsigned grid_of(std::int64_t blocks, const char* what) {
  if (blocks > 0x7fffffff) throw Error(std::string(what) + ": x has too many rows for one launch");
  return static_cast<unsigned>(blocks);
}

// Whether vectors of 16 bytes, V elements, can be used.
inline bool aligned(const void* data) { return reinterpret_cast<std::uintptr_t>(data) % 16 == 0; }

template <typename Pointer>
bool vectorisable(const BasicTensor<Pointer>& tensor, int V) {
  return tensor.data == nullptr || (aligned(tensor.data) && tensor.batch_stride % V == 0 &&
                                    tensor.token_stride % V == 0 && tensor.head_stride % V == 0);
}
template <typename Pointer>
bool vectorisable(const fused::BasicVector<Pointer>& vector) {
  return aligned(vector.data);
}

template <typename Element>
constexpr int kVector = 16 / sizeof(Element);

// Calls launch.operator()<Element, V, K>() with the variant that fits. `chunks` are the vectorised chunks of a row, of
// which a thread takes one where a block of `few` threads is enough, else two.
template <typename Launch>
void with_variant(DType dtype, bool vectorised, std::int64_t chunks, int few, Launch&& launch) {
  const auto typed = [&]<typename Element>() {
    if (!vectorised)
      launch.template operator()<Element, 1, 0>();
    else if (chunks <= few)
      launch.template operator()<Element, kVector<Element>, 1>();
    else if (chunks <= 2 * kLargestBlock)
      launch.template operator()<Element, kVector<Element>, 2>();
    else
      launch.template operator()<Element, kVector<Element>, 0>();
  };
  switch (dtype) {
    case DType::f32:
      return typed.template operator()<float>();
    case DType::f64:
      return typed.template operator()<double>();
    case DType::bf16:
      return typed.template operator()<__nv_bfloat16>();
    case DType::f16:
      return typed.template operator()<__half>();
  }
}

inline int vector_elements(DType dtype) { return static_cast<int>(16 / element_size(dtype)); }

}  // namespace mhla::cuda::rows
