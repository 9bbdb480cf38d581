#include <algorithm>

#include "cuda/readout/readout.hpp"

namespace mhla::cuda {

int readout_column_tiles(DType dtype, int columns, int depth) {
  int width = dtype == DType::f64 ? 32 : 64;
  if (dtype == DType::bf16 || dtype == DType::f16) {
    const int most = std::max(columns, std::min(depth, 128));
    width = most <= 32 ? 32 : most <= 64 ? 64 : 128;
  }
  return (columns + width - 1) / width;
}

}  // namespace mhla::cuda
