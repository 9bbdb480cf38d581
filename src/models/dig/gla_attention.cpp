// Keys of half the width, decays from a bottleneck, and an output that is normalised head by head and gated.
#include "models/dig/gla_attention.hpp"

#include <cmath>

#include "mhla/fused_torch.hpp"
#include "nn/gla.hpp"

namespace mhla::models {
namespace {

constexpr std::int64_t kDecayRank = 16;
constexpr double kDecayDivisor = 16.0;
constexpr double kNormEps = 1e-6;

torch::nn::Linear without_bias(std::int64_t from, std::int64_t to) {
  return torch::nn::Linear(torch::nn::LinearOptions(from, to).bias(false));
}

}  // namespace

GlaAttentionImpl::GlaAttentionImpl(std::int64_t dim, std::int64_t heads)
    : heads(heads), q_proj(register_module("q_proj", without_bias(dim, dim / 2))),
      k_proj(register_module("k_proj", without_bias(dim, dim / 2))),
      v_proj(register_module("v_proj", without_bias(dim, dim))),
      g_proj(register_module("g_proj", without_bias(dim, dim))),
      o_proj(register_module("o_proj", without_bias(dim, dim))), decay_in(without_bias(dim, kDecayRank)),
      decay_out(kDecayRank, dim / 2) {
  register_module("gk_proj", torch::nn::Sequential(decay_in, decay_out));
  auto norm = register_module("g_norm_swish_gate", std::make_shared<torch::nn::Module>("g_norm_swish_gate"));
  norm_weight = norm->register_parameter("weight", torch::ones({dim / heads}));
}

void GlaAttentionImpl::initialise() {
  for (torch::nn::Linear* const linear : {&q_proj, &k_proj, &v_proj, &g_proj, &o_proj, &decay_in, &decay_out})
    torch::nn::init::xavier_uniform_((*linear)->weight, std::exp2(-2.5));
}

at::Tensor GlaAttentionImpl::forward(const at::Tensor& x) {
  const auto by_head = [this](const at::Tensor& y) { return y.unflatten(2, {heads, -1}); };
  const at::Tensor log_decay = at::log_sigmoid(decay_out->forward(decay_in->forward(x))) / kDecayDivisor;
  const at::Tensor o =
      nn::gla(by_head(q_proj->forward(x)), by_head(k_proj->forward(x)), by_head(v_proj->forward(x)), by_head(log_decay))
          .o;
  const at::Tensor gated =
      fused::gated_norm(o, norm_weight, by_head(g_proj->forward(x)), fused::NormScope::head, kNormEps);
  return o_proj->forward(gated.flatten(2));
}

}  // namespace mhla::models
