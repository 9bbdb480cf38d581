// What is asked of the strides a caller gives: that addresses can be computed, and that no two elements of an output
// share memory.
#pragma once

#include <cstdint>

#include "mhla/attention.hpp"

namespace mhla {

// Of a [batch, tokens, heads, dim] tensor.
struct TokenSizes {
  std::int64_t batch = 0, tokens = 0, heads = 0, dim = 0;

  bool empty() const { return batch == 0 || tokens == 0 || heads == 0 || dim == 0; }
};

void require_reach(const char* name, const ConstTensor& x, const TokenSizes& sizes);

// An input: rows may overlap, as those of an expanded tensor do. The usual ones are known to
// lie within reach without a product.
inline void require_strides(const char* name, const ConstTensor& x, const TokenSizes& sizes) {
  constexpr std::int64_t kFew = std::int64_t{1} << 19, kClose = std::int64_t{1} << 40;
  const auto close = [](std::int64_t stride) { return stride > -kClose && stride < kClose; };
  const bool usual = sizes.batch < kFew && sizes.tokens < kFew && sizes.heads < kFew && close(x.batch_stride) &&
                     close(x.token_stride) && close(x.head_stride);
  if (!usual) require_reach(name, x, sizes);
}

// An output: in the order of the strides, each axis steps over all that the axes before it cover.
void require_apart(const char* name, const Tensor& x, const TokenSizes& sizes);

}  // namespace mhla
