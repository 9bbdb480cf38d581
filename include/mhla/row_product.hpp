// Few rows times a large matrix on the CPU: the linear layers of a model that makes its tokens one by one.
//
//   y[r, o] = sum_k x[r, k] weight[o, k]
//
// An element of y depends on its row of x and its row of the matrix alone, to the bit: not on the other rows, nor on
// their number, nor on the threads. So a sequence has the same tokens alone and in any batch.
#pragma once

#include <cstdint>

#include "mhla/attention.hpp"

namespace mhla {

struct RowProduct {
  std::int64_t rows = 0, inputs = 0, outputs = 0;
  DType dtype = DType::f32;  // f32 or f64, of all tensors

  struct Args {
    const void* x = nullptr;       // [rows, inputs], contiguous
    const void* weight = nullptr;  // [outputs, inputs], contiguous
    void* y = nullptr;             // [rows, outputs], contiguous
    Execution run;                 // no workspace
  };
};

void row_product(const RowProduct& p, const RowProduct::Args& args);

}  // namespace mhla
