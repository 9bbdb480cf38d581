// The vision transformer from pixels to logits.
#include "models/vit/vit.hpp"

#include "mhla/torch.hpp"
#include "models/base/fit.hpp"
#include "nn/drop_path.hpp"
#include "nn/recompute.hpp"

namespace mhla::models {
namespace {

constexpr double kInitialDeviation = 0.02;

std::shared_ptr<nn::Attention> make_attention(const VitDesign& design, nn::AttentionKind kind) {
  // In the authors' models softmax layers are timm's.
  if (design.authors && kind == nn::AttentionKind::softmax)
    return std::make_shared<nn::PlainAttention>(design.width, design.heads);
  return std::make_shared<nn::GridAttention>(design.attention_options(kind));
}

}  // namespace

Vit::Vit(const ClassifierOptions& options)
    : Classifier(options), design(options), patches_(3, design.width, options.patch) {
  const std::int64_t prefix = design.class_token ? 1 : 0;
  if (design.class_token) class_token_ = register_parameter("cls_token", torch::zeros({1, 1, design.width}));
  position_ = register_parameter("pos_embed", torch::zeros({1, prefix + design.grid.tokens(), design.width}));
  register_module("patch_embed", patches_);
  auto list = register_module("blocks", std::make_shared<torch::nn::Module>("blocks"));
  for (std::int64_t layer = 0; layer < design.depth; ++layer) {
    blocks_.push_back(std::make_shared<VitBlock>(
        design.width, design.norm, make_attention(design, design.attention[static_cast<std::size_t>(layer)])));
    list->register_module(std::to_string(layer), blocks_.back());
  }
  norm_ =
      register_module(design.class_token ? "norm" : "fc_norm", nn::Norm(design.norm, design.width, VitBlock::kNormEps));
  head_ = register_module("head", torch::nn::Linear(design.width, options.classes));
  initialise();
}

// Linear layers, positions and class token normal; convolutions as torch makes them.
void Vit::initialise() {
  const torch::NoGradGuard no_gradient;
  position_.normal_(0.0, kInitialDeviation);
  if (class_token_.defined()) class_token_.normal_(0.0, kInitialDeviation);
  for (const auto& module : modules(/*include_self=*/false))
    if (auto* const linear = module->as<torch::nn::Linear>()) {
      linear->weight.normal_(0.0, kInitialDeviation);
      if (linear->bias.defined()) linear->bias.zero_();
    }
}

Vit::Tokens Vit::embed(const at::Tensor& images) {
  check_images(images);
  const nn::Grid grid = design.canvas ? design.grid : design.grid_of(images.size(2), images.size(3));
  at::Tensor x = patches_->forward(images, grid, design.canvas ? nn::Placement::centre : nn::Placement::corner);
  if (class_token_.defined()) x = at::cat({class_token_.expand({x.size(0), -1, -1}).to(x.scalar_type()), x}, 1);
  return {x + positions_on(grid), grid};
}

at::Tensor Vit::positions_on(nn::Grid grid) {
  if (grid == design.grid) return position_;
  const std::int64_t prefix = design.class_token ? 1 : 0;
  return at::cat({position_.slice(1, 0, prefix), nn::resize_tokens(position_.slice(1, prefix), design.grid, grid)}, 1);
}

at::Tensor Vit::features(const at::Tensor& images) {
  auto [x, grid] = embed(images);
  const at::Tensor drop = nn::drop_path_factors(options.drop_path, design.depth, x, is_training());
  nn::Residual stream(x);
  for (std::size_t layer = 0; layer < blocks_.size(); ++layer) {
    const at::Tensor factors = drop.defined() ? drop[static_cast<std::int64_t>(layer)] : at::Tensor();
    const auto run = [block = blocks_[layer], grid = grid, factors](const at::Tensor& tokens) {
      nn::Residual part(tokens);
      block->forward(part, grid, factors);
      return part.value();
    };
    if (options.recompute)
      stream = nn::Residual(nn::recompute(run, stream.value()));
    else
      blocks_[layer]->forward(stream, grid, factors);
  }
  return stream.value();
}

at::Tensor Vit::pooled_features(const at::Tensor& images) {
  const at::Tensor x = features(images);
  return norm_->forward(design.class_token ? x.select(1, 0) : x.mean(1));
}

Classifier::Canvas Vit::canvas(std::int64_t /*layer*/) const {
  Canvas canvas{design.grid.height * options.patch, design.grid.width * options.patch};
  if (design.canvas) {
    canvas.top = (canvas.height - options.image_size[0]) / 2;
    canvas.left = (canvas.width - options.image_size[1]) / 2;
  }
  return canvas;
}

at::Tensor Vit::mixing_parameter(std::int64_t layer) {
  return blocks_.at(static_cast<std::size_t>(layer))->attn->mixing();
}

at::Tensor Vit::attention_matrix(const at::Tensor& images, std::int64_t layer) {
  check_layer(layer);
  const torch::NoGradGuard no_gradient;
  auto [x, grid] = embed(images);
  nn::Residual stream(x);
  for (std::int64_t i = 0; i < layer; ++i) blocks_[static_cast<std::size_t>(i)]->forward(stream, grid, {});
  const auto& block = blocks_[static_cast<std::size_t>(layer)];
  return block->attn->weights(stream.normed(block->norm1), grid);
}

at::Tensor Vit::fitted(const std::string& name, const at::Tensor& stored,
                       const std::optional<ClassifierOptions>& from) const {
  if (name == "pos_embed") {
    const auto source = from ? std::optional(VitDesign(*from)) : std::nullopt;
    return fitted_positions(stored, source ? std::optional(source->grid) : std::nullopt, design.grid,
                            design.class_token);
  }
  if (!is_mixing(name)) return {};
  return fitted_mixing(stored, from ? std::optional(VitDesign(*from).partition()) : std::nullopt, design.partition());
}

}  // namespace mhla::models
