// The video transformer around its blocks: patches, time, text, head.
#include "models/wan/wan.hpp"

#include <fmt/format.h>

#include <cmath>

#include "models/base/mixing_parameters.hpp"
#include "nn/block_mixing.hpp"
#include "nn/recompute.hpp"

namespace mhla::models {
namespace {

constexpr double kLongestWave = 10000.0, kHeadEps = 1e-6;
constexpr std::int64_t kTimeParts = 6;  // shift, scale and gate, twice

torch::nn::Conv3d patches(const WanDesign& design) {
  const auto& patch = design.options.patch;
  const torch::ExpandingArray<3> sides({patch[0], patch[1], patch[2]});
  return torch::nn::Conv3d(torch::nn::Conv3dOptions(design.options.channels, design.width, sides).stride(sides));
}

std::int64_t head_outputs(const WanOptions& options) {
  return options.patch[0] * options.patch[1] * options.patch[2] * options.out_channels;
}

// Time and head are computed in float32, also under autocast and with weights of another type.
at::Tensor in_float(torch::nn::Linear& layer, const at::Tensor& x) {
  return at::linear(x, layer->weight.to(x.scalar_type()), layer->bias.to(x.scalar_type()));
}

at::ScalarType time_type(const at::Tensor& x) { return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat; }

}  // namespace

Wan::Wan(const WanDesign& design)
    : options(design.options), head_width_(design.width / design.heads),
      patch_embedding_(register_module("patch_embedding", patches(design))), text_in_(options.text_width, design.width),
      text_out_(design.width, design.width), time_in_(options.frequencies, design.width),
      time_out_(design.width, design.width), time_projection_(design.width, kTimeParts * design.width),
      head_(design.width, head_outputs(options)) {
  using torch::nn::Sequential;
  register_module("text_embedding", Sequential(text_in_, torch::nn::GELU(), text_out_));
  register_module("time_embedding", Sequential(time_in_, torch::nn::SiLU(), time_out_));
  register_module("time_projection", Sequential(torch::nn::SiLU(), time_projection_));
  const auto list = register_module("blocks", std::make_shared<torch::nn::Module>("blocks"));
  for (const nn::AttentionKind kind : design.attention) {
    blocks_.push_back(std::make_shared<WanBlock>(design.attention_options(kind), design.mlp_width));
    list->register_module(std::to_string(blocks_.size() - 1), blocks_.back());
  }
  const auto last = register_module("head", std::make_shared<torch::nn::Module>("head"));
  last->register_module("head", head_);
  head_modulation_ = last->register_parameter("modulation", torch::zeros({1, 2, design.width}));
  initialise();
}

// As Wan starts, with the head at zero; so is the convolution of v.
void Wan::initialise() {
  const torch::NoGradGuard no_gradient;
  constexpr double kSpread = 0.02;
  for (const auto& module : modules(/*include_self=*/false))
    if (auto* linear = module->as<torch::nn::LinearImpl>()) {
      torch::nn::init::xavier_uniform_(linear->weight);
      torch::nn::init::zeros_(linear->bias);
    }
  torch::nn::init::xavier_uniform_(patch_embedding_->weight.flatten(1));
  for (auto& layer : {text_in_, text_out_, time_in_, time_out_}) torch::nn::init::normal_(layer->weight, 0.0, kSpread);
  torch::nn::init::zeros_(head_->weight);
  for (auto& item : named_parameters()) {
    if (item.key().ends_with("modulation"))
      item.value().normal_().div_(std::sqrt(static_cast<double>(item.value().size(2))));
    if (item.key().find(".lepe.") != std::string::npos) item.value().zero_();
  }
}

VideoGrid Wan::grid_of(const at::Tensor& x) const {
  const auto& patch = options.patch;
  if (x.dim() != 5 || x.size(1) != options.channels || x.size(2) < 1 || x.size(3) < 1 || x.size(4) < 1 ||
      x.size(2) % patch[0] != 0 || x.size(3) % patch[1] != 0 || x.size(4) % patch[2] != 0)
    throw Error(
        fmt::format("latents have shape {}; it must be [batch, {}, frames, height, width], the last three "
                    "multiples of {}, {} and {}",
                    c10::str(x.sizes()), options.channels, patch[0], patch[1], patch[2]));
  return {x.size(2) / patch[0], x.size(3) / patch[1], x.size(4) / patch[2]};
}

at::Tensor Wan::embedded(const std::vector<at::Tensor>& states) {
  const at::TensorOptions like = text_in_->weight.options();
  std::vector<at::Tensor> filled;
  filled.reserve(states.size());
  for (const at::Tensor& row : states) {
    if (row.dim() != 2 || row.size(1) != options.text_width || row.size(0) > options.text_tokens)
      throw Error(fmt::format("states of a text have shape {}; it must be [at most {} tokens, {}]",
                              c10::str(row.sizes()), options.text_tokens, options.text_width));
    filled.push_back(at::constant_pad_nd(row.to(like), {0, 0, 0, options.text_tokens - row.size(0)}));
  }
  if (filled.empty()) throw Error("states of a text: there are none; there must be one for each video");
  return text_out_->forward(at::gelu(text_in_->forward(at::stack(filled)), "tanh"));
}

WanText Wan::text(const std::vector<at::Tensor>& states) {
  const at::Tensor embedding = embedded(states);
  WanText result;
  result.reserve(blocks_.size());
  for (const auto& block : blocks_) result.push_back(block->cross_attn->keys_values(embedding));
  return result;
}

Wan::Condition Wan::condition(const at::Tensor& t) {
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  const std::int64_t count = options.frequencies / 2;
  const auto k = torch::arange(count, t.options().dtype(at::kDouble));
  const at::Tensor frequencies = at::exp(k * (-std::log(kLongestWave) / static_cast<double>(count)));
  const at::Tensor angles = t.to(at::kDouble).unsqueeze(1) * frequencies;
  const at::Tensor waves = at::cat({angles.cos(), angles.sin()}, 1).to(time_type(time_in_->weight));
  const at::Tensor e = in_float(time_out_, at::silu(in_float(time_in_, waves)));
  return {e, in_float(time_projection_, at::silu(e)).unflatten(1, {kTimeParts, -1})};
}

const fused::RotaryTables& Wan::rotary(VideoGrid grid, const at::Tensor& like) {
  const auto type = time_type(like);
  if (rotary_for_ != grid || rotary_.cos.device() != like.device() || rotary_.cos.scalar_type() != type) {
    rotary_ = fused::RotaryTables::grid({grid.frames, grid.height, grid.width}, head_width_,
                                        fused::RotaryLayout::adjacent, at::TensorOptions(like.device()).dtype(type));
    rotary_for_ = grid;
  }
  return rotary_;
}

at::Tensor Wan::head(const at::Tensor& x, const at::Tensor& e, VideoGrid grid) {
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  const auto& patch = options.patch;
  const auto parts = (head_modulation_.to(e.scalar_type()) + e.unsqueeze(1)).unbind(1);
  const at::Tensor normed = fused::modulate(x.to(e.scalar_type()), parts[1], parts[0], {}, {}, kHeadEps);
  return in_float(head_, normed)  // [B, N, patch frames, rows and columns, channels]
      .view({x.size(0), grid.frames, grid.height, grid.width, patch[0], patch[1], patch[2], options.out_channels})
      .permute({0, 7, 1, 4, 2, 5, 3, 6})
      .reshape(
          {x.size(0), options.out_channels, grid.frames * patch[0], grid.height * patch[1], grid.width * patch[2]});
}

at::Tensor Wan::run(const at::Tensor& x, const at::Tensor& t, const BlockCall& block) {
  const VideoGrid grid = grid_of(x);
  if (t.dim() != 1 || t.size(0) != x.size(0))
    throw Error(
        fmt::format("times have shape {}; it must be [{}], one for each video", c10::str(t.sizes()), x.size(0)));
  const Condition time = condition(t);
  at::Tensor tokens =
      video_tokens(patch_embedding_->forward(x.to(patch_embedding_->weight.scalar_type()))).contiguous();
  const fused::RotaryTables& tables = rotary(grid, tokens);
  for (std::size_t layer = 0; layer < blocks_.size(); ++layer) tokens = block(layer, tokens, time, grid, tables);
  return head(tokens, time.e, grid);
}

at::Tensor Wan::forward(const at::Tensor& x, const at::Tensor& t, const WanText& text) {
  if (text.size() != blocks_.size())
    throw Error(fmt::format("text has keys and values of {} layers; the model has {}", text.size(), blocks_.size()));
  return run(x, t,
             [&](std::size_t layer, const at::Tensor& tokens, const Condition& time, VideoGrid grid,
                 const fused::RotaryTables& tables) {
               return blocks_[layer]->forward(tokens, time.e0, text[layer], grid, tables);
             });
}

// In training each layer makes its keys and values itself, so that it can be run again.
at::Tensor Wan::forward(const at::Tensor& x, const at::Tensor& t, const std::vector<at::Tensor>& states) {
  if (!options.recompute || !at::GradMode::is_enabled()) return forward(x, t, text(states));
  const at::Tensor embedding = embedded(states);
  return run(x, t,
             [&](std::size_t layer, const at::Tensor& tokens, const Condition& time, VideoGrid grid,
                 const fused::RotaryTables& tables) {
               const auto& block = blocks_[layer];
               const auto again = [block, grid, tables, type = embedding.scalar_type()](const at::Tensor& kept,
                                                                                        const at::Tensor& given) {
                 const WanKeysValues text = block->cross_attn->keys_values(given.slice(1, kTimeParts).to(type));
                 return block->forward(kept, given.slice(1, 0, kTimeParts), text, grid, tables);
               };
               return nn::recompute(again, tokens, at::cat({time.e0, embedding.to(time.e0.scalar_type())}, 1));
             });
}

bool Wan::decays(const std::string& name) const { return !is_mixing(name) && !name.ends_with("modulation"); }

void Wan::after_step() {
  std::vector<at::Tensor> matrices;
  matrices.reserve(blocks_.size());
  for (const auto& block : blocks_) matrices.push_back(block->self_attn->mixing());
  nn::project_mixing_(learned_mixing(matrices));
}

}  // namespace mhla::models
