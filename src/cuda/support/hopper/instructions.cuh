// What Hopper (sm_90a) has of its own: barriers in shared memory that count bytes, bulk tensor copies (TMA) that
// complete on them, and products of a warpgroup (wgmma) that read shared memory by themselves.
//
// Tiles are boxes as a bulk copy writes them: rows of 128 bytes (64 elements), the 16-byte pieces of row r exchanged by
// r % 8, which keeps both copies and products off each other's banks. A box starts on a border of 1024 bytes.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "cuda/support/math.cuh"

namespace mhla::cuda::hopper {

inline constexpr int kBoxColumns = 64;
inline constexpr int kBoxRowBytes = 128;
inline constexpr int kWarpgroup = 128;  // threads

// The same for all lanes, and known to be so by the compiler.
__device__ inline int warpgroup_id() { return __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / kWarpgroup, 0); }

// ---- barriers

using Barrier = std::uint64_t;

__device__ inline void init_barrier(Barrier* barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}
__device__ inline void fence_barrier_init() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
__device__ inline void arrive(Barrier* barrier, int times = 1) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(times) : "memory");
}
__device__ inline void arrive_expecting(Barrier* barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
               : "memory");
}
__device__ inline void wait(Barrier* barrier, int parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra finished;\n"
      "bra again;\n"
      "finished:\n"
      "}\n" ::"r"(shared_address(barrier)),
      "r"(parity)
      : "memory");
}
// For consumers that take turns at the places of a ring. That a place is full shows in a parity, which is the same two
// rounds apart: so what was in it before must have gone first, whoever it was for. This tells rounds apart as long as
// what a consumer waits for comes at most one round after what it had before.
__device__ inline void wait_in_turn(Barrier* full, Barrier* empty, int parity) {
  wait(empty, parity ^ 1);
  wait(full, parity);
}
// One float by an ordinary asynchronous copy, zero where it is not valid; and an arrival once this thread's have
// landed.
__device__ inline void copy_number(float* to, const float* from, bool valid) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(to)), "l"(from), "r"(valid ? 4 : 0)
               : "memory");
}
__device__ inline void arrive_after_copies(Barrier* barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(barrier)) : "memory");
}
// All threads of warpgroup `group`, or of the first `threads` threads, apart from the other warps of the thread block.
__device__ inline void sync_warpgroup(int group = 0) { asm volatile("bar.sync %0, 128;" ::"r"(group + 1) : "memory"); }
__device__ inline void sync_threads(int threads) {
  constexpr int kName = 8;  // past those of the warpgroups
  asm volatile("bar.sync %0, %1;" ::"n"(kName), "r"(threads) : "memory");
}

// Buffers that a producer fills and consumers empty in turn; each side keeps its own Turn.
struct Turn {
  int at = 0, parity = 0;
  __device__ void next(int buffers) {
    if (++at == buffers) {
      at = 0;
      parity ^= 1;
    }
  }
};

// Registers moved between the roles of a thread block: a producer gives its own up, consumers take them.
template <int kRegisters>
__device__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// ---- bulk copies

// Where a box starts in a token tensor: column, then the place in the grid, then the batch row.
struct BoxPlace {
  int column, w, h, f, batch;
};

__device__ inline void load_box(void* to, const CUtensorMap& map, const BoxPlace& at, Barrier* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6, %7}], "
      "[%2];" ::"r"(shared_address(to)),
      "l"(&map), "r"(shared_address(barrier)), "r"(at.column), "r"(at.w), "r"(at.h), "r"(at.f), "r"(at.batch)
      : "memory");
}
__device__ inline void store_box(const CUtensorMap& map, const BoxPlace& at, const void* from) {
  asm volatile("cp.async.bulk.tensor.5d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5, %6}], [%1];" ::"l"(&map),
               "r"(shared_address(from)), "r"(at.column), "r"(at.w), "r"(at.h), "r"(at.f), "r"(at.batch)
               : "memory");
}
__device__ inline void load_matrix_box(void* to, const CUtensorMap& map, int column, int row, Barrier* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::"r"(
          shared_address(to)),
      "l"(&map), "r"(shared_address(barrier)), "r"(column), "r"(row)
      : "memory");
}
__device__ inline void store_matrix_box(const CUtensorMap& map, int column, int row, const void* from) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];" ::"l"(&map),
               "r"(shared_address(from)), "r"(column), "r"(row)
               : "memory");
}
__device__ inline void load_unit_box(void* to, const CUtensorMap& map, int column, int row, int unit,
                                     Barrier* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];" ::
          "r"(shared_address(to)),
      "l"(&map), "r"(shared_address(barrier)), "r"(column), "r"(row), "r"(unit)
      : "memory");
}
__device__ inline void store_unit_box(const CUtensorMap& map, int column, int row, int unit, const void* from) {
  asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(&map),
               "r"(shared_address(from)), "r"(column), "r"(row), "r"(unit)
               : "memory");
}
__device__ inline void load_line(void* to, const void* from, int bytes, Barrier* barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   shared_address(to)),
               "l"(from), "r"(bytes), "r"(shared_address(barrier))
               : "memory");
}
__device__ inline void commit_stores() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
// Until what the stores read may be written again.
template <int kLeft = 0>
__device__ void wait_stores_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kLeft) : "memory");
}
// Between ordinary writes to shared memory and a bulk copy or a warpgroup product that reads them.
__device__ inline void fence_shared_writes() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// ---- fragments

// Address of the 16-byte piece `piece` (0..7) of row `row` in a box.
__device__ inline std::uint32_t box_piece(std::uint32_t box, int row, int piece) {
  return box + static_cast<std::uint32_t>(row * kBoxRowBytes + ((piece ^ (row & 7)) << 4));
}

template <bool kTransposed>
__device__ void load_matrices(std::uint32_t (&r)[4], std::uint32_t address) {
  if constexpr (kTransposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
  }
}
__device__ inline void store_matrices(std::uint32_t address, const std::uint32_t (&r)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(address), "r"(r[0]), "r"(r[1]),
               "r"(r[2]), "r"(r[3])
               : "memory");
}

// ---- warpgroup products

__device__ inline void product_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void product_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int kLeft>
__device__ void product_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kLeft) : "memory");
}
// Accumulators of products in flight must not be touched: this pins them to their place in the program.
template <int kCount>
__device__ void pin(float (&x)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(x[i])::"memory");
}

// B in shared memory, boxes `box_bytes` apart. Stored [k][n]: the contraction runs over rows, `address` is the first
// row of the 16; boxes follow each other along n. Stored [n][k]: rows are n, `address` is the first of the 16 columns.
__device__ inline std::uint64_t product_operand(std::uint32_t address, int box_bytes) {
  constexpr std::uint64_t kSwizzled = std::uint64_t{1} << 62;
  constexpr std::uint64_t kEightRows = 8 * kBoxRowBytes / 16;
  return kSwizzled | kEightRows << 32 | static_cast<std::uint64_t>(box_bytes / 16) << 16 | (address & 0x3FFFF) >> 4;
}

#define MHLA_REGISTERS_8(x, i)                                                                                \
  "+f"(x[i]), "+f"(x[i + 1]), "+f"(x[i + 2]), "+f"(x[i + 3]), "+f"(x[i + 4]), "+f"(x[i + 5]), "+f"(x[i + 6]), \
      "+f"(x[i + 7])
#define MHLA_REGISTERS_32(x, i) \
  MHLA_REGISTERS_8(x, i), MHLA_REGISTERS_8(x, i + 8), MHLA_REGISTERS_8(x, i + 16), MHLA_REGISTERS_8(x, i + 24)

// acc (+)= A B for a 64 x N tile, contraction over 16; A in registers, laid out per warp as for mma.m16n8k16. Element
// (row, column) of a warp's 16 rows is acc[column / 8 * 4 + row / 8 * 2 + column % 2] of the lane that mma would give
// it.
#define MHLA_WARPGROUP_PRODUCT(TYPE)                                                                                   \
  template <bool kRowsContract>                                                                                        \
  __device__ void warpgroup_product(float(&c)[32], const std::uint32_t(&a)[4], std::uint64_t b, bool add,              \
                                    TYPE##_tag) {                                                                      \
    asm volatile(                                                                                                      \
        "{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\n"                                                                   \
        "wgmma.mma_async.sync.aligned.m64n64k16.f32." #TYPE "." #TYPE                                                  \
        " {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28," \
        "%29,%30,%31}, {%32,%33,%34,%35}, %36, p, 1, 1, %38;\n}"                                                       \
        : MHLA_REGISTERS_32(c, 0)                                                                                      \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(add)), "n"(kRowsContract ? 1 : 0)); \
  }                                                                                                                    \
  template <bool kRowsContract>                                                                                        \
  __device__ void warpgroup_product(float(&c)[64], const std::uint32_t(&a)[4], std::uint64_t b, bool add,              \
                                    TYPE##_tag) {                                                                      \
    asm volatile(                                                                                                      \
        "{\n.reg .pred p;\nsetp.ne.b32 p, %69, 0;\n"                                                                   \
        "wgmma.mma_async.sync.aligned.m64n128k16.f32." #TYPE "." #TYPE                                                 \
        " {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28," \
        "%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55," \
        "%56,%57,%58,%59,%60,%61,%62,%63}, {%64,%65,%66,%67}, %68, p, 1, 1, %70;\n}"                                   \
        : MHLA_REGISTERS_32(c, 0), MHLA_REGISTERS_32(c, 32)                                                            \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(add)), "n"(kRowsContract ? 1 : 0)); \
  }
// The same with A in shared memory; kColumnsA: A is stored [k][m], so that its columns are the rows of the product.
#define MHLA_WARPGROUP_PRODUCT_SHARED(TYPE)                                                                            \
  template <bool kColumnsA, bool kRowsContract>                                                                        \
  __device__ void warpgroup_product(float(&c)[32], std::uint64_t a, std::uint64_t b, bool add, TYPE##_tag) {           \
    asm volatile(                                                                                                      \
        "{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"                                                                   \
        "wgmma.mma_async.sync.aligned.m64n64k16.f32." #TYPE "." #TYPE                                                  \
        " {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28," \
        "%29,%30,%31}, %32, %33, p, 1, 1, %35, %36;\n}"                                                                \
        : MHLA_REGISTERS_32(c, 0)                                                                                      \
        : "l"(a), "l"(b), "r"(static_cast<int>(add)), "n"(kColumnsA ? 1 : 0), "n"(kRowsContract ? 1 : 0));             \
  }
struct bf16_tag {};
struct f16_tag {};
MHLA_WARPGROUP_PRODUCT_SHARED(bf16)
MHLA_WARPGROUP_PRODUCT_SHARED(f16)
#undef MHLA_WARPGROUP_PRODUCT_SHARED
MHLA_WARPGROUP_PRODUCT(bf16)
MHLA_WARPGROUP_PRODUCT(f16)
#undef MHLA_WARPGROUP_PRODUCT
#undef MHLA_REGISTERS_32
#undef MHLA_REGISTERS_8

template <typename E, bool kRowsContract, int kCount>
__device__ void warpgroup_product(float (&c)[kCount], const std::uint32_t (&a)[4], std::uint64_t b, bool add) {
  using Tag = std::conditional_t<std::is_same_v<E, __half>, f16_tag, bf16_tag>;
  warpgroup_product<kRowsContract>(c, a, b, add, Tag{});
}
template <typename E, bool kColumnsA, bool kRowsContract>
__device__ void warpgroup_product(float (&c)[32], std::uint64_t a, std::uint64_t b, bool add) {
  using Tag = std::conditional_t<std::is_same_v<E, __half>, f16_tag, bf16_tag>;
  warpgroup_product<kColumnsA, kRowsContract>(c, a, b, add, Tag{});
}

}  // namespace mhla::cuda::hopper
