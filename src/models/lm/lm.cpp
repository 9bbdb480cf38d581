// From ids to logits, at once or from state to state.
#include "models/lm/lm.hpp"

#include <ATen/autocast_mode.h>
#include <fmt/format.h>

#include "mhla/types.hpp"
#include "models/base/mixing_parameters.hpp"
#include "nn/block_mixing.hpp"
#include "nn/projection.hpp"
#include "nn/recompute.hpp"
#include "nn/residual.hpp"

namespace mhla::models {
namespace {

constexpr double kLmInitialDeviation = 0.02;

}  // namespace

Lm::Lm(const LmDesign& design) : options(design.options), embeddings_(options.vocabulary, design.width) {
  auto inner = register_module("model", std::make_shared<torch::nn::Module>("model"));
  inner->register_module("embeddings", embeddings_);
  auto list = inner->register_module("layers", std::make_shared<torch::nn::Module>("layers"));
  for (std::size_t layer = 0; layer < design.attention.size(); ++layer) {
    blocks_.push_back(std::make_shared<LmBlock>(design.attention_options(layer), design.mlp_width));
    list->register_module(std::to_string(layer), blocks_.back());
  }
  norm_ = inner->register_module("norm", nn::Norm(nn::NormKind::rms, design.width, options.norm_eps));
  if (!options.tied)
    head_ = register_module("lm_head",
                            torch::nn::Linear(torch::nn::LinearOptions(design.width, options.vocabulary).bias(false)));
  initialise();
}

void Lm::initialise() {
  const torch::NoGradGuard no_gradient;
  embeddings_->weight.normal_(0.0, kLmInitialDeviation);
  for (const auto& module : modules(/*include_self=*/false))
    if (auto* const linear = module->as<torch::nn::Linear>()) {
      linear->weight.normal_(0.0, kLmInitialDeviation);
      if (linear->bias.defined()) linear->bias.zero_();
    }
  for (const auto& block : blocks_) block->attn->initialise();
}

void Lm::check_ids(const at::Tensor& ids) const {
  if (ids.dim() != 2 || ids.scalar_type() != at::kLong)
    throw Error(fmt::format("ids is a tensor of {} with {} axes; it must be int64 [batch, tokens]",
                            c10::toString(ids.scalar_type()), ids.dim()));
  if (!ids.is_cpu() || ids.numel() == 0) return;
  const auto least = ids.min().item<std::int64_t>(), most = ids.max().item<std::int64_t>();
  if (least < 0 || most >= options.vocabulary)
    throw Error(fmt::format("ids go from {} to {}; they may be 0 to {}", least, most, options.vocabulary - 1));
}

at::Tensor Lm::through_blocks(const at::Tensor& ids, const nn::Line& line, LmState* state) const {
  const at::Tensor on_device = ids.to(embeddings_->weight.device());
  nn::Residual x(at::embedding(embeddings_->weight, on_device));
  for (std::size_t layer = 0; layer < blocks_.size(); ++layer) {
    const auto run = [block = blocks_[layer], line](const at::Tensor& tokens) {
      nn::Residual part(tokens);
      block->forward(part, line);
      return part.value();
    };
    if (state == nullptr && options.recompute)
      x = nn::Residual(nn::recompute(run, x.value()));
    else
      blocks_[layer]->forward(x, line, state == nullptr ? nullptr : &state->layers()[layer]);
  }
  return x.normed(*norm_);
}

at::Tensor Lm::hidden(const at::Tensor& ids, const Documents& documents) {
  check_ids(ids);
  const at::Device device = embeddings_->weight.device();
  if (documents.empty()) return through_blocks(ids, nn::Line(ids.size(1), device), nullptr);
  nn::check_documents(documents, ids.size(0), ids.size(1));
  return through_blocks(ids.reshape({1, -1}), nn::Line(documents, device), nullptr)
      .view({ids.size(0), ids.size(1), -1});
}

at::Tensor Lm::logits(const at::Tensor& hidden) { return at::linear(hidden, output_weight()); }

// In which matrix products are made.
at::TensorOptions Lm::activations() const {
  const at::Tensor& weight = embeddings_->weight;
  const auto device = weight.device().type();
  return weight.options().requires_grad(false).dtype(
      at::autocast::is_autocast_enabled(device) ? at::autocast::get_autocast_dtype(device) : weight.scalar_type());
}

LmState Lm::new_state(std::int64_t batch, std::int64_t tokens) const {
  if (batch < 1) throw Error(fmt::format("batch is {}; it must be at least 1", batch));
  const torch::NoGradGuard no_gradient;
  std::vector<nn::LayerState> layers;
  for (const auto& block : blocks_) {
    layers.push_back(block->attn->new_state(batch, activations()));
    block->attn->reserve(layers.back(), std::max<std::int64_t>(tokens, 1));
  }
  return {std::move(layers), batch, embeddings_->weight.device()};
}

void Lm::reserve(LmState& state, std::int64_t tokens) const {
  const torch::NoGradGuard no_gradient;
  for (std::size_t layer = 0; layer < blocks_.size(); ++layer)
    blocks_[layer]->attn->reserve(state.layers()[layer], tokens);
}

LmState Lm::state_with(const std::vector<std::int64_t>& seen, const StateTensor& tensor) const {
  const torch::NoGradGuard no_gradient;
  const auto batch = static_cast<std::int64_t>(seen.size());
  LmState state({}, batch, embeddings_->weight.device());
  state.set_seen(seen);
  for (std::size_t layer = 0; layer < blocks_.size(); ++layer) {
    nn::LayerState parts = blocks_[layer]->attn->new_state(batch, activations());
    for (auto& [name, part] : parts) part = tensor(layer, name, part);
    if (blocks_[layer]->attn->room(parts) < state.most_seen())
      throw Error(
          fmt::format("state of layer {} has no room for the {} tokens that a row has seen", layer, state.most_seen()));
    blocks_[layer]->attn->restored(parts, state.positions());
    state.layers().push_back(std::move(parts));
  }
  return state;
}

at::Tensor Lm::extend(LmState& state, const at::Tensor& ids) const {
  check_ids(ids);
  if (ids.size(0) != state.batch() || ids.size(1) < 1)
    throw Error(fmt::format("ids are [{}, {}]; the state has {} rows, and at least one token is needed", ids.size(0),
                            ids.size(1), state.batch()));
  if (state.layers().size() != blocks_.size())
    throw Error(fmt::format("state has {} layers; the model has {}", state.layers().size(), blocks_.size()));
  const torch::NoGradGuard no_gradient;
  const std::int64_t tokens = ids.size(1);
  reserve(state, state.most_seen() + tokens);
  const bool same = state.same_position();
  if (same || tokens == 1) {
    at::Tensor x = through_blocks(ids, nn::Line(tokens, state.positions(), state.most_seen(), same), &state);
    state.advance(tokens);
    return x;
  }
  std::vector<at::Tensor> outputs;
  std::vector<std::int64_t> seen = state.seen();
  for (std::int64_t index = 0; index < state.batch(); ++index) {
    LmState row = state.row(index);
    outputs.push_back(extend(row, ids.narrow(0, index, 1)));
    seen[static_cast<std::size_t>(index)] += tokens;
  }
  state.set_seen(std::move(seen));
  return at::cat(outputs);
}

at::Tensor Lm::prefill(LmState& state, const at::Tensor& ids) {
  const at::Tensor x = extend(state, ids);
  const torch::NoGradGuard no_gradient;
  return nn::projected(x.narrow(1, x.size(1) - 1, 1), output_weight()).squeeze(1);
}

at::Tensor Lm::prefill(LmState& state, const std::vector<at::Tensor>& prompts) {
  if (static_cast<std::int64_t>(prompts.size()) != state.batch())
    throw Error(fmt::format("prompts are {}; the state has {} rows", prompts.size(), state.batch()));
  std::int64_t longest = 0;
  for (const at::Tensor& prompt : prompts) {
    if (prompt.dim() != 1 || prompt.size(0) < 1) throw Error("prompts hold one that is not a list of at least one id");
    longest = std::max(longest, prompt.size(0));
  }
  reserve(state, state.most_seen() + longest);  // rows cannot grow on their own
  std::vector<at::Tensor> outputs;
  std::vector<std::int64_t> seen;
  for (std::int64_t index = 0; index < state.batch(); ++index) {
    LmState row = state.row(index);
    outputs.push_back(prefill(row, prompts[static_cast<std::size_t>(index)].unsqueeze(0)));
    seen.push_back(row.seen().front());
  }
  state.set_seen(std::move(seen));
  return at::cat(outputs);
}

std::vector<at::Tensor> Lm::mixing_parameters() const {
  std::vector<at::Tensor> parameters;
  parameters.reserve(blocks_.size());
  for (const auto& block : blocks_) parameters.push_back(block->attn->mixing());
  return parameters;
}

bool Lm::decays(const std::string& name) const { return !is_mixing(name); }

void Lm::after_step() { nn::project_mixing_(learned_mixing(mixing_parameters())); }

}  // namespace mhla::models
