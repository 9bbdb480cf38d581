// Decays from a bottleneck, then the operator.
#include "nn/causal/gla_attention.hpp"

#include <limits>

#include "nn/causal/linear.hpp"
#include "nn/gla.hpp"

namespace mhla::nn {
namespace {

constexpr std::int64_t kDecayRank = 16;
constexpr double kDecayDivisor = 16.0;

}  // namespace

CausalGla::CausalGla(const CausalOptions& options)
    : GatedProjections(options), decay_in_(without_bias(options.dim, kDecayRank)),
      decay_out_(kDecayRank, options.kv_heads * options.key_width) {
  register_module("gk_proj", torch::nn::Sequential(decay_in_, decay_out_));
}

LayerState CausalGla::new_state(std::int64_t batch, const at::TensorOptions& like) const {
  LayerState state = GatedProjections::new_state(batch, like);
  const bool wide = like.dtype() == caffe2::TypeMeta::Make<double>();
  state["S"] = at::zeros({batch, options.heads, options.key_width, options.value_width},
                         like.dtype(wide ? at::kDouble : at::kFloat));
  return state;
}

at::Tensor CausalGla::mixed(const Heads& heads, const at::Tensor& x, const Line& line, LayerState* state) {
  at::Tensor log_decay = at::log_sigmoid(projected(projected(x, decay_in_), decay_out_)) / kDecayDivisor;
  if (!line.documents().empty())  // a document begins with nothing
    log_decay = log_decay.masked_fill((line.positions() == 0).unsqueeze(2), -std::numeric_limits<double>::infinity());
  const std::int64_t group = options.heads / options.kv_heads;
  const auto repeated = [&](const at::Tensor& y) { return group == 1 ? y : y.repeat_interleave(group, 2); };
  const auto [o, last] =
      gla(heads.q, repeated(heads.k), repeated(heads.v), repeated(by_head(log_decay, options.kv_heads)),
          {.initial_state = state == nullptr ? at::Tensor() : state->at("S")});
  if (state != nullptr) state->at("S").copy_(last);
  return o;
}

}  // namespace mhla::nn
