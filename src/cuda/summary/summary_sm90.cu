// One warpgroup holds a whole tile of S_b in registers; a fifth warp fetches the boxes of its blocks, several ahead and
// across blocks. Thread blocks stay and take every gridDim-th (block, head).
#include "cuda/summary/summary_sm90.hpp"
#include "cuda/support/hopper/fragments.cuh"
#include "cuda/support/hopper/tensor_map.hpp"
#include "cuda/support/launch.hpp"
#include "cuda/support/tile.cuh"

namespace mhla::cuda::hopper {
namespace {

constexpr int kThreads = kWarpgroup + 32;
constexpr int kMostStages = 6;

template <typename E>
struct Params {
  CUtensorMap left, right, store;
  SummaryArgs<E> args;
  Boxes boxes;
  int items, right_tiles, stages;
};

template <int kLeft, int kRight>
constexpr int kBlocks = kLeft == 128 || kRight == 128 ? 2 : 4;  // per multiprocessor

// Shared memory: stages of left and right boxes, the finished tile, weights per stage, barriers.
template <int kLeft, int kRight>
struct Layout {
  static constexpr int kTileBytes = kLeft * kRight * 2;
  static constexpr int kFixedBytes = kTileBytes + kMostStages * (kTileRows * 4 + 16) + 1024;  // the last: alignment
  static int stage_bytes(const Boxes& boxes) {
    return (kLeft + kRight) / kBoxColumns * boxes.padded_rows * kBoxRowBytes;
  }
};

template <typename E, int kLeft, int kRight>
__global__ __launch_bounds__(kThreads,
                             kBlocks<kLeft, kRight>) void summary_kernel(const __grid_constant__ Params<E> p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  constexpr int kLeftBoxes = kLeft / kBoxColumns, kRightBoxes = kRight / kBoxColumns;
  extern __shared__ unsigned char unaligned[];
  unsigned char* const shared = unaligned + (1024 - shared_address(unaligned) % 1024) % 1024;
  const SummaryArgs<E>& args = p.args;
  const Shape& shape = args.shape;
  const Boxes& boxes = p.boxes;
  const int box_bytes = boxes.padded_rows * kBoxRowBytes;
  const int stage_bytes = (kLeftBoxes + kRightBoxes) * box_bytes;
  unsigned char* const tile = shared + p.stages * stage_bytes;
  auto* const weights = reinterpret_cast<float*>(tile + Layout<kLeft, kRight>::kTileBytes);
  auto* const full = reinterpret_cast<Barrier*>(weights + kMostStages * kTileRows);
  Barrier* const empty = full + kMostStages;
  const bool weighted = static_cast<bool>(args.weights) && args.sums != nullptr;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = lane_id();

  // Rows that pad a box stay zero: copies do not reach them.
  for (int n = static_cast<int>(threadIdx.x) * 16; n < p.stages * stage_bytes; n += kThreads * 16)
    *reinterpret_cast<uint4*>(shared + n) = make_uint4(0, 0, 0, 0);
  fence_shared_writes();
  if (threadIdx.x == 0) {
    for (int s = 0; s < p.stages; ++s) {
      init_barrier(full + s, weighted ? 33 : 1);
      init_barrier(empty + s, 4);
    }
    fence_barrier_init();
  }
  __syncthreads();

  struct Work {
    int head, block, column, batch;
    std::int64_t row;
  };
  const auto work = [&](int item) -> Work {
    const int tile_number = item % p.right_tiles;
    const auto [s, head, block] = shape.item(item / p.right_tiles, args.of_queries);
    return {head, block, tile_number * kRight, s.batch,
            args.of_queries ? shape.mixed_row(s, head, block) : shape.entry_row(s, head, shape.initial + block)};
  };

  if (warp == 4) {
    Turn turn;
    for (int item = static_cast<int>(blockIdx.x); item < p.items; item += static_cast<int>(gridDim.x)) {
      const Work w = work(item);
      const Boxes::Block block = boxes.block(w.block);
      for (int tile_number = 0; tile_number < boxes.tiles; ++tile_number, turn.next(p.stages)) {
        wait(empty + turn.at, turn.parity ^ 1);
        if (weighted) {
          for (int r = lane; r < boxes.padded_rows; r += 32) {
            const std::int64_t token = boxes.token(block, tile_number, r);
            copy_number(weights + turn.at * kTileRows + r,
                        &args.weights.at(w.batch, max(token, std::int64_t{0}), w.head), token >= 0);
          }
          arrive_after_copies(full + turn.at);
        }
        if (lane == 0)
          arrive_expecting(full + turn.at, (kLeftBoxes + kRightBoxes) * boxes.joined * boxes.rows * kBoxRowBytes);
        __syncwarp();
        // One copy per lane: box `part`, 64 columns of left or right.
        const int part = lane / (kLeftBoxes + kRightBoxes), b = lane % (kLeftBoxes + kRightBoxes);
        if (part < boxes.joined) {
          const bool of_left = b < kLeftBoxes;
          const int column = of_left ? w.head * kLeft + b * kBoxColumns
                                     : w.head * args.right.dim + w.column + (b - kLeftBoxes) * kBoxColumns;
          load_box(shared + turn.at * stage_bytes + b * box_bytes + part * boxes.rows * kBoxRowBytes,
                   of_left ? p.left : p.right, boxes.place(block, tile_number * boxes.joined + part, column, w.batch),
                   full + turn.at);
        }
      }
    }
    return;
  }

  using Math = HalfMath<E>;
  const PairFeature<E> feature(args.feature);
  // This lane's piece of the left boxes for the transposed fragments of rows warp * 16 .. + 15 of a 64-row tile.
  const std::uint32_t left_piece = box_piece(0, (lane & 7) + (lane >> 4) * 8, warp * 2 + ((lane >> 3) & 1));
  const auto ones = Math::column([](int) { return 1.0F; });
  Turn turn;
  for (int item = static_cast<int>(blockIdx.x); item < p.items; item += static_cast<int>(gridDim.x)) {
    const Work w = work(item);
    const bool summing = args.sums != nullptr && w.column == 0;
    float acc[kLeftBoxes][kRight / 2];
    float sums[kLeftBoxes][4];
#pragma unroll
    for (int m = 0; m < kLeftBoxes; ++m)
#pragma unroll
      for (float& sum : sums[m]) sum = 0;

    bool started = false;
    for (int n = 0; n < boxes.tiles; ++n, turn.next(p.stages)) {
      wait(full + turn.at, turn.parity);
      const std::uint32_t left = shared_address(shared) + static_cast<std::uint32_t>(turn.at * stage_bytes);
      const std::uint32_t right = left + static_cast<std::uint32_t>(kLeftBoxes * box_bytes);
      const float* const weight = weights + turn.at * kTileRows;
      for (int k = 0; k < boxes.padded_rows; k += 16) {
        std::uint32_t a[kLeftBoxes][4];
#pragma unroll
        for (int m = 0; m < kLeftBoxes; ++m) {
          load_matrices<true>(a[m], left + static_cast<std::uint32_t>(m * box_bytes + k * kBoxRowBytes) + left_piece);
          feature.apply(a[m]);
        }
        const std::uint64_t b = product_operand(right + static_cast<std::uint32_t>(k * kBoxRowBytes), box_bytes);
        product_fence();
#pragma unroll
        for (int m = 0; m < kLeftBoxes; ++m) {
          pin(acc[m]);
          warpgroup_product<E, true>(acc[m], a[m], b, started);
        }
        product_commit();
        started = true;
        if (summing) {
          const auto column = weighted ? Math::column([&](int j) { return weight[k + j]; }) : ones;
#pragma unroll
          for (int m = 0; m < kLeftBoxes; ++m) {
            typename Math::A fragment{{a[m][0], a[m][1], a[m][2], a[m][3]}};
            Math::mma(sums[m], fragment, column);
          }
        }
        product_wait<0>();
#pragma unroll
        for (int m = 0; m < kLeftBoxes; ++m) pin(acc[m]);
      }
      __syncwarp();
      if (lane == 0) arrive(empty + turn.at);
    }

    if (summing) {
      const int padding = boxes.tiles * boxes.padded_rows - boxes.block(w.block).tokens;
      const float excess = weighted ? 0.0F : static_cast<float>(padding) * feature.of_padding();
#pragma unroll
      for (int m = 0; m < kLeftBoxes; ++m)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const float sum = Math::column_sum(sums[m], half) - excess;
          if ((lane & 3) == 0)
            args.sums[w.row * kLeft + m * kBoxColumns + warp * 16 + half * 8 + (lane >> 2)] =
                sum * static_cast<float>(args.sums_factor);
        }
    }
    if (threadIdx.x == 0) wait_stores_read();
    sync_warpgroup();
    const auto factor = static_cast<float>(args.factor);
#pragma unroll
    for (int m = 0; m < kLeftBoxes; ++m) {
#pragma unroll
      for (float& x : acc[m]) x *= factor;
      put_boxes<E>(shared_address(tile), kLeft, m * kBoxColumns + warp * 16, acc[m]);
    }
    fence_shared_writes();
    sync_warpgroup();
    if (threadIdx.x == 0) {
#pragma unroll
      for (int b = 0; b < kRightBoxes; ++b)
        store_matrix_box(p.store, w.column + b * kBoxColumns, static_cast<int>(w.row) * kLeft,
                         tile + b * kLeft * kBoxRowBytes);
      commit_stores();
    }
  }
  if (threadIdx.x == 0) wait_stores_read();
#endif
}

template <typename E, int kLeft, int kRight>
void launch_summary(Params<E>& p, std::int64_t rows, cudaStream_t stream) {
  const SummaryArgs<E>& args = p.args;
  const int heads = args.of_queries ? args.shape.heads : args.shape.kv_heads;
  p.left = token_map(args.left, heads, args.shape.sequences, p.boxes);
  p.right = token_map(args.right, heads, args.shape.sequences, p.boxes);
  p.store = matrix_map(args.store, rows * kLeft, args.shape.value_dim, kLeft);
  p.right_tiles = args.shape.value_dim / kRight;
  p.items = args.shape.total_blocks * heads * p.right_tiles;
  const int stage = Layout<kLeft, kRight>::stage_bytes(p.boxes);
  p.stages = stages_that_fit(kBlocks<kLeft, kRight>, Layout<kLeft, kRight>::kFixedBytes, stage, kMostStages);
  launch("summary", summary_kernel<E, kLeft, kRight>,
         dim3(static_cast<unsigned>(std::min(p.items, multiprocessors() * kBlocks<kLeft, kRight>))), kThreads,
         static_cast<std::size_t>(p.stages * stage + Layout<kLeft, kRight>::kFixedBytes), stream, p);
}

}  // namespace

template <typename E>
bool summarize(const SummaryArgs<E>& args, cudaStream_t stream) {
  const Shape& shape = args.shape;
  const int heads = args.of_queries ? shape.heads : shape.kv_heads;
  const std::int64_t rows = static_cast<std::int64_t>(shape.total_blocks) * heads;
  constexpr std::int64_t kLimit = std::int64_t{1} << 31;
  Params<E> p{};
  p.args = args;
  const bool suits = PairFeature<E>::covers(args.feature) && shape.initial == 0 && args.final_S == nullptr &&
                     (shape.key_dim == 64 || shape.key_dim == 128) &&
                     (shape.value_dim == 64 || shape.value_dim == 128 || shape.value_dim == 256) &&
                     rows * shape.key_dim < kLimit && fits(args.left, heads) && fits(args.right, heads) &&
                     available() && find_boxes(shape, p.boxes);
  if (!suits) return false;
  if (shape.key_dim == 64 && shape.value_dim == 64) {
    launch_summary<E, 64, 64>(p, rows, stream);
  } else if (shape.key_dim == 64) {
    launch_summary<E, 64, 128>(p, rows, stream);
  } else if (shape.value_dim == 64) {
    launch_summary<E, 128, 64>(p, rows, stream);
  } else {
    launch_summary<E, 128, 128>(p, rows, stream);
  }
  return true;
}

template bool summarize<__nv_bfloat16>(const SummaryArgs<__nv_bfloat16>&, cudaStream_t);
template bool summarize<__half>(const SummaryArgs<__half>&, cudaStream_t);

}  // namespace mhla::cuda::hopper
