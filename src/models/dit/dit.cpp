// The diffusion transformer from a noised picture to the noise in it.
#include "models/dit/dit.hpp"

#include <array>

#include "mhla/fused_torch.hpp"
#include "models/base/fit.hpp"
#include "models/base/mixing_parameters.hpp"
#include "nn/recompute.hpp"

namespace mhla::models {
namespace {

constexpr double kInitialDeviation = 0.02;

// Original DiT's names of the attention's layers.
constexpr std::array kSameLayers = {SameLayer{".attn.qkv.", ".attn.to_qkv."},
                                    SameLayer{".attn.proj.", ".attn.to_out.0."}};

void zero(torch::nn::Linear& linear) {
  linear->weight.zero_();
  linear->bias.zero_();
}

// A depthwise convolution that changes nothing.
void make_identity(torch::nn::Conv2dImpl& convolution) {
  const std::int64_t middle = convolution.weight.size(2) / 2;
  convolution.weight.zero_().select(3, middle).select(2, middle).fill_(1.0);
  convolution.bias.zero_();
}

}  // namespace

Dit::Dit(const GeneratorOptions& options)
    : Generator(options), design(options), patches_(options.channels, design.width, design.patch), times_(design.width),
      labels_(options.classes, design.width) {
  position_ = register_parameter("pos_embed", sine_positions(design.grid, design.width), /*requires_grad=*/false);
  register_module("x_embedder", patches_);
  register_module("t_embedder", times_);
  register_module("y_embedder", labels_);
  auto list = register_module("blocks", std::make_shared<torch::nn::Module>("blocks"));
  for (std::int64_t layer = 0; layer < design.depth; ++layer) {
    const auto kind = design.attention[static_cast<std::size_t>(layer)];
    blocks_.push_back(std::make_shared<DitBlock>(design.attention_options(kind), options.cpe));
    list->register_module(std::to_string(layer), blocks_.back());
  }
  auto final_layer = register_module("final_layer", std::make_shared<torch::nn::Module>("final_layer"));
  out_ = final_layer->register_module("linear",
                                      torch::nn::Linear(design.width, design.patch * design.patch * output_channels()));
  final_modulation_ = torch::nn::Linear(design.width, 2 * design.width);
  final_layer->register_module("adaLN_modulation", torch::nn::Sequential(torch::nn::SiLU(), final_modulation_));
  initialise();
}

// Blocks start as the identity: the layers that modulate are zero, convolutions on the grid copy.
void Dit::initialise() {
  const torch::NoGradGuard no_gradient;
  for (const auto& module : modules(/*include_self=*/false)) {
    if (auto* const linear = module->as<torch::nn::Linear>()) {
      torch::nn::init::xavier_uniform_(linear->weight);
      if (linear->bias.defined()) linear->bias.zero_();
    } else if (auto* const convolution = module->as<torch::nn::Conv2d>()) {
      if (convolution->options.groups() > 1) make_identity(*convolution);
    }
  }
  torch::nn::init::xavier_uniform_(patches_->proj->weight.flatten(1));
  patches_->proj->bias.zero_();
  for (const at::Tensor& weight : {labels_->table->weight, times_->first->weight, times_->second->weight})
    weight.normal_(0.0, kInitialDeviation);
  for (const auto& block : blocks_) zero(block->modulation);
  zero(final_modulation_);
  zero(out_);
}

at::Tensor Dit::forward(const at::Tensor& x, const at::Tensor& t, const at::Tensor& y) {
  check_inputs(x, t, y, design.patch);
  const nn::Grid grid = nn::patch_grid(x.size(2), x.size(3), design.patch);
  const at::Tensor position =
      grid == design.grid ? position_ : sine_positions(grid, design.width).to(position_.options());
  at::Tensor tokens = patches_->forward(x, grid) + position;
  const at::Tensor condition = at::silu(times_->forward(t) + labels_->forward(y));
  for (const auto& block : blocks_) {
    const auto run = [block, grid](const at::Tensor& input, const at::Tensor& silu_c) {
      return block->forward(input, silu_c, grid);
    };
    tokens = options.recompute ? nn::recompute(run, tokens, condition) : run(tokens, condition);
  }
  const auto parts = final_modulation_->forward(condition).chunk(2, 1);
  const at::Tensor patches = out_->forward(fused::modulate(tokens, parts[1], parts[0]));
  // A token holds its patch as (row, column, channel).
  return patches.unflatten(2, {design.patch, design.patch, output_channels()})
      .unflatten(1, {grid.height, grid.width})
      .permute({0, 5, 1, 3, 2, 4})
      .reshape({x.size(0), output_channels(), x.size(2), x.size(3)});
}

std::vector<at::Tensor> Dit::mixing_parameters() {
  std::vector<at::Tensor> parameters;
  parameters.reserve(blocks_.size());
  for (const auto& block : blocks_) parameters.push_back(block->attn->mixing());
  return parameters;
}

std::span<const SameLayer> Dit::weight_names() const { return kSameLayers; }

at::Tensor Dit::fitted(const std::string& name, const at::Tensor& stored,
                       const std::optional<GeneratorOptions>& from) const {
  if (name == "pos_embed") return position_.clone();  // known for every grid
  if (!is_mixing(name)) return {};
  return fitted_mixing(stored, from ? std::optional(DitDesign(*from).partition()) : std::nullopt, design.partition());
}

}  // namespace mhla::models
