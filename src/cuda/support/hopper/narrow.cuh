// Boxes and products of 32 columns: rows of 64 bytes, the 16-byte pieces of row r exchanged by r / 2 % 4. A box starts
// on a border of 512 bytes.
#pragma once

#include "cuda/support/hopper/fragments.cuh"

namespace mhla::cuda::hopper {

inline constexpr int kNarrowColumns = 32;
inline constexpr int kNarrowRowBytes = 64;

__device__ inline std::uint32_t narrow_piece(std::uint32_t box, int row, int piece) {
  return box + static_cast<std::uint32_t>(row * kNarrowRowBytes + ((piece ^ (row >> 1 & 3)) << 4));
}

// Where this lane puts its part of a warp's 16 rows from `row` on, in a box at 0.
__device__ inline std::uint32_t narrow_rows(int row) {
  const int lane = lane_id();
  return narrow_piece(0, row + (lane & 15), lane >> 4);
}
// Those rows of a 64-row accumulator, as pairs of elements, into the box that `address` (narrow_rows() of it) lies in.
__device__ inline void put_narrow(std::uint32_t address, const std::uint32_t (&pairs)[8]) {
  store_matrices(address, {pairs[0], pairs[1], pairs[2], pairs[3]});
  store_matrices(address ^ 32, {pairs[4], pairs[5], pairs[6], pairs[7]});
}
// And back.
__device__ inline void get_narrow(std::uint32_t (&pairs)[8], std::uint32_t address) {
  std::uint32_t low[4], high[4];
  load_matrices<false>(low, address);
  load_matrices<false>(high, address ^ 32);
#pragma unroll
  for (int m = 0; m < 4; ++m) {
    pairs[m] = low[m];
    pairs[4 + m] = high[m];
  }
}

// B of a product whose contraction runs over the 16 rows of a box from `address` on.
__device__ inline std::uint64_t narrow_operand(std::uint32_t address) {
  constexpr std::uint64_t kSwizzled = std::uint64_t{2} << 62;
  constexpr std::uint64_t kEightRows = 8 * kNarrowRowBytes / 16;
  return kSwizzled | kEightRows << 32 | kEightRows << 16 | (address & 0x3FFFF) >> 4;
}

// An operand `bytes` further on.
__device__ inline std::uint64_t advance(std::uint64_t operand, int bytes) {
  const std::uint32_t low = static_cast<std::uint32_t>(operand) + static_cast<std::uint32_t>(bytes / 16);
  return (operand & ~0xffffffffULL) | low;
}

// As in instructions.cuh, for 64 x 32; A in registers, or in shared memory stored [k][m].
#define MHLA_REGISTERS_16(x)                                                                                  \
  "+f"(x[0]), "+f"(x[1]), "+f"(x[2]), "+f"(x[3]), "+f"(x[4]), "+f"(x[5]), "+f"(x[6]), "+f"(x[7]), "+f"(x[8]), \
      "+f"(x[9]), "+f"(x[10]), "+f"(x[11]), "+f"(x[12]), "+f"(x[13]), "+f"(x[14]), "+f"(x[15])
#define MHLA_NARROW_PRODUCT(TYPE)                                                                                \
  __device__ inline void narrow_product(float(&c)[16], const std::uint32_t(&a)[4], std::uint64_t b, bool add,    \
                                        TYPE##_tag) {                                                            \
    asm volatile(                                                                                                \
        "{\n.reg .pred p;\nsetp.ne.b32 p, %21, 0;\n"                                                             \
        "wgmma.mma_async.sync.aligned.m64n32k16.f32." #TYPE "." #TYPE                                            \
        " {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15}, {%16,%17,%18,%19}, %20, p, 1, 1, 1;\n}"       \
        : MHLA_REGISTERS_16(c)                                                                                   \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(add)));                       \
  }                                                                                                              \
  __device__ inline void narrow_product(float(&c)[16], std::uint64_t a, std::uint64_t b, bool add, TYPE##_tag) { \
    asm volatile(                                                                                                \
        "{\n.reg .pred p;\nsetp.ne.b32 p, %18, 0;\n"                                                             \
        "wgmma.mma_async.sync.aligned.m64n32k16.f32." #TYPE "." #TYPE                                            \
        " {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15}, %16, %17, p, 1, 1, 1, 1;\n}"                  \
        : MHLA_REGISTERS_16(c)                                                                                   \
        : "l"(a), "l"(b), "r"(static_cast<int>(add)));                                                           \
  }
MHLA_NARROW_PRODUCT(bf16)
MHLA_NARROW_PRODUCT(f16)
#undef MHLA_NARROW_PRODUCT
#undef MHLA_REGISTERS_16

template <typename E, typename A>
__device__ void narrow_product(float (&c)[16], const A& a, std::uint64_t b, bool add) {
  using Tag = std::conditional_t<std::is_same_v<E, __half>, f16_tag, bf16_tag>;
  narrow_product(c, a, b, add, Tag{});
}

}  // namespace mhla::cuda::hopper
