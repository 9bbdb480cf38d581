// The vision linear transformer from pixels to logits.
#include "models/vlt/vlt.hpp"

#include <fmt/format.h>

#include <bit>

#include "mhla/torch.hpp"
#include "models/base/fit.hpp"
#include "nn/convolution.hpp"
#include "nn/drop_path.hpp"
#include "nn/recompute.hpp"

namespace mhla::models {
namespace {

constexpr std::int64_t kTailWidth = 1024;
constexpr double kInitialDeviation = 0.02;

torch::nn::Conv2d convolution3(std::int64_t from, std::int64_t to, std::int64_t stride) {
  return torch::nn::Conv2d(torch::nn::Conv2dOptions(from, to, 3).stride(stride).padding(1));
}

torch::nn::Sequential make_stem(std::int64_t width) {
  const std::int64_t half = width / 2;
  torch::nn::Sequential stem;
  const auto add = [&](std::int64_t from, std::int64_t to, std::int64_t stride, bool activation) {
    stem->push_back(convolution3(from, to, stride));
    stem->push_back(torch::nn::BatchNorm2d(to));
    if (activation) stem->push_back(torch::nn::GELU());
  };
  add(3, half, 2, true);
  add(half, half, 1, true);
  add(half, half, 1, true);
  add(half, width, 2, false);
  return stem;
}

}  // namespace

Vlt::Vlt(const ClassifierOptions& options)
    : Classifier(options), design(options), stem_(make_stem(design.stages[0].width)) {
  register_module("patch_embed", std::make_shared<torch::nn::Module>("patch_embed"))->register_module("proj", stem_);
  auto list = register_module("layers", std::make_shared<torch::nn::Module>("layers"));
  for (std::size_t i = 0; i < stages_.size(); ++i) {
    auto stage = list->register_module(std::to_string(i), std::make_shared<torch::nn::Module>("stage"));
    stages_[i] = make_stage(design.stages[i], i + 1 < stages_.size() ? design.stages[i + 1].width : 0, *stage);
  }
  proj_ = register_module("proj", nn::pointwise(design.stages.back().width, kTailWidth));
  norm_ = register_module("norm", torch::nn::BatchNorm2d(kTailWidth));
  head_ = register_module("head", nn::pointwise(kTailWidth, options.classes));
  const torch::NoGradGuard no_gradient;
  for (const auto& module : modules(/*include_self=*/false))
    if (auto* const convolution = module->as<torch::nn::Conv2d>()) {
      convolution->weight.normal_(0.0, kInitialDeviation);
      convolution->bias.zero_();
    }
}

Vlt::Stage Vlt::make_stage(const VltDesign::Stage& stage, std::int64_t next_width, torch::nn::Module& parent) {
  Stage made;
  made.rotary = parent.register_module("RoPE", VltRotary(stage.width / stage.heads));
  auto list = parent.register_module("blocks", std::make_shared<torch::nn::Module>("blocks"));
  for (std::int64_t layer = 0; layer < stage.depth; ++layer) {
    VltAttentionOptions attention{.dim = stage.width,
                                  .heads = stage.heads,
                                  .kind = stage.attention[static_cast<std::size_t>(layer)],
                                  .partition = stage.partition,
                                  .lepe = options.lepe};
    if (attention.kind == nn::AttentionKind::mhla)
      attention.mixing =
          mixing_tensor(stage.partition, parse_mixing_init(options.mixing_init), {.sigma = options.mixing_sigma});
    attention.mixing_frozen = options.mixing_frozen;
    made.blocks.push_back(std::make_shared<VltBlock>(attention, stage.layer_scale));
    list->register_module(std::to_string(layer), made.blocks.back());
  }
  if (next_width > 0) {
    auto downsample = parent.register_module("downsample", std::make_shared<torch::nn::Module>("downsample"));
    made.reduction = downsample->register_module("reduction", convolution3(stage.width, next_width, 2));
    made.norm = downsample->register_module("norm", torch::nn::BatchNorm2d(next_width));
  }
  return made;
}

at::Tensor Vlt::run(const at::Tensor& images,
                    const std::function<bool(VltBlock&, const at::Tensor&, const BlockPosition&)>& visit) {
  check_images(images);
  at::Tensor image = stem_->forward(images.contiguous(at::MemoryFormat::ChannelsLast));
  at::Tensor x, drop;
  std::int64_t layer = 0;
  for (Stage& stage : stages_) {
    const nn::Grid grid{image.size(2), image.size(3)};
    x = nn::as_tokens(image).contiguous();
    if (layer == 0) drop = nn::drop_path_factors(options.drop_path, design.depth(), x, is_training());
    const fused::RotaryTables rotary = stage.rotary->tables(grid);
    for (const auto& block : stage.blocks) {
      if (!visit(*block, x, {layer, grid, rotary})) return x;
      const at::Tensor factors = drop.defined() ? drop[layer] : at::Tensor();
      const auto step = [block, grid, rotary, factors](const at::Tensor& tokens) {
        return block->forward(tokens, grid, rotary, factors);
      };
      x = options.recompute ? nn::recompute(step, x) : step(x);
      ++layer;
    }
    if (stage.reduction) image = stage.norm->forward(stage.reduction->forward(nn::as_image(x, grid)));
  }
  return x;
}

at::Tensor Vlt::pooled_features(const at::Tensor& images) {
  const at::Tensor x = nn::projected(proj_, run(images, [](auto&&...) { return true; }));
  const at::Tensor normed = norm_->forward(nn::as_image(x, {x.size(1), 1}));
  return at::silu(normed).mean(at::IntArrayRef({2, 3}));
}

at::Tensor Vlt::logits(const at::Tensor& pooled_features) { return nn::projected(head_, pooled_features); }

// Stem and stages halve the image, rounding up, until its tokens are left.
Classifier::Canvas Vlt::canvas(std::int64_t layer) const {
  const auto covered = [](std::int64_t pixels, std::int64_t tokens) {
    return tokens *
           static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>((pixels + tokens - 1) / tokens)));
  };
  const nn::Grid here = grid(layer);
  return {covered(options.image_size[0], here.height), covered(options.image_size[1], here.width)};
}

at::Tensor Vlt::mixing_parameter(std::int64_t layer) {
  for (const Stage& stage : stages_) {
    if (layer < static_cast<std::int64_t>(stage.blocks.size()))
      return stage.blocks.at(static_cast<std::size_t>(layer))->mixing();
    layer -= static_cast<std::int64_t>(stage.blocks.size());
  }
  throw Error(fmt::format("there are only {} layers", layers()));
}

at::Tensor Vlt::attention_matrix(const at::Tensor& images, std::int64_t layer) {
  check_layer(layer);
  const torch::NoGradGuard no_gradient;
  at::Tensor weights;
  run(images, [&](VltBlock& block, const at::Tensor& x, const BlockPosition& place) {
    if (place.layer != layer) return true;
    weights = block.attention_weights(x, place.grid, place.rotary);
    return false;
  });
  return weights;
}

at::Tensor Vlt::fitted(const std::string& name, const at::Tensor& stored,
                       const std::optional<ClassifierOptions>& from) const {
  for (std::size_t i = 0; i < design.stages.size(); ++i)
    if (is_mixing(name) && name.starts_with(fmt::format("layers.{}.", i)))
      return fitted_mixing(stored, from ? std::optional(VltDesign(*from).stages[i].partition) : std::nullopt,
                           design.stages[i].partition);
  return {};
}

}  // namespace mhla::models
