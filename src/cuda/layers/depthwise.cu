// A block works on tiles of kDown x kAcross tokens and 64 channels: it brings the tile and its border into shared
// memory, then each warp walks along kRows of its rows, a lane on two channels with their filters in registers. A token
// that is read is used for all outputs it reaches: kSide columns of sums (or, for the gradient of the filter, of d_y)
// move along.
#include "cuda/layers/warp_rows.cuh"
#include "mhla/layers.hpp"

namespace mhla::cuda::layers {
namespace {

constexpr int kPair = 2, kGroup = kPair * kWarp;  // channels of a lane, of a warp
constexpr int kRows = 2, kTileWarps = 4, kThreads = kTileWarps * kWarp;
constexpr int kDown = kRows * kTileWarps, kAcross = 16;
constexpr std::int64_t kFilterSlots = 88;  // blocks for 64 channels that sum for the filter

// The tiles of all images, numbered.
struct Tiles {
  std::int64_t down, across, count;

  explicit Tiles(const Depthwise& p)
      : down((p.height + kDown - 1) / kDown), across((p.width + kAcross - 1) / kAcross),
        count(p.batch * down * across) {}
};

struct Tile {
  std::int64_t image;  // first token
  int top, left;
};

__device__ __forceinline__ Tile tile_of(const Depthwise& p, const Tiles& tiles, std::int64_t index) {
  std::int64_t rest, across, batch, down;
  rows::divide(index, tiles.across, rest, across);
  rows::divide(rest, tiles.down, batch, down);
  return {batch * p.height * p.width, static_cast<int>(down) * kDown, static_cast<int>(across) * kAcross};
}

// Tokens of a tile with a border of kBorder, [rows, columns, 64 channels]; zeros outside the image.
template <typename E, int kBorder>
struct Tokens {
  static constexpr int kHeight = kDown + 2 * kBorder, kWidth = kAcross + 2 * kBorder;
  alignas(16) E at[kHeight][kWidth][kGroup];

  // Starts the transfer; arrived() waits for it.
  __device__ void fetch(const Depthwise& p, const E* data, std::int64_t stride, const Tile& tile, int channel) {
    constexpr int kVector = 16 / sizeof(E), kVectors = kGroup / kVector;
    for (int i = static_cast<int>(threadIdx.x); i < kHeight * kWidth * kVectors; i += kThreads) {
      const int c = i % kVectors * kVector, column = i / kVectors % kWidth, row = i / kVectors / kWidth;
      const int y = tile.top - kBorder + row, x = tile.left - kBorder + column;
      const bool inside = y >= 0 && y < p.height && x >= 0 && x < p.width && channel + c < p.channels;
      const E* const from = inside ? data + (tile.image + y * p.width + x) * stride + channel + c : data;
      const auto to = static_cast<unsigned>(__cvta_generic_to_shared(&at[row][column][c]));
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(inside ? 16 : 0));
    }
  }
};

__device__ __forceinline__ void arrived() {
  asm volatile("cp.async.wait_all;" ::: "memory");
  __syncthreads();
}

// Moves a window of kSide columns by one.
template <int kSide>
__device__ __forceinline__ void advance(float (&window)[kRows][kSide][kPair]) {
#pragma unroll
  for (int r = 0; r < kRows; ++r)
#pragma unroll
    for (int d = 0; d + 1 < kSide; ++d)
#pragma unroll
      for (int i = 0; i < kPair; ++i) window[r][d][i] = window[r][d + 1][i];
}

// visit(row of output, row of the filter, column of the window) wherever a token meets an output.
template <int kSide, typename Visit>
__device__ __forceinline__ void for_each_meeting(Visit&& visit) {
#pragma unroll
  for (int r = 0; r < kRows; ++r)
#pragma unroll
    for (int down = 0; down < kSide; ++down)
#pragma unroll
      for (int d = 0; d < kSide; ++d) visit(r, down, d);
}

template <typename E, int kSide>
struct ForwardMemory {
  Tokens<E, kSide / 2> x;
  Tokens<E, 0> base;
  float filters[kGroup * kSide * kSide];
};

template <typename E, int kSide>
__global__ void __launch_bounds__(kThreads) depthwise_forward(Depthwise p, Tiles tiles, Depthwise::Forward args) {
  constexpr int kReach = kSide / 2, kRead = kRows + 2 * kReach, kTaps = kSide * kSide;
  extern __shared__ uint4 memory[];
  auto& shared = *reinterpret_cast<ForwardMemory<E, kSide>*>(memory);
  const int first = static_cast<int>(blockIdx.y) * kGroup, lane = static_cast<int>(threadIdx.x) % kWarp;
  const Tile tile = tile_of(p, tiles, blockIdx.x);
  shared.x.fetch(p, static_cast<const E*>(args.x.data), args.x.stride, tile, first);
  if (args.base != nullptr) shared.base.fetch(p, static_cast<const E*>(args.base), p.channels, tile, first);
  const int there = min(kGroup, static_cast<int>(p.channels) - first) * kTaps;
  for (int i = static_cast<int>(threadIdx.x); i < there; i += kThreads)
    load_any<1>(args.weight.data, args.weight.dtype, first * kTaps + i, 0.0F, &shared.filters[i]);
  arrived();
  const int channel = lane * kPair;
  if (first + channel >= p.channels) return;
  float filter[kSide][kSide][kPair], bias[kPair];
#pragma unroll
  for (int tap = 0; tap < kTaps; ++tap)
#pragma unroll
    for (int i = 0; i < kPair; ++i)
      filter[tap / kSide][tap % kSide][i] =
          shared.filters[(channel + i) * kTaps + (args.transposed ? kTaps - 1 - tap : tap)];
  load_any<kPair>(args.bias.data, args.bias.dtype, first + channel, 0.0F, bias);
  const int row = static_cast<int>(threadIdx.x) / kWarp * kRows;
  E* const y =
      static_cast<E*>(args.y) + (tile.image + (tile.top + row) * p.width + tile.left) * p.channels + first + channel;
  const int columns = min(kAcross, static_cast<int>(p.width) - tile.left);
  // The token in column `at` of the bordered tile reaches the outputs from at - 2 kReach, sums[..][0], to at.
  float sums[kRows][kSide][kPair] = {};
#pragma unroll kSide
  for (int at = 0; at < kAcross + 2 * kReach; ++at) {
    float tokens[kRead][kPair];
#pragma unroll
    for (int r = 0; r < kRead; ++r) load<kPair>(&shared.x.at[row + r][at][channel], tokens[r]);
#pragma unroll
    for (int r = 0; r < kRows; ++r)
#pragma unroll
      for (int i = 0; i < kPair; ++i) sums[r][kSide - 1][i] = bias[i];
    for_each_meeting<kSide>([&](int r, int down, int d) {
#pragma unroll
      for (int i = 0; i < kPair; ++i) sums[r][d][i] += filter[down][kSide - 1 - d][i] * tokens[r + down][i];
    });
    const int done = at - 2 * kReach;
    if (done >= 0 && done < columns) {
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        if (args.base != nullptr) {
          float base[kPair];
          load<kPair>(&shared.base.at[row + r][done][channel], base);
#pragma unroll
          for (int i = 0; i < kPair; ++i) sums[r][0][i] += base[i];
        }
        if (tile.top + row + r < p.height) store<kPair>(y + (r * p.width + done) * p.channels, sums[r][0]);
      }
    }
    advance<kSide>(sums);
  }
}

template <typename E, int kSide>
struct GradientMemory {
  Tokens<E, kSide / 2> x;
  Tokens<E, 0> d_y;
  float sums[kTileWarps][kGroup];
};

template <typename E, int kSide>
__global__ void __launch_bounds__(kThreads)
    depthwise_filter_gradient(Depthwise p, Tiles tiles, Depthwise::FilterGradient args) {
  constexpr int kReach = kSide / 2, kRead = kRows + 2 * kReach, kTaps = kSide * kSide;
  extern __shared__ uint4 memory[];
  auto& shared = *reinterpret_cast<GradientMemory<E, kSide>*>(memory);
  const int first = static_cast<int>(blockIdx.y) * kGroup, lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp, row = warp * kRows, channel = lane * kPair;
  float d_filter[kSide][kSide][kPair] = {}, d_bias[kPair] = {};
  for (std::int64_t index = blockIdx.x; index < tiles.count; index += gridDim.x) {
    const Tile tile = tile_of(p, tiles, index);
    shared.x.fetch(p, static_cast<const E*>(args.x.data), args.x.stride, tile, first);
    shared.d_y.fetch(p, static_cast<const E*>(args.d_y), p.channels, tile, first);
    arrived();
    float window[kRows][kSide][kPair] = {};  // d_y in the columns from at - 2 kReach, window[..][0], to at
#pragma unroll kSide
    for (int at = 0; at < kAcross + 2 * kReach; ++at) {
      float tokens[kRead][kPair];
#pragma unroll
      for (int r = 0; r < kRead; ++r) load<kPair>(&shared.x.at[row + r][at][channel], tokens[r]);
      advance<kSide>(window);
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        float entering[kPair] = {};
        if (at < kAcross) load<kPair>(&shared.d_y.at[row + r][at][channel], entering);
#pragma unroll
        for (int i = 0; i < kPair; ++i) {
          window[r][kSide - 1][i] = entering[i];
          d_bias[i] += entering[i];
        }
      }
      for_each_meeting<kSide>([&](int r, int down, int d) {
#pragma unroll
        for (int i = 0; i < kPair; ++i) d_filter[down][kSide - 1 - d][i] += window[r][d][i] * tokens[r + down][i];
      });
    }
    __syncthreads();
  }
  // The warps of a block have the same channels.
  float* const of_filter = args.partial + blockIdx.x * p.channels * kTaps;
  float* const of_bias = args.partial + (gridDim.x * kTaps + blockIdx.x) * p.channels;
#pragma unroll
  for (int tap = 0; tap <= kTaps; ++tap) {
#pragma unroll
    for (int i = 0; i < kPair; ++i)
      shared.sums[warp][channel + i] = tap < kTaps ? d_filter[tap % kTaps / kSide][tap % kSide][i] : d_bias[i];
    __syncthreads();
    const int mine = static_cast<int>(blockIdx.y) * kGroup + static_cast<int>(threadIdx.x);
    if (threadIdx.x < kGroup && mine < p.channels) {
      float sum = 0.0F;
#pragma unroll
      for (int w = 0; w < kTileWarps; ++w) sum += shared.sums[w][threadIdx.x];
      if (tap < kTaps)
        of_filter[mine * kTaps + tap] = sum;
      else
        of_bias[mine] = sum;
    }
    __syncthreads();
  }
}

template <typename Run>
void with_types(const Depthwise& p, Run&& run) {
  with_element(p.dtype, "depthwise", [&]<typename E>() {
    if (p.side == 3)
      run.template operator()<E, 3>();
    else
      run.template operator()<E, 5>();
  });
}

unsigned groups_of(const Depthwise& p) { return static_cast<unsigned>((p.channels + kGroup - 1) / kGroup); }

}  // namespace

std::int64_t Depthwise::partial_elements() const { return kFilterSlots * channels * (side * side + 1); }

void forward(const Depthwise& p, const Depthwise::Forward& args, void* stream) {
  const Tiles tiles(p);
  const dim3 grid(rows::grid_of(tiles.count, "depthwise"), groups_of(p));
  with_types(p, [&]<typename E, int kSide>() {
    launch("depthwise", depthwise_forward<E, kSide>, grid, kThreads, sizeof(ForwardMemory<E, kSide>),
           static_cast<cudaStream_t>(stream), p, tiles, args);
  });
}

void filter_gradient(const Depthwise& p, const Depthwise::FilterGradient& args, void* stream) {
  const dim3 grid(static_cast<unsigned>(kFilterSlots), groups_of(p));
  with_types(p, [&]<typename E, int kSide>() {
    launch("depthwise_filter_gradient", depthwise_filter_gradient<E, kSide>, grid, kThreads,
           sizeof(GradientMemory<E, kSide>), static_cast<cudaStream_t>(stream), p, Tiles(p), args);
  });
  const std::int64_t taps = static_cast<std::int64_t>(p.side) * p.side;
  launch_column_sums({{args.partial, p.channels * taps, args.d_weight},
                      {args.partial + kFilterSlots * p.channels * taps, p.channels, args.d_bias}},
                     kFilterSlots, static_cast<cudaStream_t>(stream));
}

}  // namespace mhla::cuda::layers
