// Warp-level matrix products. Every policy gives a warp the same accumulator layout, that of mma.m16n8: of a 16 x 8
// tile, lane l holds rows l / 4 and l / 4 + 8, columns 2 (l % 4) and 2 (l % 4) + 1. Kernels are written once against
// this interface:
//
//   Element, Accumulator   types in shared memory and in registers
//   kStep                  contraction length of one mma()
//   A, B                   fragments of a 16 x kStep and a kStep x 8 tile
//   load_a<kTransposed>    from a tile stored [m][k], or [k][m] when transposed
//   load_b<kTransposed>    two neighbouring n8 tiles, from a tile stored [n][k], or [k][n] when transposed
//   clamp                  max(x, floor) over a fragment: phi where it is the identity or relu
//   chain                  accumulators of a product, rounded to elements, as the A of the next one
//   column, ones           a vector as the B of a product; column_sum() of what mma() makes of it, in full precision
#pragma once

#include "cuda/support/element.cuh"

namespace mhla::cuda {

__device__ inline int lane_id() { return static_cast<int>(threadIdx.x & 31); }

__device__ inline std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

// bfloat16 or half on the tensor cores.
template <typename E>
struct HalfMath {
  using Element = E;
  using Accumulator = float;
  static constexpr int kStep = 16;
  struct A {
    std::uint32_t r[4];
  };
  struct B {
    std::uint32_t r[2];
  };

  template <bool kTransposed>
  __device__ static void load_a(A& a, const E* tile, int pitch, int m, int k) {
    const int lane = lane_id();
    const E* at = kTransposed ? tile + (k + (lane & 7) + (lane >> 4) * 8) * pitch + m + ((lane >> 3) & 1) * 8
                              : tile + (m + (lane & 15)) * pitch + k + (lane >> 4) * 8;
    load_matrices<kTransposed>(a.r, at);
  }

  template <bool kTransposed>
  __device__ static void load_b(B (&b)[2], const E* tile, int pitch, int n, int k) {
    const int lane = lane_id();
    const E* at = kTransposed ? tile + (k + (lane & 15)) * pitch + n + (lane >> 4) * 8
                              : tile + (n + (lane & 7) + (lane >> 4) * 8) * pitch + k + ((lane >> 3) & 1) * 8;
    std::uint32_t r[4];
    load_matrices<kTransposed>(r, at);
    b[0] = {{r[0], r[1]}};
    b[1] = {{r[2], r[3]}};
  }

  __device__ static void mma(float (&c)[4], const A& a, const B& b) {
    if constexpr (sizeof(E) == 2 && std::is_same_v<E, __nv_bfloat16>) {
      asm volatile(
          "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
          : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
          : "r"(a.r[0]), "r"(a.r[1]), "r"(a.r[2]), "r"(a.r[3]), "r"(b.r[0]), "r"(b.r[1]));
    } else {
      asm volatile(
          "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
          : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
          : "r"(a.r[0]), "r"(a.r[1]), "r"(a.r[2]), "r"(a.r[3]), "r"(b.r[0]), "r"(b.r[1]));
    }
  }

  // max(x, floor), NaN kept.
  __device__ static void clamp(A& a, float floor) {
#pragma unroll
    for (std::uint32_t& r : a.r) r = maximum(r, pack(floor, floor));
  }
  __device__ static void clamp(B& b, float floor) {
#pragma unroll
    for (std::uint32_t& r : b.r) r = maximum(r, pack(floor, floor));
  }

  __device__ static A chain(const float (*c)[4]) {
    return {{pack(c[0][0], c[0][1]), pack(c[0][2], c[0][3]), pack(c[1][0], c[1][1]), pack(c[1][2], c[1][3])}};
  }

  // Half has few exponents, so sums and gradients of denominators would overflow as elements: its columns stay float,
  // those of a lane's elements of A, and mma() with one is sums of products.
  static constexpr bool kFloatColumn = std::is_same_v<E, __half>;
  struct FloatColumn {
    float x[4];
  };
  using Column = std::conditional_t<kFloatColumn, FloatColumn, B>;

  template <typename Value>
  __device__ static Column column(Value&& value) {
    if constexpr (kFloatColumn) {
      const int k = (lane_id() & 3) * 2;
      return {{value(k), value(k + 1), value(k + 8), value(k + 9)}};
    } else {
      return two_columns(value);
    }
  }
  __device__ static B ones() {
    return two_columns([](int) { return 1.0F; });
  }
  __device__ static void mma(float (&c)[4], const A& a, const FloatColumn& column) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const auto& pair = reinterpret_cast<const E(&)[2]>(a.r[i]);
#pragma unroll
      for (int n = 0; n < 2; ++n) c[i % 2 * 2] += to_accumulator(pair[n]) * column.x[i / 2 * 2 + n];
    }
  }
  // The same from memory: beside a tile [k][n], in the 16 bytes that keep its rows apart.
  static constexpr bool kColumnBesideTile = true;
  __device__ static void put_column(E* at, float value) {
    if constexpr (kFloatColumn) {
      *reinterpret_cast<float*>(at) = value;
    } else {
      const float high = to_accumulator(to_element<E>(value));
      *reinterpret_cast<uint4*>(at) = make_uint4(pack(high, value - high), 0, 0, 0);
    }
  }
  __device__ static void load_column(Column& column, const E* at, int pitch, int k) {
    if constexpr (kFloatColumn) {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        column.x[i] = *reinterpret_cast<const float*>(at + (k + (lane_id() & 3) * 2 + i / 2 * 8 + i % 2) * pitch);
    } else {
      asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];"
                   : "=r"(column.r[0]), "=r"(column.r[1])
                   : "r"(shared_address(at + (k + (lane_id() & 15)) * pitch))
                   : "memory");
    }
  }
  // Sums of the product with column() or ones(), for rows l / 4 and l / 4 + 8, valid in every lane.
  __device__ static float column_sum(const float (&c)[4], int half) {
    float own = c[half * 2] + c[half * 2 + 1];
    if constexpr (kFloatColumn) {
      own += __shfl_xor_sync(0xffffffffu, own, 1);
      return own + __shfl_xor_sync(0xffffffffu, own, 2);
    } else {
      return __shfl_sync(0xffffffffu, own, lane_id() & ~3);
    }
  }

 private:
  // A vector as the B of one n8 tile: value(k) in the first column, zeros elsewhere. What rounding to an element loses
  // sits in the second column, so that the sum of the two has the precision of the accumulator.
  template <typename Value>
  __device__ static B two_columns(Value&& value) {
    const int lane = lane_id();
    const int n = lane >> 2;
    B b{{0, 0}};
    if (n > 1) return b;
    for (int half = 0; half < 2; ++half) {
      const int k = (lane & 3) * 2 + half * 8;
      float x = value(k), y = value(k + 1);
      if (n == 1) {
        x -= to_accumulator(to_element<E>(x));
        y -= to_accumulator(to_element<E>(y));
      }
      b.r[half] = pack(x, y);
    }
    return b;
  }
  template <bool kTransposed>
  __device__ static void load_matrices(std::uint32_t (&r)[4], const E* at) {
    if constexpr (kTransposed) {
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                   : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                   : "r"(shared_address(at))
                   : "memory");
    } else {
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                   : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                   : "r"(shared_address(at))
                   : "memory");
    }
  }
  __device__ static std::uint32_t pack(float low, float high) {
    if constexpr (std::is_same_v<E, __nv_bfloat16>) {
      const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
      return reinterpret_cast<const std::uint32_t&>(pair);
    } else {
      const __half2 pair = __floats2half2_rn(low, high);
      return reinterpret_cast<const std::uint32_t&>(pair);
    }
  }
  __device__ static std::uint32_t maximum(std::uint32_t x, std::uint32_t y) {
    if constexpr (std::is_same_v<E, __nv_bfloat16>) {
      const auto z =
          __hmax2_nan(reinterpret_cast<const __nv_bfloat162&>(x), reinterpret_cast<const __nv_bfloat162&>(y));
      return reinterpret_cast<const std::uint32_t&>(z);
    } else {
      const auto z = __hmax2_nan(reinterpret_cast<const __half2&>(x), reinterpret_cast<const __half2&>(y));
      return reinterpret_cast<const std::uint32_t&>(z);
    }
  }
};

// float on the tensor cores, operands rounded to TF32. The contraction index of a fragment is permuted (2 (l % 4) and
// the next, instead of l % 4 and l % 4 + 4), the same way in A and B, so that chain() needs no exchange between lanes.
struct Tf32Math {
  using Element = float;
  using Accumulator = float;
  static constexpr bool kColumnBesideTile = false;
  static constexpr int kStep = 8;
  struct A {
    float r[4];
  };
  struct B {
    float r[2];
  };
  using Column = B;

  template <bool kTransposed>
  __device__ static void load_a(A& a, const float* tile, int pitch, int m, int k) {
    const int row = m + (lane_id() >> 2), column = k + (lane_id() & 3) * 2;
    for (int i = 0; i < 4; ++i) {
      const int r = row + (i & 1) * 8, c = column + (i >> 1);
      a.r[i] = kTransposed ? tile[c * pitch + r] : tile[r * pitch + c];
    }
  }

  template <bool kTransposed>
  __device__ static void load_b(B (&b)[2], const float* tile, int pitch, int n, int k) {
    const int column = n + (lane_id() >> 2), row = k + (lane_id() & 3) * 2;
    for (int j = 0; j < 2; ++j)
      for (int i = 0; i < 2; ++i)
        b[j].r[i] = kTransposed ? tile[(row + i) * pitch + column + j * 8] : tile[(column + j * 8) * pitch + row + i];
  }

  __device__ static void mma(float (&c)[4], const A& a, const B& b) {
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(round(a.r[0])), "r"(round(a.r[1])), "r"(round(a.r[2])), "r"(round(a.r[3])), "r"(round(b.r[0])),
          "r"(round(b.r[1])));
  }

  template <typename Fragment>
  __device__ static void clamp(Fragment& fragment, float floor) {
    for (float& x : fragment.r) x = x < floor ? floor : x;
  }

  __device__ static A chain(const float (*c)[4]) { return {{c[0][0], c[0][2], c[0][1], c[0][3]}}; }

  template <typename Value>
  __device__ static B column(Value&& value) {
    const int lane = lane_id();
    const int n = lane >> 2;
    B b{{0, 0}};
    if (n > 1) return b;
    for (int i = 0; i < 2; ++i) {
      const float x = value((lane & 3) * 2 + i);
      const float high = __uint_as_float(round(x));
      b.r[i] = n == 0 ? high : x - high;
    }
    return b;
  }
  __device__ static B ones() {
    return column([](int) { return 1.0F; });
  }
  __device__ static float column_sum(const float (&c)[4], int half) {
    const float own = c[half * 2] + c[half * 2 + 1];
    return __shfl_sync(0xffffffffu, own, lane_id() & ~3);
  }

 private:
  __device__ static std::uint32_t round(float x) {
    std::uint32_t r;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(x));
    return r;
  }
};

// float or double by fused multiply-adds: exact products, no tensor cores.
template <typename T>
struct ExactMath {
  using Element = T;
  using Accumulator = T;
  static constexpr bool kColumnBesideTile = false;
  static constexpr int kStep = 8;
  struct A {
    T r[2][kStep];
  };
  struct B {
    T r[kStep][2];
  };
  using Column = B;

  template <bool kTransposed>
  __device__ static void load_a(A& a, const T* tile, int pitch, int m, int k) {
    const int row = m + (lane_id() >> 2);
    for (int i = 0; i < 2; ++i)
      for (int c = 0; c < kStep; ++c)
        a.r[i][c] = kTransposed ? tile[(k + c) * pitch + row + i * 8] : tile[(row + i * 8) * pitch + k + c];
  }

  template <bool kTransposed>
  __device__ static void load_b(B (&b)[2], const T* tile, int pitch, int n, int k) {
    const int column = n + (lane_id() & 3) * 2;
    for (int j = 0; j < 2; ++j)
      for (int c = 0; c < kStep; ++c)
        for (int i = 0; i < 2; ++i)
          b[j].r[c][i] =
              kTransposed ? tile[(k + c) * pitch + column + j * 8 + i] : tile[(column + j * 8 + i) * pitch + k + c];
  }

  __device__ static void mma(T (&c)[4], const A& a, const B& b) {
    for (int k = 0; k < kStep; ++k)
      for (int i = 0; i < 4; ++i) c[i] = fma(a.r[i >> 1][k], b.r[k][i & 1], c[i]);
  }

  template <typename Fragment>
  __device__ static void clamp(Fragment& fragment, float floor) {
    for (auto& row : fragment.r)
      for (T& x : row) x = x < floor ? T(floor) : x;
  }

  __device__ static A chain(const T (*c)[4]) {
    A a;
    const int quad = lane_id() & ~3;
    for (int i = 0; i < 2; ++i)
      for (int k = 0; k < kStep; ++k) a.r[i][k] = __shfl_sync(0xffffffffu, c[0][i * 2 + (k & 1)], quad | (k >> 1));
    return a;
  }

  template <typename Value>
  __device__ static B column(Value&& value) {
    B b;
    for (int k = 0; k < kStep; ++k) {
      b.r[k][0] = (lane_id() & 3) == 0 ? value(k) : T(0);
      b.r[k][1] = T(0);
    }
    return b;
  }
  __device__ static B ones() {
    return column([](int) { return T(1); });
  }
  __device__ static T column_sum(const T (&c)[4], int half) {
    return __shfl_sync(0xffffffffu, c[half * 2], lane_id() & ~3);
  }
};

}  // namespace mhla::cuda
