// What the decoding kernels share: their arguments, which part of the work a thread block has, vectors of 16 bytes.
#pragma once

#include <cstring>
#include <type_traits>

#include "core/decode.hpp"
#include "cuda/support/element.cuh"

namespace mhla::cuda::decode {

constexpr int kThreads = 128;

// E: elements; A: of S and P. Pointers and shapes as in DecodeMemory.
template <typename E, typename A>
struct Call {
  using T = Accumulator<E>;
  int heads, kv_heads, mixed_heads, key_dim, value_dim, block_size;
  bool mixing_per_head;
  DecodePolicy policy;
  Feature feature;
  T scale, eps;
  const T* mixing;
  ConstTensor q, k, v;
  Tensor o;
  A* S;
  T* z;
  A* P;
  T *P_z, *diagonal, *folded_S, *folded_z;
  E *k_rows, *v_rows;
  std::int64_t* tokens;
  std::int32_t* arrivals;

  int width, splits;       // columns of a thread block, a power of two; thread blocks of a kv head
  int key_lanes;           // threads that read a row of k together, a power of two up to 32
  int step_tokens, piece;  // tokens of the step; which of its pieces this launch is for
  bool is_last;            // piece

  __device__ int queries() const { return heads / mixed_heads; }            // that share a P
  __device__ int mixed_in_group() const { return mixed_heads / kv_heads; }  // P's that share S
};

// Asked again each time: what follows from it is not kept in registers from one use to the next.
__device__ inline int block_index() {
  int index;
  asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(index));
  return index;
}

// Thread blocks divide batch x kv heads x columns of v: S, P and v fall apart by columns, so no block waits for
// another. Inside, `lanes` threads with V columns each stand beside one another in `groups` groups, which divide the
// rows.
template <int V>
struct Slice {
  std::int64_t batch, group;  // group: batch x kv heads
  int kv_head, split, lanes, lane, groups, row, column;
  bool active;  // the columns exist

  template <typename E, typename A>
  __device__ explicit Slice(const Call<E, A>& c) {
    const int index = block_index();
    split = index % c.splits;
    group = index / c.splits;
    batch = index / c.splits / c.kv_heads;
    kv_head = index / c.splits % c.kv_heads;
    lanes = c.width / V;
    lane = static_cast<int>(threadIdx.x) % lanes;
    groups = kThreads / lanes;
    row = static_cast<int>(threadIdx.x) / lanes;
    column = split * c.width + lane * V;
    active = column < c.value_dim;
  }
};

// Rows of the open block: of earlier steps in the state, of this one in the input.
template <typename E>
struct OpenRows {
  const E* kept;
  const E* given;
  std::int64_t stride;
  int filled, dim;

  __device__ const E* operator[](int s) const {
    return s < filled ? kept + static_cast<std::int64_t>(s) * dim : given + (s - filled) * stride;
  }
};

// The part of a step that a thread block has.
template <typename E, int V>
struct Part {
  Slice<V> slice;
  DecodePiece piece;
  OpenRows<E> k, v;

  template <typename A>
  __device__ explicit Part(const Call<E, A>& c)
      : slice(c), piece(piece_of(c.tokens[slice.batch], c.step_tokens, c.block_size, c.piece)),
        k(rows(c, c.k_rows, c.k, c.key_dim)), v(rows(c, c.v_rows, c.v, c.value_dim)) {}

  template <typename A>
  __device__ bool closes(const Call<E, A>& c) const {
    return piece.count > 0 && piece.filled + piece.count == c.block_size;
  }

 private:
  template <typename A>
  __device__ OpenRows<E> rows(const Call<E, A>& c, const E* kept, const ConstTensor& x, int dim) const {
    return {kept + slice.group * c.block_size * dim,
            static_cast<const E*>(x.data) + slice.batch * x.batch_stride + piece.first * x.token_stride +
                slice.kv_head * x.head_stride,
            x.token_stride, static_cast<int>(piece.filled), dim};
  }
};

// V elements as they are loaded: in words, so that halves wait for their use two to a register.
template <typename X, int V>
struct alignas(V * sizeof(X) < 16 ? V * sizeof(X) : 16) Pack {
  static constexpr int kBytes = V * sizeof(X);
  using Word = std::conditional_t<kBytes % 8 == 0 && sizeof(X) == 8, std::uint64_t,
                                  std::conditional_t<kBytes % 4 == 0, std::uint32_t, std::uint16_t>>;
  static constexpr int kWords = kBytes / sizeof(Word), kInWord = sizeof(Word) / sizeof(X);
  Word words[kWords];
};

template <int V, typename X>
__device__ Pack<X, V> read_pack(const X* from) {
  return *reinterpret_cast<const Pack<X, V>*>(from);
}

// Brings what is read later closer, at the cost of no register.
__device__ inline void prefetch(const void* at) { asm volatile("prefetch.global.L2 [%0];" ::"l"(at)); }

template <typename T, typename X, int V>
__device__ void unpack(const Pack<X, V>& pack, T (&to)[V]) {
  using P = Pack<X, V>;
#pragma unroll
  for (int w = 0; w < P::kWords; ++w) {
    X x[P::kInWord];
    memcpy(x, &pack.words[w], sizeof x);
#pragma unroll
    for (int i = 0; i < P::kInWord; ++i) to[w * P::kInWord + i] = to_accumulator(x[i]);
  }
}

template <int V, typename X, typename T>
__device__ void load(const X* from, T (&to)[V]) {
  unpack(read_pack<V>(from), to);
}

template <int V, typename X, typename T>
__device__ void store(X* to, const T (&from)[V]) {
  using P = Pack<X, V>;
  P pack;
#pragma unroll
  for (int w = 0; w < P::kWords; ++w) {
    X x[P::kInWord];
#pragma unroll
    for (int i = 0; i < P::kInWord; ++i) x[i] = to_element<X>(from[w * P::kInWord + i]);
    memcpy(&pack.words[w], x, sizeof x);
  }
  *reinterpret_cast<P*>(to) = pack;
}

template <typename T>
__device__ T warp_sum(T x, int lanes = 32) {
  for (int offset = lanes / 2; offset > 0; offset /= 2) x += __shfl_xor_sync(0xffffffffU, x, offset);
  return x;
}

}  // namespace mhla::cuda::decode
