// From noised latents and a text to the velocity of the flow.
#include "models/sana/sana.hpp"

#include <fmt/format.h>

#include <cmath>

#include "models/base/mixing_parameters.hpp"
#include "nn/modulated.hpp"

namespace mhla::models {
namespace {

constexpr double kCaptionNormEps = 1e-5, kCaptionScale = 0.01, kInitialDeviation = 0.02;
constexpr double kPaddingScore = -10000.0;

std::shared_ptr<torch::nn::Module> part(torch::nn::Module& parent, const char* name) {
  return parent.register_module(name, std::make_shared<torch::nn::Module>(name));
}

}  // namespace

Sana::Sana(const SanaDesign& design)
    : options(design.options), width_(design.width), patches_(options.channels, width_, options.patch), times_(width_),
      time_modulation_(width_, 6 * width_), out_(width_, options.patch * options.patch * options.channels),
      caption_in_(options.caption_width, width_), caption_out_(width_, width_),
      caption_norm_(nn::NormKind::rms, width_, kCaptionNormEps) {
  register_module("x_embedder", patches_);
  register_module("t_embedder", times_);
  register_module("t_block", torch::nn::Sequential(torch::nn::SiLU(), time_modulation_));
  const auto captions = part(*part(*this, "y_embedder"), "y_proj");
  captions->register_module("fc1", caption_in_);
  captions->register_module("fc2", caption_out_);
  register_module("attention_y_norm", caption_norm_);
  const auto list = part(*this, "blocks");
  for (const nn::AttentionKind kind : design.attention) {
    blocks_.push_back(std::make_shared<sana::Block>(design, kind));
    list->register_module(std::to_string(blocks_.size() - 1), blocks_.back());
  }
  const auto last = part(*this, "final_layer");
  last->register_module("linear", out_);
  scale_shift_table_ =
      last->register_parameter("scale_shift_table", torch::randn({2, width_}) / std::sqrt(static_cast<double>(width_)));
  initialise();
}

void Sana::initialise() {
  const torch::NoGradGuard no_gradient;
  for (const auto& module : modules(/*include_self=*/false))
    if (auto* const linear = module->as<torch::nn::Linear>()) {
      torch::nn::init::xavier_uniform_(linear->weight);
      if (linear->bias.defined()) linear->bias.zero_();
    }
  torch::nn::init::xavier_uniform_(patches_->proj->weight.flatten(1));
  for (const at::Tensor& weight : {times_->first->weight, times_->second->weight, time_modulation_->weight,
                                   caption_in_->weight, caption_out_->weight})
    weight.normal_(0.0, kInitialDeviation);
  caption_norm_->weight.fill_(kCaptionScale);
  out_->weight.zero_();
}

SanaText Sana::text(const at::Tensor& states, const at::Tensor& mask) {
  if (states.dim() != 3 || states.size(2) != options.caption_width || states.size(1) < 1)
    throw Error(fmt::format("states have shape {}; they must be [batch, tokens, {}]", c10::str(states.sizes()),
                            options.caption_width));
  if (mask.defined() && mask.sizes() != states.sizes().slice(0, 2))
    throw Error(
        fmt::format("mask has shape {}; it must be [{}, {}]", c10::str(mask.sizes()), states.size(0), states.size(1)));
  const at::Tensor captions =
      caption_norm_->forward(caption_out_->forward(at::gelu(caption_in_->forward(states), "tanh")));
  SanaText result;
  for (const auto& block : blocks_) result.layers.push_back(block->cross_attn->keys(captions));
  if (mask.defined()) result.bias = ((1.0 - mask.to(captions)) * kPaddingScore).unsqueeze(1).unsqueeze(1);
  return result;
}

void Sana::check_latents(const at::Tensor& x, const at::Tensor& t, const SanaText& text) const {
  if (x.dim() != 4 || x.size(1) != options.channels || x.size(2) < 1 || x.size(3) < 1 ||
      x.size(2) % options.patch != 0 || x.size(3) % options.patch != 0)
    throw Error(fmt::format("x has shape {}; it must be [batch, {}, height, width], multiples of the patch, {}",
                            c10::str(x.sizes()), options.channels, options.patch));
  if (t.dim() != 1 || t.size(0) != x.size(0))
    throw Error(fmt::format("t has shape {}; it must be [{}]", c10::str(t.sizes()), x.size(0)));
  if (text.layers.size() != blocks_.size() || text.layers.front().k.size(0) != x.size(0))
    throw Error(fmt::format("text is not that of {} pictures for this model", x.size(0)));
}

at::Tensor Sana::forward(const at::Tensor& x, const at::Tensor& t, const SanaText& text) {
  check_latents(x, t, text);
  const nn::Grid grid = nn::patch_grid(x.size(2), x.size(3), options.patch);
  at::Tensor tokens = patches_->forward(x, grid);
  const at::Tensor time = times_->forward(t);
  const at::Tensor modulation = time_modulation_->forward(at::silu(time)).unflatten(1, {6, -1});
  for (std::size_t layer = 0; layer < blocks_.size(); ++layer)
    tokens = blocks_[layer]->forward(tokens, modulation, text.layers[layer], text.bias, grid);
  const auto last = (scale_shift_table_ + time.unsqueeze(1)).unbind(1);
  const at::Tensor values = out_->forward(nn::modulated(tokens, {.scale = last[1], .shift = last[0]}));
  const std::int64_t patch = options.patch;
  return values.unflatten(2, {patch, patch, options.channels})
      .unflatten(1, {grid.height, grid.width})
      .permute({0, 5, 1, 3, 2, 4})
      .reshape(x.sizes());
}

bool Sana::decays(const std::string& name) const { return !is_mixing(name); }

void Sana::after_step() { nn::project_mixing_(learned_mixing(mixing_parameters())); }

std::vector<at::Tensor> Sana::mixing_parameters() const {
  std::vector<at::Tensor> all;
  for (const auto& block : blocks_)
    if (const at::Tensor mixing = block->attn->mixing(); mixing.defined()) all.push_back(mixing);
  return all;
}

}  // namespace mhla::models
