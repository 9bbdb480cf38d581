// The gradient of a norm's weight: the sum of the slots the backward kernels have written.
#pragma once

#include "cuda/support/rows.cuh"

namespace mhla::cuda::rows {

// One block for 32 columns of partial [slots, width].
template <typename T>
__global__ void __launch_bounds__(kWarp* kWarp)
    add_slots(const T* partial, std::int64_t slots, std::int64_t width, fused::Vector d_weight) {
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kWarp + threadIdx.x;
  const bool inside = column < width;
  const T sum = slot_sum<T>(slots, [&](std::int64_t slot) { return inside ? partial[slot * width + column] : T(0); });
  if (inside && threadIdx.y == 0) store_any<1>(d_weight.data, d_weight.dtype, column, &sum);
}

template <typename T>
void launch_add_slots(const void* partial, std::int64_t slots, std::int64_t width, const fused::Vector& d_weight,
                      cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>((width + kWarp - 1) / kWarp);
  add_slots<<<blocks, dim3(kWarp, kWarp), 0, stream>>>(static_cast<const T*>(partial), slots, width, d_weight);
  check(cudaGetLastError(), "gradient of weight");
}

}  // namespace mhla::cuda::rows
