// The block on tokens; 1x1 convolutions are matrix products.
#include "models/vlt/vlt_block.hpp"

#include "nn/convolution.hpp"
#include "nn/drop_path.hpp"

namespace mhla::models {
namespace {

constexpr double kNormEps = 1e-6;

std::int64_t feed_forward_width(std::int64_t dim) { return dim * 7 / 2; }

}  // namespace

VltFeedForwardImpl::VltFeedForwardImpl(std::int64_t dim, std::int64_t hidden)
    : fc1_(register_module("fc1", nn::pointwise(dim, hidden))),
      dwconv_(register_module("dwconv", nn::depthwise(hidden, 3))),
      fc2_(register_module("fc2", nn::pointwise(hidden, dim))) {}

at::Tensor VltFeedForwardImpl::forward(const at::Tensor& x, nn::Grid grid) {
  const at::Tensor hidden = at::gelu(nn::projected(fc1_, x));
  return nn::projected(fc2_, nn::add_convolved(hidden, dwconv_, hidden, grid));
}

VltBlock::VltBlock(const VltAttentionOptions& options, double layer_scale)
    : pos_(register_module("pos", nn::depthwise(options.dim, 3))), norm1_(nn::NormKind::layer, options.dim, kNormEps),
      norm2_(nn::NormKind::layer, options.dim, kNormEps),
      attn_(register_module("attn", std::make_shared<VltAttention>(options))),
      ffn_(register_module("ffn", VltFeedForward(options.dim, feed_forward_width(options.dim)))),
      gamma_1_(register_parameter("gamma_1", torch::full({1, options.dim, 1, 1}, layer_scale))),
      gamma_2_(register_parameter("gamma_2", torch::full({1, options.dim, 1, 1}, layer_scale))) {
  register_module("norm1", std::make_shared<torch::nn::Module>("norm1"))->register_module("norm", norm1_);
  register_module("norm2", std::make_shared<torch::nn::Module>("norm2"))->register_module("norm", norm2_);
}

at::Tensor VltBlock::with_positions(const at::Tensor& x, nn::Grid grid) { return nn::add_convolved(x, pos_, x, grid); }

at::Tensor VltBlock::forward(const at::Tensor& x, nn::Grid grid, const fused::RotaryTables& rotary,
                             const at::Tensor& drop) {
  const auto factors = [&](std::int64_t branch) { return drop.defined() ? drop[branch] : at::Tensor(); };
  at::Tensor y = with_positions(x, grid);
  y = nn::add_branch(y, attn_->forward(norm1_->forward(y), grid, rotary) * gamma_1_.flatten(), factors(0));
  return nn::add_branch(y, ffn_->forward(norm2_->forward(y), grid) * gamma_2_.flatten(), factors(1));
}

at::Tensor VltBlock::attention_weights(const at::Tensor& x, nn::Grid grid, const fused::RotaryTables& rotary) {
  return attn_->weights(norm1_->forward(with_positions(x, grid)), grid, rotary);
}

}  // namespace mhla::models
