// Features, rotation, and the operator or its state.
#include "nn/causal/mhla_attention.hpp"

#include <cmath>

#include "mhla/torch.hpp"
#include "nn/causal/block_memory.hpp"
#include "nn/causal/linear.hpp"
#include "nn/causal/mixing.hpp"

namespace mhla::nn {
namespace {

// Equal weights allow any blocks: few enough that mixing them, quadratic in their number, costs little.
std::int64_t linear_block_size(std::int64_t size, std::int64_t tokens) {
  constexpr std::int64_t kMostLinearBlocks = 256;
  while (tokens > kMostLinearBlocks * size) size *= 2;
  return size;
}

}  // namespace

CausalMhla::CausalMhla(const CausalOptions& options)
    : GatedProjections(options), q_map_(options.feature_map, options.key_width),
      k_map_(options.feature_map, options.key_width) {
  register_module("feature_map_q", q_map_);
  register_module("feature_map_k", k_map_);
  if (options.kind != CausalKind::mhla) return;
  const std::int64_t blocks = options.mixing.size(0);
  mixing_ = register_parameter("mixing_matrix", options.mixing.view({blocks, blocks, 1, 1, 1, 1}).clone(),
                               /*requires_grad=*/!options.mixing_frozen);
}

void CausalMhla::initialise() {
  q_map_->initialise();
  k_map_->initialise();
}

at::Tensor CausalMhla::matrix() const {
  return mixing_.defined() ? mixing_.flatten(1) : at::ones({1, 1}, parameters().front().options().requires_grad(false));
}

BeyondTrained CausalMhla::beyond() const { return mixing_.defined() ? options.beyond : BeyondTrained::clamp; }

double CausalMhla::scale() const {
  return 1.0 / std::sqrt(static_cast<double>(CausalMapLayerImpl::out_width(options.feature_map, options.key_width)));
}

DecodeConfig CausalMhla::decode_config() const {
  DecodeConfig config;
  config.heads = options.heads;
  config.kv_heads = options.kv_heads;
  config.key_dim = CausalMapLayerImpl::out_width(options.feature_map, options.key_width);
  config.value_dim = options.value_width;
  config.block_size = options.block_size;
  config.mixing_blocks = mixing_.defined() ? mixing_.size(0) : 1;
  config.options = {.feature_map = FeatureMap::identity,
                    .normalizer = Normalizer::none,
                    .masking = Masking::token_causal,
                    .scale = scale()};
  config.beyond = beyond();
  return config;
}

LayerState CausalMhla::new_state(std::int64_t batch, const at::TensorOptions& like) const {
  LayerState state = GatedProjections::new_state(batch, like);
  state.merge(new_block_memory(decode_config(), batch, like));
  return state;
}

void CausalMhla::reserve(LayerState& state, std::int64_t tokens) const {
  reserve_blocks(decode_config(), matrix(), state, tokens);
}

std::int64_t CausalMhla::room(const LayerState& state) const { return room_of_blocks(decode_config(), state); }

void CausalMhla::restored(LayerState& state, const at::Tensor& seen) const {
  state.at("tokens").copy_(seen);
  state.at("arrivals").zero_();
  open_block(decode_config(), matrix(), state);
}

at::Tensor CausalMhla::features(CausalMapLayer& map, const at::Tensor& x, const Line& line) {
  const auto& tables = line.rotary(options.key_width, options.rotary_base, accumulation_of(x));
  return std::get<0>(fused::rotary_features(map->apply(x), tables, {.feature_map = map->elementwise()}));
}

at::Tensor CausalMhla::mixed(const Heads& heads, const at::Tensor& /*x*/, const Line& line, LayerState* state) {
  const at::Tensor q = features(q_map_, heads.q, line), k = features(k_map_, heads.k, line);
  if (state != nullptr) return through_blocks(decode_config(), matrix(), *state, {q, k, heads.v}, line.seen());
  const std::int64_t longest = line.end();
  std::int64_t size = options.block_size;
  if (!mixing_.defined()) size = linear_block_size(size, longest);
  AttentionOptions call{.partition = Partition::line(q.size(1), size),
                        .feature_map = FeatureMap::identity,
                        .normalizer = Normalizer::none,
                        .masking = Masking::token_causal,
                        .scale = scale()};
  if (line.cu_seqlens().defined()) call.cu_seqlens = line.cu_seqlens();
  return attention(q, k, heads.v, extended_mixing(matrix(), (longest + size - 1) / size, beyond()), call);
}

}  // namespace mhla::nn
