// From a noised picture to the noise in it.
#include "models/base/diffusion_transformer.hpp"

#include "models/base/fit.hpp"
#include "models/base/mixing_parameters.hpp"
#include "nn/modulated.hpp"
#include "nn/recompute.hpp"

namespace mhla::models {
namespace {

constexpr double kInitialDeviation = 0.02;

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

DiffusionTransformer::DiffusionTransformer(const DiffusionDesign& design)
    : Generator(design.options), width_(design.width), patch_(design.patch), grid_(design.grid),
      patches_(options.channels, width_, patch_), times_(width_), labels_(options.classes, width_),
      final_modulation_(width_, 2 * width_), out_(width_, patch_ * patch_ * output_channels()) {
  position_ = register_parameter("pos_embed", sine_positions(grid_, width_), /*requires_grad=*/false);
  register_module("x_embedder", patches_);
  register_module("t_embedder", times_);
  register_module("y_embedder", labels_);
  list_ = register_module("blocks", std::make_shared<torch::nn::Module>("blocks"));
  auto final_layer = register_module("final_layer", std::make_shared<torch::nn::Module>("final_layer"));
  final_layer->register_module("linear", out_);
  final_layer->register_module("adaLN_modulation", torch::nn::Sequential(torch::nn::SiLU(), final_modulation_));
}

void DiffusionTransformer::add_block(const std::shared_ptr<ModulatedBlock>& block) {
  list_->register_module(std::to_string(blocks_.size()), block);
  blocks_.push_back(block);
}

void DiffusionTransformer::initialise() {
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
  for (const auto& block : blocks_) {
    zero(block->modulation);
    block->initialise();
  }
  zero(final_modulation_);
  zero(out_);
}

at::Tensor DiffusionTransformer::position(nn::Grid grid) {
  if (grid == grid_) return position_;
  if (!other_position_.defined() || grid != other_grid_ || other_position_.device() != position_.device() ||
      other_position_.scalar_type() != position_.scalar_type())
    other_position_ = sine_positions(grid, width_).to(position_.options().requires_grad(false)), other_grid_ = grid;
  return other_position_;
}

at::Tensor DiffusionTransformer::forward(const at::Tensor& x, const at::Tensor& t, const at::Tensor& y) {
  check_inputs(x, t, y, patch_);
  const nn::Grid grid = nn::patch_grid(x.size(2), x.size(3), patch_);
  const at::Tensor condition = at::silu(times_->forward(t) + labels_->forward(y));
  nn::GatedStream tokens(patches_->forward(x, grid) + position(grid));
  through_blocks(tokens, condition, grid);
  const auto parts = final_modulation_->forward(condition).chunk(2, 1);
  const at::Tensor patches = out_->forward(tokens.modulated({parts[1], parts[0]}));
  // A token holds its patch as (row, column, channel).
  return patches.unflatten(2, {patch_, patch_, output_channels()})
      .unflatten(1, {grid.height, grid.width})
      .permute({0, 5, 1, 3, 2, 4})
      .reshape({x.size(0), output_channels(), x.size(2), x.size(3)});
}

void DiffusionTransformer::through_blocks(nn::GatedStream& tokens, const at::Tensor& condition, nn::Grid grid) {
  for (std::size_t layer = 0; layer < blocks_.size(); ++layer) through_block(layer, tokens, condition, grid);
}

void DiffusionTransformer::through_block(std::size_t layer, nn::GatedStream& tokens, const at::Tensor& condition,
                                         nn::Grid grid) {
  if (!options.recompute) return blocks_[layer]->forward(tokens, condition, grid);
  const auto run = [block = blocks_[layer], grid](const at::Tensor& input, const at::Tensor& silu_c) {
    nn::GatedStream part(input);
    block->forward(part, silu_c, grid);
    return part.value();
  };
  tokens = nn::GatedStream(nn::recompute(run, tokens.value(), condition));
}

std::vector<at::Tensor> DiffusionTransformer::mixing_parameters() {
  std::vector<at::Tensor> parameters;
  parameters.reserve(blocks_.size());
  for (const auto& block : blocks_) parameters.push_back(block->mixing());
  return parameters;
}

at::Tensor DiffusionTransformer::fitted(const std::string& name, const at::Tensor& stored,
                                        const std::optional<GeneratorOptions>& from) const {
  if (name == "pos_embed") return position_.clone();  // known for every grid
  if (!is_mixing(name)) return {};
  return fitted_mixing(stored, from ? std::optional(partition_of(*from)) : std::nullopt, partition_of(options));
}

}  // namespace mhla::models
