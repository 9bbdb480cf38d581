// What is asked of the strides a caller gives: that addresses can be computed, and that no two elements of an output
// share memory. The usual strides are recognised here, all others are looked at in strides.cpp.
#pragma once

#include <cstdint>

#include "mhla/attention.hpp"

namespace mhla {

// Of a [batch, tokens, heads, dim] tensor.
struct TokenSizes {
  std::int64_t batch = 0, tokens = 0, heads = 0, dim = 0;

  bool empty() const { return batch == 0 || tokens == 0 || heads == 0 || dim == 0; }
};

void require_any_strides(const char* name, const ConstTensor& x, const TokenSizes& sizes);
void require_any_apart(const char* name, const Tensor& x, const TokenSizes& sizes);

// Few rows, not far from one another.
template <typename Pointer>
bool is_within_reach(const BasicTensor<Pointer>& x, const TokenSizes& sizes) {
  constexpr std::int64_t kFew = std::int64_t{1} << 19, kClose = std::int64_t{1} << 40;
  const auto close = [](std::int64_t stride) { return stride > -kClose && stride < kClose; };
  return sizes.batch < kFew && sizes.tokens < kFew && sizes.heads < kFew && close(x.batch_stride) &&
         close(x.token_stride) && close(x.head_stride);
}

// An input: rows may overlap, as those of an expanded tensor do.
inline void require_strides(const char* name, const ConstTensor& x, const TokenSizes& sizes) {
  if (!is_within_reach(x, sizes)) require_any_strides(name, x, sizes);
}

// An output: in the order of the strides, each axis steps over all that the axes before it cover. Usually heads lie in
// tokens and tokens in batch rows.
inline void require_apart(const char* name, const Tensor& x, const TokenSizes& sizes) {
  if (is_within_reach(x, sizes)) {
    const std::int64_t of_token = sizes.dim + (sizes.heads - 1) * x.head_stride;
    const std::int64_t of_row = of_token + (sizes.tokens - 1) * x.token_stride;
    if ((sizes.heads == 1 || x.head_stride >= sizes.dim) && (sizes.tokens == 1 || x.token_stride >= of_token) &&
        (sizes.batch == 1 || x.batch_stride >= of_row))
      return;
  }
  require_any_apart(name, x, sizes);
}

}  // namespace mhla
