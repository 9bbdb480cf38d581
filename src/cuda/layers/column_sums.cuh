// Sums over tokens: blocks write partial sums of their rows, one more launch adds those up in order.
#pragma once

#include <cuda_runtime.h>

#include <initializer_list>

#include "cuda/support/rows.cuh"

namespace mhla::cuda::layers {

// Blocks that walk over rows: enough to fill a large GPU twice. A constant, so that sums do not depend on the device.
constexpr std::int64_t kSlots = 264;

struct ColumnSum {
  const float* partial = nullptr;  // [slots, width]
  std::int64_t width = 0;
  fused::Vector sum{};  // null: not wanted
};

struct ColumnSums {
  static constexpr int kMost = 3;
  ColumnSum of[kMost];
};

// One block for 32 columns of one of the sums.
template <typename T>
__global__ void __launch_bounds__(rows::kWarp* rows::kWarp) column_sums(ColumnSums sums, std::int64_t slots) {
  const ColumnSum of = blockIdx.y == 0 ? sums.of[0] : blockIdx.y == 1 ? sums.of[1] : sums.of[2];
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * rows::kWarp + threadIdx.x;
  const bool inside = column < of.width && of.sum.data != nullptr;
  const T sum =
      rows::slot_sum<T>(slots, [&](std::int64_t slot) { return inside ? of.partial[slot * of.width + column] : T(0); });
  if (inside && threadIdx.y == 0) rows::store_any<1>(of.sum.data, of.sum.dtype, column, &sum);
}

inline void launch_column_sums(std::initializer_list<ColumnSum> wanted, std::int64_t slots, cudaStream_t stream) {
  ColumnSums sums;
  unsigned count = 0;
  std::int64_t width = 0;
  for (const ColumnSum& one : wanted) {
    sums.of[count++] = one;
    width = std::max(width, one.width);
  }
  const dim3 grid(static_cast<unsigned>((width + rows::kWarp - 1) / rows::kWarp), count);
  column_sums<float><<<grid, dim3(rows::kWarp, rows::kWarp), 0, stream>>>(sums, slots);
  check(cudaGetLastError(), "sums over tokens");
}

}  // namespace mhla::cuda::layers
