// Four warpgroups take turns at tiles of tokens and multiply them with the matrix of their block; one more fetches
// matrices and tiles ahead, across blocks. A result leaves through the place its tile came in. One thread block per
// multiprocessor stays and takes every gridDim-th (block, head).
#include "cuda/readout/readout_sm90.hpp"
#include "cuda/support/hopper/fragments.cuh"
#include "cuda/support/hopper/tensor_map.hpp"
#include "cuda/support/launch.hpp"

namespace mhla::cuda::hopper {
namespace readout {

inline constexpr int kGroups = 4;
inline constexpr int kThreads = (kGroups + 1) * kWarpgroup;
inline constexpr int kMostStages = 8, kMostMatrices = 8;
inline constexpr int kNumberWarps = 2;  // that take turns at the numbers of tiles

template <typename E>
struct Params {
  CUtensorMap x, raw, W, out, second;
  ReadoutArgs<E> args;
  Feature second_feature;
  float second_factor;
  Boxes boxes;
  int items, stages, matrices, producers;
};

template <typename E>
__host__ __device__ bool needs_raw(const ReadoutArgs<E>& args, bool both) {
  return both || (static_cast<bool>(args.raw) && args.raw_feature.map == FeatureMap::relu);
}

// kBoth: a second result, phi(raw) W, from what is here already. So dk (x = v, raw = k, W^T) brings dv with it.
template <typename Element, int kDepth_, int kWidth_, bool kTransposed_, bool kBoth_>
struct Form {
  using E = Element;
  static constexpr int kDepth = kDepth_, kWidth = kWidth_;
  static constexpr bool kTransposed = kTransposed_, kBoth = kBoth_;
  static constexpr int kDepthBoxes = kDepth / kBoxColumns, kWidthBoxes = kWidth / kBoxColumns;
  static constexpr int kSteps = kDepth / 16;                   // of a product
  static constexpr int kKeys = kTransposed ? kWidth : kDepth;  // rows of W in memory
  static constexpr int kMatrixBoxes = kTransposed ? kDepthBoxes : kWidthBoxes;
  static constexpr int kMatrixBoxBytes = kKeys * kBoxRowBytes;

  // Step k of a product for 64 columns from 64 h on: where its part of W (or W^T) begins.
  __device__ static int W_offset(int h, int k) {
    return kTransposed ? k / 4 * kMatrixBoxBytes + h * kBoxColumns * kBoxRowBytes + k % 4 * 32
                       : h * kMatrixBoxBytes + k * 16 * kBoxRowBytes;
  }
  // The same of the second result, which takes W as it lies.
  __device__ static int second_W_offset(int h, int k) { return h * kMatrixBoxBytes + k * 16 * kBoxRowBytes; }
};

// Shared memory: matrices, stages of x (later the result) and raw, then what is small.
template <typename F>
struct Memory {
  struct Small {
    float vectors[kMostMatrices][128];
    float coefficients[kMostStages][kTileRows];
    Barrier full[kMostStages], empty[kMostStages], matrix_full[kMostMatrices], matrix_empty[kMostMatrices];
  };
  static constexpr int kMatrixBytes = F::kDepth * F::kWidth * 2;
  static constexpr int kTileBoxes = F::kDepth > F::kWidth ? F::kDepthBoxes : F::kWidthBoxes;
  static constexpr int kFixedBytes = static_cast<int>(sizeof(Small)) + 1024;  // the last: alignment
  __host__ __device__ static int stage_bytes_for(const Boxes& boxes, bool with_raw) {
    return (kTileBoxes + (with_raw ? F::kWidthBoxes : 0)) * boxes.padded_rows * kBoxRowBytes;
  }

  bool with_raw;
  int box_bytes, stage_bytes;
  unsigned char *matrices, *stages;
  Small* small;

  __device__ Memory(unsigned char* unaligned, const Params<typename F::E>& p)
      : with_raw(needs_raw(p.args, F::kBoth)), box_bytes(p.boxes.padded_rows * kBoxRowBytes),
        stage_bytes(stage_bytes_for(p.boxes, with_raw)) {
    matrices = unaligned + (1024 - shared_address(unaligned) % 1024) % 1024;
    stages = matrices + p.matrices * kMatrixBytes;
    small = reinterpret_cast<Small*>(stages + p.stages * stage_bytes);
  }
  __device__ unsigned char* matrix(int n) const { return matrices + n * kMatrixBytes; }
  __device__ unsigned char* x(int stage) const { return stages + stage * stage_bytes; }
  __device__ unsigned char* raw(int stage) const { return x(stage) + raw_offset(); }
  __device__ int raw_offset() const { return kTileBoxes * box_bytes; }
  // Row `row` of the b-th box, 64 columns, of a tile.
  __device__ unsigned char* box_row(unsigned char* tile, int b, int row) const {
    return tile + b * box_bytes + row * kBoxRowBytes;
  }

  // By one thread.
  __device__ void prepare(const Params<typename F::E>& p) const {
    for (int s = 0; s < p.stages; ++s) {
      init_barrier(small->full + s, p.args.coefficient ? 33 : 1);
      init_barrier(small->empty + s, 1);
    }
    for (int m = 0; m < p.matrices; ++m) {
      init_barrier(small->matrix_full + m, 1);
      init_barrier(small->matrix_empty + m, kGroups * 4);
    }
    fence_barrier_init();
  }
};

// A block of a head: where its tokens and its matrix are.
struct Item {
  int head, block, batch;
  std::int64_t row;
};

// A warp's 16 rows of a tile.
struct Rows {
  int group, warp, lane;
  int first;  // of the tile; rows past it are computed and dropped
  __device__ explicit Rows(const Boxes& boxes)
      : group(static_cast<int>(threadIdx.x) / kWarpgroup), warp(static_cast<int>(threadIdx.x) / 32 % 4),
        lane(lane_id()), first(min(warp * 16, boxes.padded_rows - 16)) {}
  __device__ bool kept() const { return first == warp * 16; }
};

namespace {

template <typename E>
__device__ Item item_of(const ReadoutArgs<E>& args, int number) {
  const Shape& shape = args.shape;
  const auto [s, head, block] = shape.item(number, args.of_queries);
  return {head, block, s.batch,
          args.of_queries ? shape.mixed_row(s, head, block) : shape.entry_row(s, head, shape.initial + block)};
}

// ---- copies

// An item's matrix, and the vector that goes with it, by one thread.
template <typename F>
__device__ void fetch_matrix(const Memory<F>& memory, const Params<typename F::E>& p, const Item& item, int number) {
  const float* const vector = p.args.z != nullptr ? p.args.z : p.args.vector;
  const int use = number / p.matrices, at = number - use * p.matrices;
  Barrier* const full = memory.small->matrix_full + at;
  wait(memory.small->matrix_empty + at, use % 2 ^ 1);
  const int vector_bytes = vector != nullptr ? F::kKeys * 4 : 0;
  arrive_expecting(full, memory.kMatrixBytes + vector_bytes);
#pragma unroll
  for (int b = 0; b < F::kMatrixBoxes; ++b)
    load_matrix_box(memory.matrix(at) + b * F::kMatrixBoxBytes, p.W, b * kBoxColumns,
                    static_cast<int>(item.row) * F::kKeys, full);
  if (vector != nullptr) load_line(memory.small->vectors[at], vector + item.row * F::kKeys, vector_bytes, full);
}

// The coefficients of a tile's tokens, by a warp.
template <typename F>
__device__ void copy_coefficients(const Memory<F>& memory, const Params<typename F::E>& p, const Item& item,
                                  const Boxes::Block& block, int tile, int stage) {
  for (int r = lane_id(); r < p.boxes.padded_rows; r += 32) {
    const std::int64_t token = p.boxes.token(block, tile, r);
    copy_number(memory.small->coefficients[stage] + r,
                &p.args.coefficient.at(item.batch, max(token, std::int64_t{0}), item.head), token >= 0);
  }
  arrive_after_copies(memory.small->full + stage);
}

// The boxes of a tile, by a warp: one copy per lane, 64 columns of x or raw.
template <typename F>
__device__ void fetch_tile(const Memory<F>& memory, const Params<typename F::E>& p, const Item& item,
                           const Boxes::Block& block, int tile, int stage) {
  const Boxes& boxes = p.boxes;
  const int lane = lane_id(), stage_boxes = F::kDepthBoxes + (memory.with_raw ? F::kWidthBoxes : 0);
  Barrier* const full = memory.small->full + stage;
  if (lane == 0) arrive_expecting(full, stage_boxes * boxes.joined * boxes.rows * kBoxRowBytes);
  __syncwarp();
  const int part = lane / stage_boxes, b = lane % stage_boxes;
  if (part >= boxes.joined) return;
  const bool of_x = b < F::kDepthBoxes;
  const int column =
      of_x ? item.head * F::kDepth + b * kBoxColumns : item.head * F::kWidth + (b - F::kDepthBoxes) * kBoxColumns;
  const int at = of_x ? b : b - F::kDepthBoxes + memory.kTileBoxes;
  load_box(memory.box_row(memory.x(stage), at, part * boxes.rows), of_x ? p.x : p.raw,
           boxes.place(block, tile * boxes.joined + part, column, item.batch), full);
}

// With one tile per item, four warps take turns at items; else the first fetches all, and two more take turns at the
// numbers of its tiles. Where a tile goes follows from how many came before it. A warp must not be two rounds of a ring
// ahead of another, so the places of a ring are a multiple of the warps that take turns at it.
template <typename F>
__device__ void fetch(const Memory<F>& memory, const Params<typename F::E>& p) {
  const Boxes& boxes = p.boxes;
  const int lane = lane_id(), warp = static_cast<int>(threadIdx.x) / 32 % 4;
  const bool takes_turns = p.producers > 1, fetches = takes_turns || warp == 0;
  const bool numbers = p.args.coefficient && (takes_turns || (warp > 0 && warp <= kNumberWarps));
  if (!fetches && !numbers) return;
  const int first = static_cast<int>(blockIdx.x), step = static_cast<int>(gridDim.x), initial = takes_turns ? warp : 0;
  for (int n = first + initial * step, number = initial; n < p.items; n += p.producers * step, number += p.producers) {
    const Item item = item_of(p.args, n);
    const Boxes::Block block = boxes.block(item.block);
    if (fetches && lane == 0) fetch_matrix(memory, p, item, number);
    __syncwarp();
    for (int tile = 0; tile < boxes.tiles; ++tile) {
      const int sequence = number * boxes.tiles + tile, use = sequence / p.stages, stage = sequence - use * p.stages;
      if (!fetches && sequence % kNumberWarps != warp - 1) continue;
      wait(memory.small->empty + stage, use % 2 ^ 1);
      if (numbers) copy_coefficients(memory, p, item, block, tile, stage);
      if (fetches) fetch_tile(memory, p, item, block, tile, stage);
    }
  }
}

// ---- products

// phi of a warp's rows as fragments, from boxes side by side.
template <typename E, int kSteps>
__device__ void load_features(std::uint32_t (&a)[kSteps][4], std::uint32_t tile, int box_bytes, const Rows& rows,
                              const PairFeature<E>& feature) {
#pragma unroll
  for (int k = 0; k < kSteps; ++k) {
    load_matrices<false>(a[k], box_piece(tile + static_cast<std::uint32_t>(k / 4 * box_bytes),
                                         rows.first + (rows.lane & 15), k % 4 * 2 + (rows.lane >> 4)));
    feature.apply(a[k]);
  }
}

// acc = a B; offset(k) of step k's part of B from W on.
template <typename E, bool kRowsContract, int kSteps, typename Offset>
__device__ void multiply(float (&acc)[32], const std::uint32_t (&a)[kSteps][4], std::uint32_t W, Offset&& offset) {
  product_fence();
  pin(acc);
#pragma unroll
  for (int k = 0; k < kSteps; ++k)
    warpgroup_product<E, kRowsContract>(acc, a[k], product_operand(W + static_cast<std::uint32_t>(offset(k)), 16),
                                        k > 0);
  product_commit();
  product_wait<0>();
  pin(acc);
}

// z~ of a block as columns, one per step of a product. Columns that stay float are read anew for every tile: they would
// take too many registers.
template <typename F>
struct Columns {
  using Math = HalfMath<typename F::E>;
  typename Math::Column z[F::kSteps];

  __device__ static auto column(const float* vector, int k) {
    return Math::column([&](int j) { return vector[k * 16 + j]; });
  }
  __device__ void load(const float* vector) {
    if constexpr (!Math::kFloatColumn) {
#pragma unroll
      for (int k = 0; k < F::kSteps; ++k) z[k] = column(vector, k);
    }
  }
  __device__ auto get(const float* vector, int k) const {
    if constexpr (Math::kFloatColumn) {
      return column(vector, k);
    } else {
      return z[k];
    }
  }
};

// factor / (q . z~ scale + eps) for this lane's two rows.
template <typename F>
__device__ void divide(float (&factor)[2], const std::uint32_t (&a)[F::kSteps][4], const Columns<F>& z,
                       const float* vector, const Shape& shape) {
  using Math = HalfMath<typename F::E>;
  float dot[4] = {0, 0, 0, 0};
#pragma unroll
  for (int k = 0; k < F::kSteps; ++k)
    Math::mma(dot, typename Math::A{{a[k][0], a[k][1], a[k][2], a[k][3]}}, z.get(vector, k));
#pragma unroll
  for (int half = 0; half < 2; ++half)
    factor[half] /= Math::column_sum(dot, half) * static_cast<float>(shape.scale) + static_cast<float>(shape.eps);
}

// acc += coefficient vector^T, 64 columns of the vector.
[[maybe_unused]] __device__ inline void add_rank_one(float (&acc)[32], const float (&coefficient)[2],
                                                     const float* vector, int column) {
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    const float2 v = *reinterpret_cast<const float2*>(vector + j * 8 + column);
#pragma unroll
    for (int e = 0; e < 4; ++e) acc[j * 4 + e] += coefficient[e / 2] * (e % 2 == 0 ? v.x : v.y);
  }
}

// Accumulators become zero where relu was. Read like the A of a product: element by element the same places as the
// accumulators.
template <typename E>
__device__ void mask(float (&acc)[32], std::uint32_t raw, const Rows& rows) {
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    std::uint32_t fragment[4];
    load_matrices<false>(fragment, box_piece(raw, rows.first + (rows.lane & 15), k * 2 + (rows.lane >> 4)));
#pragma unroll
    for (int n = 0; n < 8; ++n)
      if (!(to_accumulator(reinterpret_cast<const E(&)[2]>(fragment[n / 2])[n % 2]) > 0)) acc[k * 8 + n] = 0;
  }
}

// The second result of a tile, into the place of raw.
template <typename F>
__device__ void read_out_raw(const Memory<F>& memory, const Params<typename F::E>& p, std::uint32_t (&a)[F::kSteps][4],
                             std::uint32_t W, std::uint32_t raw, const Rows& rows) {
  using E = typename F::E;
  load_features(a, raw, memory.box_bytes, rows, PairFeature<E>(p.second_feature));
  sync_warpgroup(rows.group);
#pragma unroll
  for (int h = 0; h < F::kDepthBoxes; ++h) {
    float acc[32];
    multiply<E, true>(acc, a, W, [&](int k) { return F::second_W_offset(h, k); });
#pragma unroll
    for (float& value : acc) value *= p.second_factor;
    if (rows.kept())
      put_boxes<E>(raw + static_cast<std::uint32_t>(h * memory.box_bytes), p.boxes.padded_rows, rows.first, acc);
  }
}

// What has been put into a stage, to device memory; by a warp.
template <typename F>
__device__ void store_tile(const Memory<F>& memory, const Params<typename F::E>& p, int number, int tile, int stage) {
  const Boxes& boxes = p.boxes;
  const Item item = item_of(p.args, number);
  const int part = lane_id() / F::kWidthBoxes, b = lane_id() % F::kWidthBoxes, box = tile * boxes.joined + part;
  if (part < boxes.joined && box < boxes.per_block) {
    const int column = item.head * F::kWidth + b * kBoxColumns;
    store_box(p.out, boxes.place(boxes.block(item.block), box, column, item.batch),
              memory.box_row(memory.x(stage), b, part * boxes.rows));
    if constexpr (F::kBoth)
      store_box(p.second, boxes.place(boxes.block(item.block), box, column, item.batch),
                memory.box_row(memory.raw(stage), b, part * boxes.rows));
    commit_stores();
  }
  wait_stores_read();
  __syncwarp();
}

// One tile, from its stage into its stage.
template <typename F>
__device__ void read_out_tile(const Memory<F>& memory, const Params<typename F::E>& p, std::uint32_t W,
                              const float* vector, const Columns<F>& z, const PairFeature<typename F::E>& feature,
                              int stage, const Rows& rows) {
  using E = typename F::E;
  const ReadoutArgs<E>& args = p.args;
  const std::uint32_t x = shared_address(memory.x(stage)), raw = x + static_cast<std::uint32_t>(memory.raw_offset());
  std::uint32_t a[F::kSteps][4];
  load_features(a, x, memory.box_bytes, rows, feature);
  float factor[2] = {static_cast<float>(args.factor), static_cast<float>(args.factor)};
  if (!F::kTransposed && args.z != nullptr) divide(factor, a, z, vector, args.shape);
  float coefficient[2] = {static_cast<float>(args.rank_one_factor), static_cast<float>(args.rank_one_factor)};
  if (args.coefficient) {
    coefficient[0] *= memory.small->coefficients[stage][rows.first + (rows.lane >> 2)];
    coefficient[1] *= memory.small->coefficients[stage][rows.first + (rows.lane >> 2) + 8];
  }
  sync_warpgroup(rows.group);  // x is in registers, its place is free

#pragma unroll
  for (int h = 0; h < F::kWidthBoxes; ++h) {
    float acc[32];
    multiply<E, !F::kTransposed>(acc, a, W, [&](int k) { return F::W_offset(h, k); });
#pragma unroll
    for (int n = 0; n < 32; ++n) acc[n] *= factor[n % 4 / 2];
    if (args.vector != nullptr) add_rank_one(acc, coefficient, vector + h * kBoxColumns, (rows.lane & 3) * 2);
    if (args.raw_feature.map == FeatureMap::relu && memory.with_raw)
      mask<E>(acc, raw + static_cast<std::uint32_t>(h * memory.box_bytes), rows);
    if (rows.kept())
      put_boxes<E>(x + static_cast<std::uint32_t>(h * memory.box_bytes), p.boxes.padded_rows, rows.first, acc);
  }
  if constexpr (F::kBoth) read_out_raw(memory, p, a, W, raw, rows);
  fence_shared_writes();
  sync_warpgroup(rows.group);
}

template <typename F>
__device__ void read_out(const Memory<F>& memory, const Params<typename F::E>& p) {
  const PairFeature<typename F::E> feature(p.args.x_feature);
  const Rows rows(p.boxes);
  const int first = static_cast<int>(blockIdx.x), step = static_cast<int>(gridDim.x);
  Turn turn, matrix;
  int next = rows.group;  // tiles until the next one of this group
  for (int number = first; number < p.items; number += step, matrix.next(p.matrices)) {
    wait(memory.small->matrix_full + matrix.at, matrix.parity);
    const float* const vector = memory.small->vectors[matrix.at];
    const std::uint32_t W = shared_address(memory.matrix(matrix.at));
    Columns<F> z;
    if (!F::kTransposed && p.args.z != nullptr && next < p.boxes.tiles) z.load(vector);
    for (int tile = 0; tile < p.boxes.tiles; ++tile, turn.next(p.stages)) {
      if (next-- > 0) continue;
      next = kGroups - 1;
      wait_in_turn(memory.small->full + turn.at, memory.small->empty + turn.at, turn.parity);
      read_out_tile(memory, p, W, vector, z, feature, turn.at, rows);
      if (rows.warp != 0) continue;
      store_tile(memory, p, number, tile, turn.at);
      if (rows.lane == 0) arrive(memory.small->empty + turn.at);
    }
    __syncwarp();
    if (rows.lane == 0) arrive(memory.small->matrix_empty + matrix.at);
  }
}

template <typename F>
__global__ __launch_bounds__(kThreads, 1) void readout_kernel(const __grid_constant__ Params<typename F::E> p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ unsigned char unaligned[];
  const Memory<F> memory(unaligned, p);
  if (threadIdx.x == 0) memory.prepare(p);
  __syncthreads();
  if (static_cast<int>(threadIdx.x) / kWarpgroup == kGroups) {
    give_registers<32>();
    fetch(memory, p);
  } else {
    take_registers<112>();
    read_out(memory, p);
  }
#endif
}

template <typename E, int kDepth, int kWidth, bool kTransposed, bool kBoth = false>
void launch_readout(Params<E>& p, cudaStream_t stream) {
  using F = Form<E, kDepth, kWidth, kTransposed, kBoth>;
  using Sizes = Memory<F>;
  const ReadoutArgs<E>& args = p.args;
  const Shape& shape = args.shape;
  const int heads = args.of_queries ? shape.heads : shape.kv_heads;
  const bool with_raw = needs_raw(args, kBoth);
  const std::int64_t rows = static_cast<std::int64_t>(shape.total_blocks) * heads;
  p.x = token_map(args.x, heads, shape.sequences, p.boxes);
  p.out = token_map(args.out, heads, shape.sequences, p.boxes);
  p.raw = with_raw ? token_map(args.raw, heads, shape.sequences, p.boxes) : p.x;
  p.W = matrix_map(args.W, rows * shape.key_dim, shape.value_dim, shape.key_dim);
  p.items = shape.total_blocks * heads;
  const int stage = Sizes::stage_bytes_for(p.boxes, with_raw);
  p.matrices = stages_that_fit(1, Sizes::kFixedBytes + (kGroups + 1) * stage, Sizes::kMatrixBytes,
                               p.boxes.tiles < kGroups ? kMostMatrices : 2);
  p.stages = stages_that_fit(1, Sizes::kFixedBytes + p.matrices * Sizes::kMatrixBytes, stage, kMostStages);
  p.producers = p.boxes.tiles == 1 && p.stages >= 4 && p.matrices >= 4 ? 4 : 1;
  if (p.producers > 1) {
    p.stages -= p.stages % p.producers;
    p.matrices -= p.matrices % p.producers;
  } else if (args.coefficient) {
    p.stages -= p.stages % kNumberWarps;
  }
  launch("readout", readout_kernel<F>, dim3(static_cast<unsigned>(std::min(p.items, multiprocessors()))), kThreads,
         static_cast<std::size_t>(p.matrices * Sizes::kMatrixBytes + p.stages * stage + Sizes::kFixedBytes), stream, p);
}

template <typename E>
bool suits(const ReadoutArgs<E>& args, Boxes& boxes) {
  const Shape& shape = args.shape;
  const int heads = args.of_queries ? shape.heads : shape.kv_heads;
  const std::int64_t rows = static_cast<std::int64_t>(shape.total_blocks) * heads;
  constexpr std::int64_t kLimit = std::int64_t{1} << 31;
  const auto narrow = [](int dim) { return dim == 64 || dim == 128; };
  return !args.y && !args.denominator && args.diagonal == nullptr && PairFeature<E>::covers(args.x_feature) &&
         PairFeature<E>::covers(args.raw_feature) && shape.initial == 0 && narrow(shape.key_dim) &&
         narrow(shape.value_dim) && !(args.z != nullptr && args.transposed) && rows * shape.key_dim < kLimit &&
         fits(args.x, heads) && fits(args.out, heads) && (!args.raw || fits(args.raw, heads)) && available() &&
         find_boxes(shape, boxes);
}

}  // namespace
}  // namespace readout

template <typename E>
bool read_out(const ReadoutArgs<E>& args, cudaStream_t stream) {
  using namespace readout;
  Params<E> p{};
  p.args = args;
  if (!suits(args, p.boxes)) return false;
  const auto run = [&]<int kDepth, int kWidth>() {
    args.transposed ? launch_readout<E, kDepth, kWidth, true>(p, stream)
                    : launch_readout<E, kDepth, kWidth, false>(p, stream);
  };
  const int depth = args.transposed ? args.shape.value_dim : args.shape.key_dim;
  const int width = args.transposed ? args.shape.key_dim : args.shape.value_dim;
  if (depth == 64) {
    width == 64 ? run.template operator()<64, 64>() : run.template operator()<64, 128>();
  } else {
    width == 64 ? run.template operator()<128, 64>() : run.template operator()<128, 128>();
  }
  return true;
}

template <typename E>
bool read_out_keys(const ReadoutArgs<E>& d_k, const ReadoutArgs<E>& d_v, cudaStream_t stream) {
  using namespace readout;
  Params<E> p{};
  p.args = d_k;
  const Shape& shape = d_k.shape;
  if (shape.key_dim != shape.value_dim || !suits(d_k, p.boxes) || !suits(d_v, p.boxes)) return false;
  p.second = token_map(d_v.out, shape.kv_heads, shape.sequences, p.boxes);
  p.second_feature = d_v.x_feature;
  p.second_factor = static_cast<float>(d_v.factor);
  shape.key_dim == 64 ? launch_readout<E, 64, 64, true, true>(p, stream)
                      : launch_readout<E, 128, 128, true, true>(p, stream);
  return true;
}

template bool read_out_keys<__nv_bfloat16>(const ReadoutArgs<__nv_bfloat16>&, const ReadoutArgs<__nv_bfloat16>&,
                                           cudaStream_t);
template bool read_out_keys<__half>(const ReadoutArgs<__half>&, const ReadoutArgs<__half>&, cudaStream_t);
template bool read_out<__nv_bfloat16>(const ReadoutArgs<__nv_bfloat16>&, cudaStream_t);
template bool read_out<__half>(const ReadoutArgs<__half>&, cudaStream_t);

}  // namespace mhla::cuda::hopper
