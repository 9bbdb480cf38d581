// One product per tap.
#include "nn/causal/short_convolution.hpp"

#include <cmath>

#include "nn/projection.hpp"

namespace mhla::nn {

ShortConvolutionImpl::ShortConvolutionImpl(std::int64_t channels) {
  weight = register_parameter("weight", torch::empty({channels, 1, kTaps}));
  torch::nn::init::uniform_(weight, -1.0 / std::sqrt(kTaps), 1.0 / std::sqrt(kTaps));
}

at::Tensor ShortConvolutionImpl::forward(const at::Tensor& x, const Line& line, const at::Tensor& before) {
  constexpr std::int64_t kBefore = kTaps - 1;
  const std::int64_t tokens = x.size(1);
  const at::Tensor all =
      before.defined() ? at::cat({before.to(x.scalar_type()), x}, 1) : at::constant_pad_nd(x, {0, 0, kBefore, 0});
  const auto taps = weight.squeeze(1).to(x.scalar_type()).unbind(1);
  at::Tensor y = x * taps[kBefore];
  for (std::int64_t back = 1; back < kTaps; ++back) {
    at::Tensor earlier = all.narrow(1, kBefore - back, tokens);
    if (!line.documents().empty()) earlier = earlier * (line.positions() >= back).unsqueeze(2);
    y = at::addcmul(y, earlier, taps[static_cast<std::size_t>(kBefore - back)]);
  }
  if (before.defined()) before.copy_(all.slice(1, tokens));
  return silu_of(y);
}

}  // namespace mhla::nn
