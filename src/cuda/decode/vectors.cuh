// Vectors of 16 bytes on their way between memory and registers, and sums over a warp.
#pragma once

#include <cstring>
#include <type_traits>

#include "cuda/support/element.cuh"
#include "cuda/support/tile.cuh"

namespace mhla::cuda::decode {

// Brings memory, a multiple of 16 bytes, into the L2 cache.
__device__ inline void prefetch([[maybe_unused]] const void* from, [[maybe_unused]] std::uint32_t bytes) {
#if __CUDA_ARCH__ >= 900
  if (bytes > 0) asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
#endif
}

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

// read_pack() of the same thread finds them in shared memory after copy_wait(); in words a copy cannot have, at once.
template <int V, typename X>
__device__ void copy_pack(X* to, const X* from) {
  constexpr int kBytes = V * sizeof(X);
  if constexpr (kBytes < 4) {
    *to = *from;
  } else {
    constexpr int kPart = kBytes < 16 ? kBytes : 16;
#pragma unroll
    for (int i = 0; i < kBytes / kPart; ++i)
      asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(shared_address(to) + i * kPart),
                   "l"(reinterpret_cast<const char*>(from) + i * kPart), "n"(kPart)
                   : "memory");
  }
}

// read_pack() of memory that is read once: it is the first to leave the caches.
template <int V, typename X>
__device__ Pack<X, V> read_once(const X* from) {
  using P = Pack<X, V>;
  if constexpr (sizeof(P) != sizeof(uint4)) {
    return read_pack<V>(from);
  } else {
    const uint4 words = __ldcs(reinterpret_cast<const uint4*>(from));
    P pack;
    memcpy(&pack, &words, sizeof pack);
    return pack;
  }
}

template <typename T, typename X, int V>
__device__ void unpack(const Pack<X, V>& pack, T (&to)[V]) {
  using P = Pack<X, V>;
#pragma unroll
  for (int w = 0; w < P::kWords; ++w) {
    if constexpr (std::is_same_v<X, __nv_bfloat16> && P::kInWord == 2) {  // the upper halves of floats
      to[2 * w] = __uint_as_float(pack.words[w] << 16);
      to[2 * w + 1] = __uint_as_float(pack.words[w] & 0xffff0000U);
    } else {
      X x[P::kInWord];
      memcpy(x, &pack.words[w], sizeof x);
#pragma unroll
      for (int i = 0; i < P::kInWord; ++i) to[w * P::kInWord + i] = to_accumulator(x[i]);
    }
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
__device__ T warp_sum(T x) {
  for (int offset = 16; offset > 0; offset /= 2) x += __shfl_xor_sync(0xffffffffU, x, offset);
  return x;
}

}  // namespace mhla::cuda::decode
